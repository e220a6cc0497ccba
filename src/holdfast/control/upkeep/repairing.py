"""Saving damaged runs into another store: what was changed is signed anew, what is lost is said to be.

The first store is only read. A run that was changed outside Holdfast, and has lost nothing, is there under new hashes,
with a note in its journal and an act that say who did it and what did not fit. It is paused: somebody who has looked at
it has it go on. A run that has lost something is there with all that can be read, as it is stored, and quarantined.

Nobody executes a run twice for that: one that its own store would still execute, because nobody has found the damage
yet, or whose parent or children stay there, is frozen in the other one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from holdfast.base.clock import now_us
from holdfast.control.acting import act_in, act_of
from holdfast.control.upkeep.filing import copy_files
from holdfast.control.upkeep.threads import copy_thread
from holdfast.control.upkeep.transfers import NotTaken, Outcome, Transfer
from holdfast.errors import CorruptJournal, RunNotFound, StoreCorrupt
from holdfast.journal.blobs import blob_in, stored_blobs
from holdfast.journal.messages import CALLS, check_messages
from holdfast.journal.signing import Misfits, end_of, has_open_child, misfits_in, signed_anew
from holdfast.journal.tombstones import is_elsewhere
from holdfast.journal.verification import check_whole, verify
from holdfast.model import Kind, NoteKind, Record, RunRow, Status, Whole
from holdfast.model.reasons import Corrupt, Frozen, Paused, Reason, Was
from holdfast.store.contract import Store

T = TypeVar("T")

_PAGE = 500
_PATIENCE = 1000  #: so many in a row that cannot be read: there are no more
_NAMED = 20
_DAMAGED: Final = (CorruptJournal, StoreCorrupt)


class Repairs:
    """Saves damaged runs of `source`, which is only read, in `target`."""

    def __init__(self, source: Store, target: Store, *, by: str | None, note: str) -> None:
        self._source = source
        self._target = target
        self._act = act_of(by, note, "")

    async def repair(self, row: RunRow) -> Transfer | None:
        """Save a run; None if it is what was written."""
        try:
            return await self._repair(row)
        except NotTaken as why_not:
            return Transfer(row.id, row.agent, row.status, why_not.outcome, str(why_not))

    async def _repair(self, listed: RunRow) -> Transfer | None:
        source, target, run_id = self._source, self._target, listed.id
        if (await verify(source, run_id)).is_ok:
            return None
        whole, damage = await read_damaged(source, listed)
        if is_elsewhere(whole.row):
            raise NotTaken(Outcome.refused, "it lives in another store, or is on its way there")
        await self._refuse_other(whole.row)
        try:
            await copy_thread(source, target, whole.row.thread_id)
            said = [record for record in whole.records if record.name.startswith(CALLS)]
            await check_messages(target, whole.row, said)
        except _DAMAGED as error:
            damage = replace(damage, lost=(*damage.lost, str(error).rstrip(".")))
        await copy_files(source, run_id, target)
        wanted = self._damaged(whole, damage) if damage.lost else self._signed(whole, damage)
        stored = await target.put(wanted, act=act_in(self._act, "repair", run_id))
        if stored.digest != wanted.row.digest:
            raise NotTaken(Outcome.conflict, f"{target.url} has {run_id} by now; nothing was written")
        checked = await verify(target, run_id)
        if not damage.lost and not checked.is_ok:
            raise NotTaken(Outcome.damaged, f"it is in {target.url}, and not as it was written: {checked.problem}")
        outcome = Outcome.saved if damage.lost else Outcome.repaired
        return Transfer(run_id, wanted.row.agent, wanted.row.status, outcome, _told(damage, wanted.row))

    async def _refuse_other(self, row: RunRow) -> None:
        """A run that the target has is left as it is."""
        stored = await self._target.run(row.id)
        if stored is None:
            return
        records = await self._target.records(row.id) if stored.nonce == row.nonce else []
        if any(r.kind == Kind.noted and r.name == NoteKind.repaired for r in records) or isinstance(
            stored.reason, Corrupt
        ):
            raise NotTaken(Outcome.there, "it was saved there before")
        raise NotTaken(Outcome.conflict, f"{self._target.url} has a run with this id; nothing was written")

    def _signed(self, whole: Whole, damage: Misfits) -> Whole:
        row, at = whole.row, now_us()
        status, reason = self._standing(whole, at)
        found = [*damage.altered[:_NAMED], *(["…"] if len(damage.altered) > _NAMED else [])]
        note = {**self._act, "origin": self._source.url, "head": row.head_hash.hex(), "found": found, "seized": ""}
        signed = signed_anew(whole, note, at=at, reason=reason, status=status)
        check_whole(signed)
        return signed

    def _standing(self, whole: Whole, at: int) -> tuple[Status, Reason | None]:
        row = whole.row
        if (ended := end_of(whole)) is not None:
            return ended, None
        if row.status is not Status.quarantined or row.parent_id is not None or has_open_child(whole):
            was = Was(Status.queued, None, None, row.updated_at)
            return Status.blocked, Frozen(self._source.url, at, was)
        return Status.paused, Paused(Status.queued, self._act["by"], self._act["note"])

    def _damaged(self, whole: Whole, damage: Misfits) -> Whole:
        """What can be read, as it is stored; nobody signs it."""
        lost = ", ".join(damage.lost[:_NAMED]) + (", …" if len(damage.lost) > _NAMED else "")
        told = f"Run {whole.row.id}: what could be read was saved from {self._source.url}; lost: {lost}."
        row = replace(whole.row, status=Status.quarantined, reason=Corrupt(told), wake_at=None, owner=None, claims=0)
        return replace(whole, row=row)


def _told(damage: Misfits, row: RunRow) -> str:
    if damage.lost:
        return f"lost: {', '.join(damage.lost[:_NAMED])}"
    told = f"changed: {', '.join(damage.altered[:_NAMED]) or 'its row'}"
    match row.reason:
        case Frozen():
            return f"{told}; frozen, since its store may execute it, or has its family"
        case Paused():
            return f"{told}; paused until it is resumed"
        case _:
            return told


async def read_damaged(store: Store, listed: RunRow) -> tuple[Whole, Misfits]:
    """All that can be read of a run, and what of it is not what was written. `listed`: its row, as a list has it."""
    try:
        whole = await store.whole(listed.id)
    except _DAMAGED:
        return await _in_parts(store, listed)
    if whole is None:
        raise RunNotFound(f"There is no run {listed.id} in {store.url}.")
    return whole, misfits_in(whole)


async def _in_parts(store: Store, row: RunRow) -> tuple[Whole, Misfits]:
    run_id, lost = row.id, list[str]()
    try:
        row = await store.run(run_id) or row
    except _DAMAGED:
        lost.append("a part of its row")
    records, gone = await _spared(lambda after, limit: store.records(run_id, after=after, limit=limit), _seq)
    lost += [f"record {seq}" for seq in gone]
    mails, gone = await _spared(lambda after, limit: store.mail(run_id, after=after, limit=limit), lambda m: m.number)
    lost += [f"mail {number}" for number in gone]
    blobs: dict[str, bytes] = {}
    for name in sorted({name for r in records for text in (r.payload, r.args) if (name := blob_in(text)) is not None}):
        with suppress(*_DAMAGED):  # `misfits_in` finds that it is missing
            blobs |= await stored_blobs(store, run_id, [name])
    questions = []
    try:
        questions = await store.questions(run_id=run_id, only_open=False, limit=_PAGE)
    except _DAMAGED:
        lost.append("its questions")
    found = misfits_in(whole := Whole(row, tuple(records), blobs, tuple(mails), tuple(questions)))
    more = tuple(each for each in lost if each not in found.lost)
    return whole, Misfits(found.altered, (*more, *found.lost) or ("what was done to your own tables",))


def _seq(record: Record) -> int:
    return record.seq


async def _spared(
    read: Callable[[int, int], Awaitable[list[T]]], number: Callable[[T], int]
) -> tuple[list[T], list[int]]:
    """All that can be read, in pages; where one cannot be read, in smaller ones. And the numbers that cannot."""
    found: list[T] = []
    gone: list[int] = []
    after, in_a_row, limit = 0, 0, _PAGE
    while in_a_row < _PATIENCE:
        try:
            page = await read(after, limit)
        except _DAMAGED:
            if limit == 1:
                after, in_a_row = after + 1, in_a_row + 1
                gone.append(after)
            limit = max(1, limit // 2)
            continue
        if not page:
            break
        found += page
        after, in_a_row, limit = number(page[-1]), 0, min(_PAGE, 2 * limit)
    return found, gone[:-in_a_row] if in_a_row >= _PATIENCE else gone
