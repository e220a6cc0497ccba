"""What people did, for those who look: who, when, by what way, and why."""

from __future__ import annotations

from datetime import datetime

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.history.facts import Facts
from holdfast.model import Act, ActFilter, Via
from holdfast.store.contract import Store


@data
class ActInfo(Facts):
    """Something that somebody did."""

    number: int
    at: datetime
    by: str
    via: Via
    what: str
    target: str
    run_id: str | None
    note: str


async def activity_of(store: Store, which: ActFilter) -> list[ActInfo]:
    """What people did, newest first."""
    return [_info(number, act) for number, act in await store.surveys.acts(which)]


def _info(number: int, act: Act) -> ActInfo:
    return ActInfo(number, as_time(act.at), act.by, act.via, act.what, act.target, act.run_id, act.note)
