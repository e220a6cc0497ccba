"""What came for a trigger and can never be a run, set aside.

A message that cannot be read, does not fit the agent's argument, or has no valid queue key will be the same when it
comes again. So it does not come again: it is stored first, as a definition of kind `refused:<trigger>` that is due when
it was set aside, and only then is its source told that it is done with. What cannot be a run *now* is never put here.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.automation.triggers.definitions import body_of
from holdfast.base.clock import as_time
from holdfast.codec import blob_digest
from holdfast.model import Definition
from holdfast.store.contract import Store

#: How long what was set aside is kept.
KEPT_US: Final = 30 * 86_400 * 1_000_000

_BATCH: Final = 200
_FOR_EVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class RefusedStart:
    """Something that came for a trigger and can never be a run; kept for 30 days.

    Example: `for each in await app.refused_starts("orders"): print(each.why, each.data)`
    """

    at: datetime
    run: str  #: the id that the run would have
    what: str  #: where it came from: the id of an event, a path, the subject and number of a message
    why: str
    data: bytes  #: as it came


def set_aside(trigger: str, run_id: str, *, what: str, why: str, data: bytes, now: int) -> Definition:
    """What is stored of it; the same name however often it comes."""
    body = {"at": now, "run": run_id, "what": what, "why": why, "data": base64.b64encode(data).decode()}
    return Definition(_kind(trigger), blob_digest(run_id.encode()), json.dumps(body), 1, now)


async def refused_starts(store: Store, trigger: str, *, limit: int) -> list[RefusedStart]:
    """What was set aside, oldest first."""
    found = [body_of(each) for each in await store.definitions(_kind(trigger), due=_FOR_EVER, limit=limit)]
    return [
        RefusedStart(as_time(body["at"]), body["run"], body["what"], body["why"], base64.b64decode(body["data"]))
        for body in found
    ]


async def forget_refused(store: Store, trigger: str, *, before: int | None = None) -> None:
    """Forget what was set aside before a time, or all of it."""
    kind = _kind(trigger)
    while names := [each.name for each in await store.definitions(kind, due=before, limit=_BATCH)]:
        await store.forget(kind, names)


def _kind(trigger: str) -> str:
    return f"refused:{trigger}"
