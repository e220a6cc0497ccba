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

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any

from holdfast.base import faults
from holdfast.base.clock import now_us, ready_us
from holdfast.base.ids import new_uuid
from holdfast.control import control
from holdfast.errors import CorruptJournal, HoldfastError, StoreError, UsageError
from holdfast.journal.blobs import blob_in
from holdfast.journal.integrity import check_blob, check_mail, check_question, check_records, check_row, seal_row
from holdfast.journal.tombstones import is_elsewhere, is_empty, told, tombstone, why
from holdfast.model import Definition, Kind, Pruned, RunFilter, RunId, RunRow, Status, Whole, WorkerId
from holdfast.store.contract import Store

_PAGE = 200
_AT_ONCE = 16
_REMOVED_AT_ONCE = 2000
_ATTEMPTS = 20
#: What workers share by name and can be had in two stores; what starts runs comes paused.
_DEFINITIONS = ("agent", "queue", "retention", "schedule", "trigger")
_STARTS_RUNS = frozenset({"schedule", "trigger"})


class Outcome(StrEnum):
    """What became of a run, or of a definition."""

    copied = "copied"
    moved = "moved"
    there = "there already"
    refused = "refused"  #: it may not be done; the detail says why
    conflict = "conflict"  #: the other store has something else under this name
    damaged = "damaged"  #: what is stored does not fit its hashes


@dataclass(frozen=True, slots=True)
class Transfer:
    """One run, and what became of it."""

    run_id: str
    agent: str
    status: Status
    outcome: Outcome
    detail: str = ""


class _Stop(HoldfastError):
    """This run is not taken; nothing of it was changed by the step that raises this."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


class _Progress(Enum):
    """How far the move of a run came that is shut in its store."""

    shut = "shut"  #: the other store has nothing of it, or an old shell
    landed = "landed"  #: it has all of it, shut
    opened = "opened"  #: it has opened it; there it lives, or lived


class Carrier:
    """Takes runs from `source` to `target`; both are open, and `source` to write if runs are moved."""

    def __init__(self, source: Store, target: Store, *, seize: bool = False) -> None:
        self._source = source
        self._target = target
        self._seize = seize

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
        before: RunId | None = None
        while page := await self._source.runs(RunFilter(agent=agent, status=statuses, before_id=before, limit=_PAGE)):
            before = page[-1].id
            for row in page:
                if not is_empty(row):
                    yield row

    # copies

    async def copy(self, rows: Sequence[RunRow]) -> list[Transfer]:
        """Copy runs that have ended; an unfinished one is refused."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(row: RunRow) -> Transfer:
            async with gate:
                try:
                    if not row.status.is_final:
                        raise _Stop(
                            Outcome.refused,
                            f"it is {row.status}: in two stores it would be executed twice, its effects too. "
                            "--move takes it away from here",
                        )
                    return _told(row, await self._copy_ended(row))
                except (_Stop, CorruptJournal) as stopped:
                    return _stopped(row, stopped)

        return list(await asyncio.gather(*map(one, rows)))

    async def _copy_ended(self, row: RunRow) -> Outcome:
        whole = await self._sound(self._source, row.id)
        if is_empty(whole.row):
            raise _Stop(Outcome.refused, f"what it did is not in {self._source.url} any more")
        stored = await self._target.run(row.id)
        shell = self._shell(whole, stored)
        if stored is not None and shell is None:
            self._refuse_other_end(row, stored)
            self._compare(whole, await self._sound(self._target, row.id))
            return Outcome.there
        if shell is not None:
            whole = replace(whole, row=seal_row(replace(whole.row, epoch=max(whole.row.epoch, shell.epoch + 1))))
        await self._target.put(whole, instead_of=shell)
        self._compare(whole, await self._sound(self._target, row.id))
        return Outcome.copied

    def _refuse_other_end(self, row: RunRow, stored: RunRow) -> None:
        if is_empty(stored) or (stored.head_seq, stored.head_hash) != (row.head_seq, row.head_hash):
            raise _Stop(Outcome.conflict, f"{self._target.url} has {row.id} in another state; nothing was written")

    def _shell(self, whole: Whole, stored: RunRow | None) -> RunRow | None:
        """What the target has of a run that was moved away from there before, to be replaced."""
        if stored is None:
            return None
        self._refuse_other_run(whole.row, stored)
        if why(stored) != "moved":
            return None
        is_later = not whole.row.status.is_final and stored.epoch > whole.row.epoch
        is_other = stored.head_seq > len(whole.records) or (
            stored.head_seq and whole.records[stored.head_seq - 1].hash != stored.head_hash
        )
        if is_later or is_other:
            raise _Stop(
                Outcome.conflict,
                f"{self._target.url} knows a later state of {stored.id}; nothing was written",
            )
        return stored

    def _refuse_other_run(self, row: RunRow, stored: RunRow) -> None:
        if stored.nonce != row.nonce:
            raise _Stop(
                Outcome.conflict,
                f"{self._target.url} has another run with this id ({stored.agent}); nothing is written",
            )

    async def _sound(self, store: Store, run_id: RunId) -> Whole:
        """All of a run, checked against its hashes."""
        whole = await store.whole(run_id)
        if whole is None:
            raise _Stop(Outcome.refused, f"it is not in {store.url} any more")
        row = whole.row
        if row.status is Status.quarantined:
            raise CorruptJournal(str((row.reason or {}).get("detail", f"Run {run_id} is quarantined.")), run_id=run_id)
        check_row(row)
        if is_empty(row):
            return whole
        check_records(row, whole.records)
        named = {digest for r in whole.records for text in (r.payload, r.args) if (digest := blob_in(text)) is not None}
        for digest in named | whole.blobs.keys():
            check_blob(run_id, digest, whole.blobs.get(digest))
        for mail in whole.mail:
            check_mail(mail)
        for question in whole.questions:
            check_question(question)
        return whole

    def _compare(self, wanted: Whole, found: Whole) -> None:
        """Raise unless the copy is the same, but for why it is shut, and its epoch, which a shell raises."""
        for part in ("records", "blobs", "mail", "questions", "landed"):
            if getattr(wanted, part) != getattr(found, part):
                raise _Stop(Outcome.damaged, f"its {part} in {self._target.url} are not those of {self._source.url}")
        rows = [
            replace(each.row, digest="", reason=_plain_reason(each.row), claims=0, epoch=0) for each in (wanted, found)
        ]
        if rows[0] != rows[1]:
            raise _Stop(Outcome.damaged, f"its row in {self._target.url} is not that of {self._source.url}")

    # moves

    async def move(self, row: RunRow) -> list[Transfer]:
        """Move a run; with its whole family, if that has an unfinished member."""
        family = await self._family(await self._root(row))
        if all(each.status.is_final or why(each) == "moved" for each in family):
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
        except (_Stop, CorruptJournal) as stopped:
            return [_stopped(each, stopped) for each in family]
        return [_told(each, Outcome.moved) for each in shut]

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
        found: list[RunRow] = []
        last: RunId | None = None
        while page := await self._source.runs(RunFilter(parent_id=row.id, before_id=last, limit=_PAGE)):
            found += page
            last = page[-1].id
        return found

    async def _precheck(self, family: Sequence[RunRow]) -> None:
        """Refuse before anything is changed, if it can be known by then."""
        dead = await self._source.dead_workers()
        for row in family:
            self._refuse_held(row, dead)
        if await self._are_opened(family):
            return
        for row in family:
            if is_empty(row):
                if why(row) == "pruned" and len(family) == 1:
                    raise _Stop(Outcome.refused, f"what {row.id} did is not in {self._source.url} any more")
                continue
            whole = await self._sound(self._source, row.id)
            stored = await self._target.run(row.id)
            if stored is None or self._shell(whole, stored) is not None:
                continue
            if row.status.is_final:
                self._refuse_other_end(row, stored)
            elif why(row) != "moving":
                self._refuse_double(row, stored)

    def _refuse_double(self, row: RunRow, stored: RunRow) -> None:
        if is_elsewhere(stored):
            raise _Stop(
                Outcome.refused,
                f"{row.id} is in the middle of another move: in {self._target.url} it is {told(stored)}. Finish that "
                "first, by the same command once more",
            )
        raise _Stop(
            Outcome.conflict,
            f"{self._target.url} has it too ({row.id} is {stored.status} there), as a copy of the store would; "
            "nothing was changed",
        )

    def _refuse_held(self, row: RunRow, dead: dict[WorkerId, str]) -> None:
        if why(row) in ("moving", "moved") and (row.reason or {}).get("to") != self._target.url:
            raise _Stop(Outcome.refused, f"{row.id} is {why(row)} to {(row.reason or {}).get('to')}")
        if why(row) == "arriving":
            raise _Stop(Outcome.refused, f"{row.id} is being moved here; finish that first")
        if row.owner is not None and row.owner not in dead and not self._seize:
            raise _Stop(
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
            if row.status.is_final or why(row) in ("moving", "moved"):
                self._refuse_held(row, {})
                return row
            dead = await self._source.dead_workers() if row.owner is not None else {}
            self._refuse_held(row, dead)
            was = {"status": row.status, "reason": row.reason, "wake_at": row.wake_at, "updated_at": row.updated_at}
            if row.status is Status.running:
                was |= {"status": Status.queued, "reason": None, "wake_at": ready_us()}
            reason = {"why": "moving", "to": self._target.url, "at": now_us(), "was": was, "mail": row.mail}
            taken = control.seized(row, dead)
            notes = [(Kind.noted, "moved", {"to": self._target.url, **taken})] if taken else []
            marked = await control.amend(
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
                raise _Stop(Outcome.refused, f"{row.id} is not in {self._source.url} any more")
            row = found
        raise StoreError(f"Run {row.id} was changed by others {_ATTEMPTS} times in a row; try again.")

    async def _are_opened(self, family: Sequence[RunRow]) -> bool:
        """Whether the target has opened one of them: then it has all of them, wherever they are by now."""
        for row in family:
            if why(row) == "moving" and await self._progress(row) is _Progress.opened:
                return True
        return False

    async def _progress(self, row: RunRow) -> _Progress:
        """How far the move of a run came that is shut here."""
        stored = await self._target.run(row.id)
        if stored is None:
            return _Progress.shut
        self._refuse_other_run(row, stored)
        if stored.epoch > row.epoch:
            await self._check_went_on(row, stored)
            return _Progress.opened
        if stored.epoch == row.epoch and why(stored) == "arriving":
            return _Progress.landed
        if why(stored) != "moved":
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
            raise _Stop(
                Outcome.conflict,
                f"{self._target.url} has a {row.id} that does not go on from where it stands in {self._source.url}, "
                "as a copy of the store would; nothing was changed",
            )

    async def _land(self, row: RunRow) -> None:
        """Have the target store hold the run: as it is if it has ended, else shut."""
        if why(row) == "moved":
            return
        if why(row) == "pruned":  # its tombstone comes along: a start under its id runs nothing there either
            if await self._target.run(row.id) is None and (pruned := await self._source.whole(row.id)) is not None:
                await self._target.put(pruned)
            return
        if row.status.is_final:
            await self._copy_ended(row)
            return
        whole = await self._sound(self._source, row.id)
        if await self._progress(row) is _Progress.shut:
            shell = self._shell(whole, await self._target.run(row.id))
            reason = {"why": "arriving", "from": self._source.url, "at": now_us(), "was": (row.reason or {})["was"]}
            landing = replace(whole, row=seal_row(replace(whole.row, reason=reason, claims=0)))
            await self._target.put(landing, instead_of=shell)
        if await self._progress(row) is _Progress.landed:  # else the same command, given twice, has opened it
            self._compare(whole, await self._sound(self._target, row.id))

    async def _open(self, row: RunRow) -> None:
        """Have the run go on in the target store, as it stood; once."""
        if why(row) != "moving":
            return
        for _ in range(_ATTEMPTS):
            stored = await self._target.run(row.id)
            if stored is None or why(stored) != "arriving" or stored.epoch != row.epoch:
                return
            was: dict[str, Any] = dict((stored.reason or {})["was"])
            waits = (was["reason"] or {}).get("waits", [])
            if was["status"] in (Status.waiting, Status.sleeping) and any(wait["kind"] == "child" for wait in waits):
                kept = {"cleanup": True} if was["reason"].get("cleanup") else None
                was |= {"status": Status.queued, "reason": kept, "wake_at": ready_us()}
            faults.point("copy.before_release")
            if await control.amend(
                self._target,
                stored,
                [],
                status=Status(was["status"]),
                reason=was["reason"],
                wake_at=was["wake_at"],
                updated_at=was["updated_at"],
            ):
                faults.point("copy.after_release")
                return
        raise StoreError(f"Run {row.id} was changed by others {_ATTEMPTS} times in a row; try again.")

    async def _empty(self, row: RunRow) -> None:
        """Leave a tombstone in the source store that says where the run is."""
        reason = {"why": "moved", "to": self._target.url, "at": now_us()}
        stone = row if is_empty(row) else tombstone(row, reason)
        while True:
            (became,) = await self._source.prune([stone], before=None, most=_REMOVED_AT_ONCE, now=now_us())
            if became is Pruned.gone:
                return
            if became is Pruned.kept:
                found = await self._source.run(row.id)
                if found is not None and why(found) == "moved" and stone != found:
                    stone = found  # the same command, given twice, was faster
                    continue
                raise _Stop(
                    Outcome.refused, f"{row.id} was changed in {self._source.url} meanwhile; it is in both stores now"
                )

    # what workers share by name

    async def copy_definitions(self) -> list[tuple[str, str, Outcome]]:
        """Copy agents, queues, rules, schedules and triggers that the target has not; those that start runs, paused."""
        outcomes: list[tuple[str, str, Outcome]] = []
        for kind in _DEFINITIONS:
            known = {each.name: each for each in await self._target.definitions(kind)}
            for each in await self._source.definitions(kind):
                body, due_at = _without_haste(each) if kind in _STARTS_RUNS else (each.body, each.due_at)
                if each.name in known:
                    same = known[each.name].body in (each.body, body)
                    outcomes.append((kind, each.name, Outcome.there if same else Outcome.conflict))
                    continue
                (is_new,) = await self._target.define([Definition(kind, each.name, body, 1, due_at)])
                outcomes.append((kind, each.name, Outcome.copied if is_new else Outcome.conflict))
        return outcomes


def _plain_reason(row: RunRow) -> Any:
    """Why a run stands as it does; of one that is shut, how it stood."""
    return (row.reason or {}).get("was") if why(row) in ("moving", "arriving") else row.reason


def _without_haste(definition: Definition) -> tuple[str, int | None]:
    """A schedule or trigger that starts nothing until it is resumed."""
    try:
        body = json.loads(definition.body)
    except ValueError:
        return definition.body, None
    if not isinstance(body, dict):
        return definition.body, None
    body["paused"] = True
    if "firing" in body:
        body["firing"] = []
    return json.dumps(body), None


def _told(row: RunRow, outcome: Outcome) -> Transfer:
    was = (row.reason or {}).get("was") if why(row) == "moving" else None
    return Transfer(row.id, row.agent, Status(was["status"]) if was else row.status, outcome)


def _stopped(row: RunRow, stopped: _Stop | CorruptJournal) -> Transfer:
    outcome = stopped.outcome if isinstance(stopped, _Stop) else Outcome.damaged
    return Transfer(row.id, row.agent, row.status, outcome, str(stopped))
