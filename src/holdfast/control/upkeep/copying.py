"""Copies of runs that have ended, in another store: what is stored there is read back and compared, to the byte.

A store that has the id with another nonce has another run. What was moved away from there leaves a shell, which a later
state of the run replaces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.base.clock import now_us
from holdfast.base.ids import new_uuid
from holdfast.control.upkeep.filing import check_files, copy_files
from holdfast.control.upkeep.threads import copy_thread
from holdfast.control.upkeep.transfers import NotTaken, Outcome, Transfer, stopped, transfer_of
from holdfast.errors import CorruptJournal, UsageError
from holdfast.journal.chain import revised
from holdfast.journal.tombstones import is_empty
from holdfast.journal.verification import check_whole
from holdfast.model import Definition, RunFilter, RunId, RunRow, Status, ThreadId, Whole, reasons
from holdfast.model.reasons import Arriving, Frozen, Moved, Moving, Was
from holdfast.store.contract import Store
from holdfast.store.runs import every_run

_AT_ONCE = 16


class Copies:
    """Copies runs from `source` to `target`; both are open."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source = source
        self._target = target
        self._threads: dict[ThreadId, asyncio.Task[None]] = {}

    async def check_two(self) -> None:
        """Raise UsageError if both are one store: what is moved would be lost."""
        name = new_uuid().hex
        await self._target.define([Definition("copy", name, "{}", 1)])
        try:
            if await self._source.definitions("copy", names=[name]):
                raise UsageError(f"{self._source.url} and {self._target.url} are the same store.")
        finally:
            await self._target.forget("copy", [name])

    async def chosen(self, *, agent: str | None, statuses: frozenset[Status] | None) -> AsyncIterator[RunRow]:
        """Runs that fit, newest first; those that were moved or pruned are left out."""
        async for row in every_run(self._source, RunFilter(agent=agent, status=statuses)):
            if not is_empty(row):
                yield row

    async def copy(self, rows: Sequence[RunRow], *, frozen: bool = False) -> list[Transfer]:
        """Copy runs that have ended; an unfinished one is refused, unless its copy is to be frozen."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(row: RunRow) -> Transfer:
            async with gate:
                try:
                    if frozen:
                        return transfer_of(row, await self.copy_frozen(row))
                    if not row.status.is_final:
                        raise NotTaken(
                            Outcome.refused,
                            f"it is {row.status}: in two stores it would be executed twice, its effects too. "
                            "--move takes it away from here, --frozen copies it to be looked at",
                        )
                    return transfer_of(row, await self.copy_ended(row))
                except (NotTaken, CorruptJournal) as why_not:
                    return stopped(row, why_not)

        return list(await asyncio.gather(*map(one, rows)))

    async def copy_ended(self, row: RunRow) -> Outcome:
        whole = await self.sound(self._source, row.id)
        if is_empty(whole.row):
            raise NotTaken(Outcome.refused, f"what it did is not in {self._source.url} any more")
        stored = await self._target.run(row.id)
        shell = self.shell(whole, stored)
        if stored is not None and shell is None:
            self.refuse_other_end(row, stored)
            self.compare(whole, await self.sound(self._target, row.id))
            await copy_files(self._source, row.id, self._target)
            return Outcome.there
        if shell is not None:
            whole = replace(whole, row=revised(whole.row, epoch=max(whole.row.epoch, shell.epoch + 1)))
        await self.copy_thread(row)
        await copy_files(self._source, row.id, self._target)
        await self._target.put(whole, instead_of=shell)
        self.compare(whole, await self.sound(self._target, row.id))
        await check_files(self._source, row.id, self._target)
        return Outcome.copied

    async def copy_frozen(self, row: RunRow) -> Outcome:
        """Have the target hold the run as it is now, so that nobody can execute it there.

        What has ended is frozen too: it could be retried. A later state takes the place of a frozen copy.
        """
        whole = await self.sound(self._source, row.id)
        if is_empty(whole.row):
            raise NotTaken(Outcome.refused, f"what it did is not in {self._source.url} any more")
        wanted = replace(whole, row=_frozen(whole.row, self._source.url))
        stored = await self._target.run(row.id)
        if stored is not None:
            self.refuse_other_run(whole.row, stored)
            is_earlier = stored.head_seq <= len(whole.records) and (
                whole.records[stored.head_seq - 1].hash == stored.head_hash
            )
            if not isinstance(stored.reason, Frozen) or not is_earlier:
                raise NotTaken(
                    Outcome.conflict, f"{self._target.url} has {row.id} in another state; nothing was written"
                )
            if stored.head_seq == whole.row.head_seq and stored.mail == whole.row.mail:
                return Outcome.there
        await copy_files(self._source, row.id, self._target)
        await self._target.put(wanted, instead_of=stored)
        self.compare(wanted, await self.sound(self._target, row.id))
        await copy_files(self._source, row.id, self._target)  # those of an earlier copy went with it
        await check_files(self._source, row.id, self._target)
        return Outcome.copied

    async def copy_thread(self, row: RunRow) -> None:
        """Have the target know what was said in the run's thread; the first time that this asks for it."""
        if row.thread_id not in self._threads:
            self._threads[row.thread_id] = asyncio.create_task(
                copy_thread(self._source, self._target, row.thread_id), name=f"copy {row.thread_id}"
            )
        await self._threads[row.thread_id]

    def refuse_other_end(self, row: RunRow, stored: RunRow) -> None:
        if is_empty(stored) or (stored.head_seq, stored.head_hash) != (row.head_seq, row.head_hash):
            raise NotTaken(Outcome.conflict, f"{self._target.url} has {row.id} in another state; nothing was written")

    def shell(self, whole: Whole, stored: RunRow | None) -> RunRow | None:
        """What the target has of a run that was moved away from there before, to be replaced."""
        if stored is None:
            return None
        self.refuse_other_run(whole.row, stored)
        if not isinstance(stored.reason, Moved):
            return None
        is_later = not whole.row.status.is_final and stored.epoch > whole.row.epoch
        is_other = stored.head_seq > len(whole.records) or (
            stored.head_seq and whole.records[stored.head_seq - 1].hash != stored.head_hash
        )
        if is_later or is_other:
            raise NotTaken(
                Outcome.conflict,
                f"{self._target.url} knows a later state of {stored.id}; nothing was written",
            )
        return stored

    def refuse_other_run(self, row: RunRow, stored: RunRow) -> None:
        if stored.nonce != row.nonce:
            raise NotTaken(
                Outcome.conflict,
                f"{self._target.url} has another run with this id ({stored.agent}); nothing is written",
            )

    async def sound(self, store: Store, run_id: RunId) -> Whole:
        """All of a run, checked against its hashes."""
        whole = await store.whole(run_id)
        if whole is None:
            raise NotTaken(Outcome.refused, f"it is not in {store.url} any more")
        check_whole(whole)
        return whole

    def compare(self, wanted: Whole, found: Whole) -> None:
        """Raise unless the copy is the same, but for why it is shut, and its epoch, which a shell raises."""
        for part in ("records", "blobs", "mail", "questions", "landed"):
            if getattr(wanted, part) != getattr(found, part):
                raise NotTaken(Outcome.damaged, f"its {part} in {self._target.url} are not those of {self._source.url}")
        rows = [replace(each.row, digest="", reason=None, claims=0, epoch=0) for each in (wanted, found)]
        if rows[0] != rows[1] or _stood(wanted.row) != _stood(found.row):
            raise NotTaken(Outcome.damaged, f"its row in {self._target.url} is not that of {self._source.url}")


def _frozen(row: RunRow, origin: str) -> RunRow:
    """The row of a copy that nobody executes."""
    if isinstance(row.reason, Frozen):
        return row
    was = Was(row.status, row.reason, row.wake_at, row.updated_at)
    status = row.status if row.status.is_final else Status.blocked
    return revised(row, status=status, reason=Frozen(origin, now_us(), was), wake_at=None, owner=None, claims=0)


def _stood(row: RunRow) -> Mapping[str, Any] | None:
    """Why a run stands as it does; of one that is shut, how it stood."""
    if isinstance(row.reason, Moving | Arriving | Frozen):
        return reasons.plain_was(row.reason.was)
    return None if row.reason is None else reasons.plain(row.reason)
