"""Taking runs from one store to another: copies of those that have ended, moves of any.

A run that has ended is copied as it is. An unfinished one that existed twice would be executed twice, so it can only be
moved, in steps that each leave it executable in one store at most:

1. In its store it is shut: blocked as `moving`, under a new epoch, so that whoever had it can write nothing more.
2. It is stored in the other store with all it has, in one commit, and shut as well: blocked as `arriving`.
3. It is read back and compared, to the byte.
4. There it is opened: it stands as it stood before. From this commit on it lives there.
5. What it did is removed from the first store; its tombstone says where it went.

Cut off anywhere, the same once more goes on. How far it came is told by the epochs: a run is stored elsewhere under the
epoch of its mark, and each step after that raises it. So what the other store has under a higher epoch was opened there
since, and may have gone on to a third store; what was moved away from there under a lower one is an old shell of it.

A family that has an unfinished member is moved as a whole: a child tells
its parent of its end, and a parent looks for its children by their ids, in its own store. All are shut before any is
stored elsewhere, from the root down, so none of them can start another one meanwhile; they are opened from the root
down too. A run that waits for a child is opened as queued: it looks for itself whether the child has ended.

A run that is taken from a worker says so in its journal, with what is known of that worker: an effect under way may
still happen.

Runs keep their ids, nonces, hashes and idempotency keys. A store that has the id with another nonce has another run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from holdfast.base import faults
from holdfast.base.clock import now_us, ready_us
from holdfast.control.amendments import amend, seized
from holdfast.control.mail import kept
from holdfast.control.upkeep.copying import Copies
from holdfast.control.upkeep.filing import check_files, copy_files
from holdfast.control.upkeep.transfers import NotTaken, Outcome, Transfer, stopped, transfer_of
from holdfast.errors import CorruptJournal, StoreError
from holdfast.journal.chain import revised
from holdfast.journal.integrity import check_row
from holdfast.journal.tombstones import is_elsewhere, is_empty, told, tombstone
from holdfast.model import Kind, NoteKind, Proof, Removal, RunFilter, RunRow, Status, WaitKind, WorkerId, reasons
from holdfast.model.reasons import Arriving, Frozen, Moved, Moving, Was
from holdfast.store.contract import Store
from holdfast.store.runs import every_run

_REMOVED_AT_ONCE = 2000
_ATTEMPTS = 20


class _Progress(Enum):
    """How far the move of a run came that is shut in its store."""

    shut = "shut"  #: the other store has nothing of it, or an old shell
    landed = "landed"  #: it has all of it, shut
    opened = "opened"  #: it has opened it; there it lives, or lived


class Mover:
    """Moves runs from `source` to `target`; both are open to write."""

    def __init__(self, source: Store, target: Store, *, seize: bool = False) -> None:
        self._source = source
        self._target = target
        self._seize = seize
        self._copies = Copies(source, target)

    async def move(self, row: RunRow) -> list[Transfer]:
        """Move a run; with its whole family, if that has an unfinished member."""
        family = await self._family(await self._root(row))
        if all(each.status.is_final or isinstance(each.reason, Moved) for each in family):
            family = [each for each in family if each.id == row.id] or [row]
        try:
            await self._precheck(family)
            shut = await self._shut(family[0], is_family=len(family) > 1 or not family[0].status.is_final)
            if not await self._are_opened(shut):
                for each in reversed(shut):  # children before their parents: a parent that is opened finds them
                    await self._land(each)
            for each in shut:
                await self._open(each)
            for each in shut:
                await self._empty(each)
        except (NotTaken, CorruptJournal) as why_not:
            return [stopped(each, why_not) for each in family]
        return [transfer_of(each, Outcome.moved) for each in shut]

    async def _root(self, row: RunRow) -> RunRow:
        seen = {row.id}
        while row.parent_id is not None and row.parent_id not in seen:
            parent = await self._source.run(row.parent_id)
            if parent is None:
                return row
            seen.add(parent.id)
            row = parent
        return row

    async def _family(self, root: RunRow) -> list[RunRow]:
        """A run and all that came of it, parents before their children."""
        family, place = [root], 0
        while place < len(family):
            family += await self._children(family[place])
            place += 1
        return family

    async def _children(self, row: RunRow) -> list[RunRow]:
        return [each async for each in every_run(self._source, RunFilter(parent_id=row.id))]

    async def _precheck(self, family: Sequence[RunRow]) -> None:
        """Refuse before anything is changed, if it can be known by then."""
        dead = await self._source.dead_workers()
        for row in family:
            self._refuse_held(row, dead)
        if await self._are_opened(family):
            return
        for row in family:
            if is_empty(row):
                if isinstance(row.reason, reasons.Pruned) and len(family) == 1:
                    raise NotTaken(Outcome.refused, f"what {row.id} did is not in {self._source.url} any more")
                continue
            whole = await self._copies.sound(self._source, row.id)
            stored = await self._target.run(row.id)
            if stored is None or self._copies.shell(whole, stored) is not None:
                continue
            if row.status.is_final:
                self._copies.refuse_other_end(row, stored)
            elif not isinstance(row.reason, Moving):
                self._refuse_double(row, stored)

    def _refuse_double(self, row: RunRow, stored: RunRow) -> None:
        if is_elsewhere(stored):
            raise NotTaken(
                Outcome.refused,
                f"{row.id} is in the middle of another move: in {self._target.url} it is {told(stored)}. Finish that "
                "first, by the same command once more",
            )
        raise NotTaken(
            Outcome.conflict,
            f"{self._target.url} has it too ({row.id} is {stored.status} there), as a copy of the store would; "
            "nothing was changed",
        )

    def _refuse_held(self, row: RunRow, dead: dict[WorkerId, Proof]) -> None:
        if isinstance(row.reason, Moving | Moved) and row.reason.to != self._target.url:
            raise NotTaken(Outcome.refused, f"{row.id} is {told(row)}")
        if isinstance(row.reason, Arriving):
            raise NotTaken(Outcome.refused, f"{row.id} is being moved here; finish that first")
        if isinstance(row.reason, Frozen):
            raise NotTaken(Outcome.refused, f"{row.id} is a frozen copy; --frozen copies it")
        if row.owner is not None and row.owner not in dead and not self._seize:
            raise NotTaken(
                Outcome.refused,
                f"worker {row.owner} has {row.id}, and is alive. Pause the run, stop the worker, or take it away with "
                "--seize: a call under way is cut off then",
            )

    async def _shut(self, root: RunRow, *, is_family: bool) -> list[RunRow]:
        """Shut a run and its family here, from the root down; the rows as they are then."""
        shut, place = [await self._shut_one(root)], 0
        while is_family and place < len(shut):
            shut += [await self._shut_one(child) for child in await self._children(shut[place])]
            place += 1
        return shut

    async def _shut_one(self, row: RunRow) -> RunRow:
        for _ in range(_ATTEMPTS):
            if row.status.is_final or isinstance(row.reason, Moving | Moved):
                self._refuse_held(row, {})
                return row
            dead = await self._source.dead_workers() if row.owner is not None else {}
            self._refuse_held(row, dead)
            was = Was(row.status, row.reason, row.wake_at, row.updated_at)
            if row.status is Status.running:
                was = Was(Status.queued, None, ready_us(), row.updated_at)
            reason = Moving(self._target.url, now_us(), was, row.mail)
            taken = seized(row, dead)
            notes = [(Kind.noted, NoteKind.moved, {"to": self._target.url, **taken})] if taken else []
            marked = await amend(
                self._source,
                row,
                notes,
                status=Status.blocked,
                reason=reason,
                wake_at=None,
                seize=bool(taken),
            )
            if marked is not None:
                faults.point("copy.after_mark")
                return marked
            found = await self._source.run(row.id)
            if found is None:
                raise NotTaken(Outcome.refused, f"{row.id} is not in {self._source.url} any more")
            row = found
        raise StoreError(f"Run {row.id} was changed by others {_ATTEMPTS} times in a row; try again.")

    async def _are_opened(self, family: Sequence[RunRow]) -> bool:
        """Whether the target has opened one of them: then it has all of them, wherever they are by now."""
        for row in family:
            if isinstance(row.reason, Moving) and await self._progress(row) is _Progress.opened:
                return True
        return False

    async def _progress(self, row: RunRow) -> _Progress:
        """How far the move of a run came that is shut here."""
        stored = await self._target.run(row.id)
        if stored is None:
            return _Progress.shut
        self._copies.refuse_other_run(row, stored)
        if stored.epoch > row.epoch:
            await self._check_went_on(row, stored)
            return _Progress.opened
        if stored.epoch == row.epoch and isinstance(stored.reason, Arriving):
            return _Progress.landed
        if not isinstance(stored.reason, Moved):
            self._refuse_double(row, stored)
        return _Progress.shut

    async def _check_went_on(self, row: RunRow, stored: RunRow) -> None:
        """Raise unless what is stored goes on from here: what the run did here is about to be removed."""
        check_row(stored)
        if is_empty(stored):
            goes_on = stored.head_seq > row.head_seq or stored.head_hash == row.head_hash
        else:
            later = await self._target.records(row.id, after=row.head_seq - 1)
            goes_on = bool(later) and later[0].hash == row.head_hash
        if not goes_on:
            raise NotTaken(
                Outcome.conflict,
                f"{self._target.url} has a {row.id} that does not go on from where it stands in {self._source.url}, "
                "as a copy of the store would; nothing was changed",
            )

    async def _land(self, row: RunRow) -> None:
        """Have the target store hold the run: as it is if it has ended, else shut."""
        if isinstance(row.reason, Moved):
            return
        if isinstance(row.reason, reasons.Pruned):
            # Its tombstone comes along: a start under its id runs nothing there either.
            if await self._target.run(row.id) is None and (pruned := await self._source.whole(row.id)) is not None:
                await self._target.put(pruned)
            return
        if row.status.is_final:
            await self._copies.copy_ended(row)
            return
        whole = await self._copies.sound(self._source, row.id)
        if await self._progress(row) is _Progress.shut:
            shell = self._copies.shell(whole, await self._target.run(row.id))
            assert isinstance(row.reason, Moving)  # it was shut
            reason = Arriving(self._source.url, now_us(), row.reason.was)
            landing = replace(whole, row=revised(whole.row, reason=reason, claims=0))
            await self._copies.copy_thread(row)
            await copy_files(self._source, row.id, self._target)
            await self._target.put(landing, instead_of=shell)
        if await self._progress(row) is _Progress.landed:  # else the same command, given twice, has opened it
            self._copies.compare(whole, await self._copies.sound(self._target, row.id))
            await check_files(self._source, row.id, self._target)

    async def _open(self, row: RunRow) -> None:
        """Have the run go on in the target store, as it stood; once."""
        if not isinstance(row.reason, Moving):
            return
        for _ in range(_ATTEMPTS):
            stored = await self._target.run(row.id)
            if stored is None or not isinstance(stored.reason, Arriving) or stored.epoch != row.epoch:
                return
            was = stored.reason.was
            awaited = {wait.kind for wait in reasons.waits_of(was.reason)}
            if was.status in (Status.waiting, Status.sleeping) and WaitKind.child in awaited:
                was = Was(Status.queued, kept(was.reason), ready_us(), was.updated_at)
            faults.point("copy.before_release")
            if await amend(
                self._target,
                stored,
                [],
                status=was.status,
                reason=was.reason,
                wake_at=was.wake_at,
                updated_at=was.updated_at,
            ):
                faults.point("copy.after_release")
                return
        raise StoreError(f"Run {row.id} was changed by others {_ATTEMPTS} times in a row; try again.")

    async def _empty(self, row: RunRow) -> None:
        """Leave a tombstone in the source store that says where the run is."""
        stone = row if is_empty(row) else tombstone(row, Moved(self._target.url, now_us()))
        while True:
            (became,) = await self._source.prune([stone], before=None, most=_REMOVED_AT_ONCE, now=now_us())
            if became is Removal.gone:
                return
            if became is Removal.kept:
                found = await self._source.run(row.id)
                if found is not None and isinstance(found.reason, Moved) and stone != found:
                    stone = found  # the same command, given twice, was faster
                    continue
                raise NotTaken(
                    Outcome.refused, f"{row.id} was changed in {self._source.url} meanwhile; it is in both stores now"
                )
