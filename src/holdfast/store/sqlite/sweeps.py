"""What every worker asks again and again: what is due, what may be claimed, who is dead, is there mail?

Mostly nothing has happened since it was asked last, and each question is a trip to the thread that reads, which costs
far more than the answer. Every commit, of whatever process, changes the header of the index of the log. As long as that
is the same SQLite takes what it has read for true, and so does a store with what it has answered. The header is looked
at before a question goes to the reader: an answer may be newer than the header that it is kept under, never older.

Some answers change with time alone. "Nothing" is kept until the earliest time at which there is something, whatever
the clock does meanwhile; anything else is not kept. Nor is what the locks of other workers say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeVar

import apsw

from holdfast.base import clock
from holdfast.model import Definition, Proof, RunId, RunRow, WorkerId
from holdfast.store.sqlite import liveness, reads
from holdfast.store.sqlite.database import Database

T = TypeVar("T")

_NEVER: Final = 0
_EVER: Final = 2**63 - 1
_QUESTIONS = 100  # that are remembered; a worker has about ten
_FEW = 100  # definitions in an answer that is kept


class KeptAnswers:
    """What was answered since the last commit."""

    def __init__(self) -> None:
        # As one: event loops of several threads may ask.
        self._kept: tuple[bytes, dict[Hashable, tuple[Any, int]]] = (b"", {})

    def find(self, commits: bytes, question: Hashable, now: int) -> tuple[Any] | None:
        """The answer, if it is known and still true at `now`."""
        as_of, known = self._kept
        value, until = known.get(question, (None, _NEVER))
        return (value,) if as_of == commits and now < until else None

    def keep(self, commits: bytes, question: Hashable, value: object, *, until: int) -> None:
        as_of, known = self._kept
        if as_of != commits or len(known) >= _QUESTIONS:
            known = {}
            self._kept = (commits, known)
        known[question] = (value, until)


class Sweeps:
    """The part of a store that a worker with nothing to do uses. See `holdfast.store.contract.Store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._answers = KeptAnswers()

    def forget(self) -> None:
        """What was answered is of a file that is closed by now."""
        self._answers = KeptAnswers()

    async def _ask(
        self, question: Hashable, work: Callable[[apsw.Connection], tuple[T, int]], *, now: int = _NEVER
    ) -> T:
        """As `read`, unless the answer is known. `work` says until when its own holds if nothing is committed."""
        commits = self._database.commits()
        if commits is not None and (known := self._answers.find(commits, question, now)) is not None:
            self._database.check_files()
            await asyncio.sleep(0)  # who asks in a loop lets others have their turn, as if it were read
            found: T = known[0]
            return found
        value, until = await self._database.read(work)
        if commits is not None and now < until:
            self._answers.keep(commits, question, value, until=until)
        return value

    async def ready(
        self,
        *,
        agents: Sequence[str],
        queues: Sequence[str] | None,
        now: int,
        limit: int,
        after: str = "",
        closed: Sequence[str] = (),
    ) -> list[RunRow]:
        which = reads.asked(agents, queues, closed, now)

        def work(connection: apsw.Connection) -> tuple[list[RunRow], int]:
            found = reads.ready(connection, which, limit=limit, after=after)
            return found, _NEVER if found else _or_ever(reads.next_wake(connection))

        question = ("ready", which["agents"], which["queues"], which["closed"])
        return [*await self._ask(question, work, now=now)]

    async def next_wake(self) -> int | None:
        return await self._ask("next_wake", lambda connection: (reads.next_wake(connection), _EVER))

    async def mail_counts(self, owner: WorkerId) -> dict[RunId, tuple[int, int]]:
        question = ("mail_counts", owner)
        return {**await self._ask(question, lambda connection: (reads.mail_counts(connection, owner), _EVER))}

    async def definitions(
        self, kind: str, *, names: Sequence[str] | None = None, due: int | None = None, limit: int = 10_000
    ) -> list[Definition]:
        def read(connection: apsw.Connection) -> list[Definition]:
            return reads.definitions(connection, kind, names=names, due=due, limit=limit)

        def work(connection: apsw.Connection) -> tuple[list[Definition], int]:
            found = read(connection)
            if due is None:
                return found, _EVER if len(found) <= _FEW else _NEVER
            if found:
                return found, _NEVER
            first = reads.definitions(connection, kind, names=None, due=_EVER, limit=1)
            return found, _or_ever(first[0].due_at if first else None)

        if names is not None:
            return await self._database.read(read)
        return [*await self._ask(("definitions", kind, due is None, limit), work, now=due or 0)]

    async def dead_workers(self) -> dict[WorkerId, Proof]:
        locks = self._database.locks

        def work(connection: apsw.Connection) -> tuple[dict[WorkerId, Proof], int]:
            others = liveness.others(connection, locks)
            return liveness.dead(connection, locks, others, clock.boottime_ms()), _NEVER if others else _EVER

        return {**await self._ask("dead_workers", work)}


def _or_ever(time: int | None) -> int:
    return _EVER if time is None else time
