"""What people do to runs from outside; the same for app, command line and HTTP."""

from __future__ import annotations

import getpass
import json
from dataclasses import replace
from typing import Any

from holdfast.clock import now_us
from holdfast.errors import AlreadySettled, AmbiguousId, CorruptJournal, RunNotFound, UsageError
from holdfast.journal.integrity import check_records, check_row, mail_digest, seal_row
from holdfast.journal.replay import Replay
from holdfast.model import Mail, RunFilter, RunId, RunRow, Status
from holdfast.store.base import Store


def actor(by: str | None) -> str:
    """Who acts: as told, else the user of this process."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


async def find(store: Store, given: str) -> RunRow:
    """The run that an id, a token (`run@thread`), a unique prefix of an id, or `@last` names."""
    if given == "@last":
        newest = await store.runs(RunFilter(limit=1))
        if not newest:
            raise RunNotFound(f"There are no runs in {store.url} yet.")
        return newest[0]
    wanted, _, thread_id = given.partition("@")
    row = await store.run(RunId(wanted)) if wanted else None
    if row is None and wanted:
        fitting = await store.runs(RunFilter(id_prefix=wanted, limit=6))
        if len(fitting) > 1:
            shown = ", ".join(r.id for r in fitting[:5])
            raise AmbiguousId(
                f"{wanted!r} fits several runs: {shown}{' …' if len(fitting) > 5 else ''}. Give more of the id."
            )
        row = fitting[0] if fitting else None
    if row is None:
        raise RunNotFound(f"There is no run {wanted!r} in {store.url}. `holdfast runs` lists what there is.")
    if thread_id and row.thread_id != thread_id:
        raise RunNotFound(f"Run {row.id} belongs to thread {row.thread_id}, not {thread_id!r}.")
    return row


async def resolve(
    store: Store, run_id: RunId, key: str, verdict: dict[str, Any], *, attempt: int, by: str | None, note: str
) -> None:
    """Store a person's verdict on an effect in doubt.

    `verdict` is {"verdict": landed|not_landed|failed, "value"|"error": JSON text}.
    The run's owner acts on it, now or when the run is taken up again; a parked run is made claimable.
    """
    while not await _send_verdict(store, run_id, key, verdict, attempt=attempt, by=by, note=note):
        pass  # somebody sent something in between: look again whether it settled this call


async def _send_verdict(
    store: Store, run_id: RunId, key: str, verdict: dict[str, Any], *, attempt: int, by: str | None, note: str
) -> bool:
    loaded = await store.load(run_id)
    if loaded is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    row, records = loaded
    if row.status is Status.quarantined:
        raise CorruptJournal(f"Run {run_id} is quarantined; nothing can be settled in it.", run_id=run_id)
    check_row(row)
    check_records(row, records)
    replay = Replay(records, generation=row.generation, code="")
    entry = replay.entries.get(key)
    if entry is None:
        raise UsageError(f"Run {run_id} has no call {key!r}. `holdfast in-doubt` lists what is in doubt.")
    if entry.intent is None or row.status.is_final:
        raise AlreadySettled(f"Run {run_id}: {key} is not in doubt (any more); nothing was changed.")
    if entry.intent.attempt != attempt:
        raise AlreadySettled(
            f"Run {run_id}: attempt {attempt} of {key} was settled; in doubt is now attempt {entry.intent.attempt}. "
            "Nothing was changed; look again with `holdfast in-doubt`."
        )
    if any(m.key == key and m.number not in replay.consumed_mail for m in await store.mail(run_id, after=0)):
        raise AlreadySettled(f"Run {run_id}: somebody settled {key} just now; `holdfast show {run_id}` tells who.")
    at = now_us()
    body = json.dumps({**verdict, "attempt": attempt, "actor": actor(by), "note": note})
    mail = Mail(run_id, 0, "resolve", key, body, at, mail_digest(run_id, "resolve", key, body, at))
    wake = None
    if row.owner is None and row.status in (Status.in_doubt, Status.blocked):
        wake = seal_row(replace(row, status=Status.queued, updated_at=at))
    return await store.send(mail, wake=wake, expected=row.mail) > 0
