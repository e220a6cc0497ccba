"""An act on a run: which run it is, who acts by what way, and whether they did before."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import Any

from holdfast.base.clock import now_us
from holdfast.errors import RunNotFound
from holdfast.journal.pages import record_pages
from holdfast.journal.tombstones import refuse_elsewhere
from holdfast.model import Act, Actor, Kind, RunId, RunRow, Via
from holdfast.store.contract import Store


async def existing(store: Store, run_id: RunId) -> RunRow:
    """The run, to be acted on: RunNotFound, or RunMoved if it lives in another store."""
    row = await store.run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    refuse_elsewhere(row)
    return row


def actor(by: str | None) -> str:
    """Who acts: as told, else the user of this process."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def way(by: str | None) -> dict[str, str]:
    """By what way somebody acts, where that is known: for what is recorded of it."""
    return {"via": by.via.value} if isinstance(by, Actor) else {}


def act_of(by: str | None, note: str, own_id: str) -> dict[str, str]:
    """Who does something, and why; `own_id` names the act of a run that does it to another."""
    return {"by": actor(by), "note": note, **way(by), **({"id": own_id} if own_id else {})}


def act_in(said: Mapping[str, Any], what: str, run_id: RunId, *, target: str = "") -> Act | None:
    """What is kept of an act on a run, from what is recorded of it; None if no person did it, but code."""
    if "via" not in said:
        return None
    who = str(said.get("by") or said.get("actor") or "")
    return Act(now_us(), who, Via(said["via"]), what, target or run_id, run_id, str(said.get("note") or ""))


def act_on(by: str | None, note: str, what: str, *, target: str) -> Act:
    """What is kept of an act on anything else."""
    via = by.via if isinstance(by, Actor) else Via.code
    return Act(now_us(), actor(by), via, what, target, None, note)


async def was_done(store: Store, run_id: RunId, own_id: str) -> bool:
    """Did a run that was cut off act on this one before? Its id is in the mail, or in the journal."""
    if any(own_id in mail.body for mail in await store.mail(run_id, after=0)):
        return True
    row = await store.run(run_id)
    if row is None:
        return False
    async for page in record_pages(store, row):
        if any(r.kind == Kind.noted and own_id in (r.payload or "") for r in page):
            return True
    return False
