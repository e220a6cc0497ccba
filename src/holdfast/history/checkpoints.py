"""Checkpoints: with which state each turn of a run began, and what differs between two of them.

They are read by themselves: a run of half a million records is not loaded for the state of one of its turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.codec.refusal import part
from holdfast.errors import CorruptJournal, UsageError
from holdfast.history.facts import Facts
from holdfast.history.lookup import row_of
from holdfast.history.values import plain_value
from holdfast.journal.blobs import blob_in, stored_text
from holdfast.journal.chain import rehash
from holdfast.journal.checkpoints import Past
from holdfast.journal.tombstones import refuse_empty
from holdfast.model import Record, RunId, RunRow
from holdfast.store.contract import Store

_PAGE: Final = 1000


@data
class CheckpointInfo(Facts):
    """The head of a turn: when it began, and how large its state is.

    Example: `last = (await run.checkpoints())[-1].turn`
    """

    turn: int
    seq: int  #: of its record
    at: datetime
    size: int  #: of the state, as bytes of JSON
    unread: int  #: how much mail nobody had taken by then


@data
class StateChange(Facts):
    """What differs between two states at one place.

    Example: `for change in await run.diff(3, 4): print(change.path, change.after)`
    """

    path: str  #: `history[4].text`; empty for the state itself
    kind: str  #: added, removed or changed
    before: Any
    after: Any


async def checkpoints_page(store: Store, run_id: RunId, *, after: int, limit: int) -> list[CheckpointInfo]:
    """Those behind a record, oldest first."""
    return [_info(record) for record, _ in await store.checkpoints(run_id, after=after, limit=limit)]


async def checkpoints_of(store: Store, run_id: RunId) -> list[CheckpointInfo]:
    """All of a run, oldest first."""
    await _row(store, run_id)
    found: list[CheckpointInfo] = []
    after = 0
    while True:
        page = await store.checkpoints(run_id, after=after, limit=_PAGE)
        found += [_info(record) for record, _ in page]
        if len(page) < _PAGE:
            return found
        after = page[-1][0].seq


async def state_of(store: Store, run_id: RunId, turn: int | None) -> Any:
    """With which state a turn began, as plain JSON; None: the last one."""
    row = await _row(store, run_id)
    wanted = row.turn if turn is None else turn
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= row.turn:
        known = (
            f"its turns are 1 to {row.turn}" if row.turn else "it has no turns: its agent has not come to hf.turns()"
        )
        raise UsageError(f"Run {run_id} has no turn {turn!r}; {known}.")
    found = await store.checkpoints(run_id, turn=wanted, limit=1)
    if not found:
        raise CorruptJournal(f"Run {run_id}: the checkpoint of turn {wanted} is missing.", run_id=run_id)
    record, before = found[0]
    if rehash(before, record) != record.hash:
        raise CorruptJournal(
            f"Run {run_id}: the checkpoint of turn {wanted} does not fit its hash.", run_id=run_id, seq=record.seq
        )
    return plain_value(await stored_text(store, run_id, record.args))


async def difference_of(store: Store, run_id: RunId, *, turns: tuple[int, int]) -> list[StateChange]:
    """What differs between the states that two turns began with."""
    before, after = [await state_of(store, run_id, turn) for turn in turns]
    return list(changes(before, after))


async def _row(store: Store, run_id: RunId) -> RunRow:
    row = await row_of(store, run_id)
    refuse_empty(row)
    return row


def _info(record: Record) -> CheckpointInfo:
    size = len(record.args or "") if blob_in(record.args) is None else int((record.args or "").rpartition(":")[2])
    return CheckpointInfo(record.turn, record.seq, as_time(record.at), size, len(Past.read(record).unread))


def changes(before: Any, after: Any, path: str = "") -> Iterator[StateChange]:
    """What differs between two values of plain JSON; 1, 1.0 and true are different."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            place = f"{path}{part(key)}" if path else part(key).lstrip(".")
            if key not in after:
                yield StateChange(place, "removed", before[key], None)
            elif key not in before:
                yield StateChange(place, "added", None, after[key])
            else:
                yield from changes(before[key], after[key], place)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _members(before, after, path)
    elif _text(before) != _text(after):
        yield StateChange(path, "changed", before, after)


def _members(before: list[Any], after: list[Any], path: str) -> Iterator[StateChange]:
    """Of lists: what both begin and end with is left out, and what was cut at the front of one."""
    old, new = [_text(each) for each in before], [_text(each) for each in after]
    cut = _cut_at_front(old, new)
    for n in range(cut):
        yield StateChange(f"{path}[{n}]", "removed", before[n], None)
    old, start = old[cut:], 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    stop_old, stop_new = len(old) - end, len(new) - end
    for n in range(start, max(stop_old, stop_new)):
        if n >= stop_new:
            yield StateChange(f"{path}[{n + cut}]", "removed", before[n + cut], None)
        elif n >= stop_old:
            yield StateChange(f"{path}[{n}]", "added", None, after[n])
        else:
            yield from changes(before[n + cut], after[n], f"{path}[{n}]")


def _cut_at_front(old: Sequence[str], new: Sequence[str]) -> int:
    """How many members one lost at its front, if all others are still there; a window that slides."""
    if not new or new[0] not in old:
        return 0
    first = old.index(new[0])
    return first if list(old[first:]) == list(new[: len(old) - first]) else 0


def _text(value: Any) -> str:
    return json.dumps(value)
