"""Runs in a PostgreSQL database: for workers on several machines.

What was acknowledged is on the server's disk (`synchronous_commit` is set on for every commit of ours, whatever the
server's or the role's default is). A process has five connections: two that write (`writer`), two that read
(`pool`), and its session, which has the workers' locks and leases and the bell (`session`).

When the server is away, workers go on by themselves once it is back:

* appends wait, for as long as it takes; a run that has too many of them waits with them;
* other writes wait for half a minute, reads for ten seconds, and fail with a StoreError then, which a worker's loop
  logs before it looks again;
* a lease that cannot be renewed runs out, and its worker begins no effects until it is renewed; others may take its
  runs over by then, and the epoch keeps the two apart.

`trouble` says what is waited for, and since when. After a failover a url with several hosts and
`target_session_attrs=read-write` finds the new primary; a connection to what has become a standby is given up.

The url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, `?schema=NAME` for other tables than those in the schema
`holdfast`, `?pooler=transaction` behind a pooler that keeps no sessions; everything else is the driver's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.base import clock
from holdfast.base.config import Settings
from holdfast.errors import ForkedConnection, NoStore, StoreError, UsageError
from holdfast.model import (
    Append,
    Applied,
    Claim,
    Definition,
    Fence,
    Landing,
    Limit,
    Loaded,
    Mail,
    QuestionRow,
    QuestionState,
    Record,
    RunFilter,
    RunId,
    RunRow,
    Sent,
    Status,
    Wake,
    Worker,
    WorkerId,
)
from holdfast.store import forks
from holdfast.store.carrier import Carrier
from holdfast.store.contract import Acknowledge
from holdfast.store.home import AtHome
from holdfast.store.mailing import Delivery
from holdfast.store.postgres import apply, health, migrate
from holdfast.store.postgres.connection import Backoff, Role, Sort, Target, drop, explain, is_starting, sort_of
from holdfast.store.postgres.lending import Borrowing, Lender, define_within
from holdfast.store.postgres.lives import Lives
from holdfast.store.postgres.locks import QueueLocks
from holdfast.store.postgres.mail import Telling
from holdfast.store.postgres.news import News
from holdfast.store.postgres.pool import Readers
from holdfast.store.postgres.reads import Reads
from holdfast.store.postgres.retention import Retention
from holdfast.store.postgres.session import Session
from holdfast.store.postgres.writer import (
    AMEND_POINTS,
    SEND_POINTS,
    AppendOp,
    CallOp,
    CreateOp,
    PostOp,
    Writer,
)
from holdfast.store.problems import Problem
from holdfast.store.queries import load_queries

T = TypeVar("T")

_CLAIM_POINTS = ("claim.before_commit", "claim.after_commit")
_QUESTION_POINTS = ("question.before_commit", "question.after_commit")
_DEFINE_POINTS = ("define.before_commit", "define.after_commit")
_STARTING_S = 10.0
_SHORT_US = 60_000  # a second look at missing sessions is waited for, if it is this near


class PostgresStore(Retention, AtHome):
    """A store in a PostgreSQL database. See `holdfast.store.contract.Store` for what the methods promise."""

    def __init__(self, url: str, *, settings: Settings | None = None) -> None:
        self._target = Target.of(url)
        self.settings = settings or Settings()
        self._queries = load_queries("postgres", self._target.schema)
        self._pid = os.getpid()
        self._home: asyncio.AbstractEventLoop | None = None
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._session: Session | None = None
        self._lender: Lender | None = None
        self._news = News()
        self._carrier = Carrier()
        self._lives = Lives()
        self._queue_locks = QueueLocks(self._target.schema)
        self._durability = "full"
        self._is_reached = False  #: did the server answer when the store was opened?
        self._clock_ms = clock.boottime_ms

    @property
    def url(self) -> str:
        """Without the password."""
        return self._target.shown

    @property
    def durability(self) -> str:
        return self._durability

    @property
    def trouble(self) -> str | None:
        trouble = self._writer.trouble if self._writer is not None else None
        return trouble or (self._readers.trouble if self._readers is not None else None)

    @property
    def failure(self) -> StoreError | None:
        return None  # a server comes back

    # open and close

    async def open(self, *, read_only: bool = False) -> None:
        if self._readers is not None:
            raise UsageError(f"{self.url} is open already.")
        self._pid, self._home = os.getpid(), asyncio.get_running_loop()
        try:
            await self._prepare_soon(read_only=read_only)
            session = Session(self._target, self._queries, read_only=read_only, heard=self._news.ring)
            await session.start()
        except UsageError:
            raise
        except Exception as error:
            explained = explain(error, self._target)
            if explained is error:
                raise
            raise explained from error
        self._session, self._clock_ms = session, session.clock_ms
        self._readers = Readers(self._target, self._queries)
        self._news.open()
        if not read_only:
            self._writer = Writer(self._target, self._queries, self._ring_all, self._carrier.carry)
            self._writer.begin()
        forks.register(self)

    async def _prepare_soon(self, *, read_only: bool) -> None:
        """Wait for a server that is starting, or cuts sessions off; one that is not there is an error at once."""
        backoff, give_up_us = Backoff(), clock.monotonic_us() + int(_STARTING_S * 1e6)
        while True:
            try:
                return await self._prepare(read_only=read_only)
            except Exception as error:
                is_cut_off = self._is_reached and sort_of(error) is Sort.away
                if not (is_starting(error) or is_cut_off) or clock.monotonic_us() > give_up_us:
                    raise
            await asyncio.sleep(backoff.next_s())

    async def _prepare(self, *, read_only: bool) -> None:
        self._is_reached = False
        connection = await self._target.connect(Role.read if read_only else Role.session)
        self._is_reached = True
        try:
            if read_only:
                if not await migrate.check_version(connection, self._queries, self._target):
                    raise NoStore(f"There is no store in schema {self._target.schema} of {self.url}.")
            else:
                await migrate.migrate(connection, self._queries, self._target)
            fsync, full_page_writes, _ = await connection.fetchrow(self._queries["durability"])
            self._durability = health.durability(fsync, full_page_writes)
        except BaseException:
            drop(connection)
            raise
        await connection.close(timeout=5)

    async def close(self) -> None:
        if self._pid != os.getpid() or self._readers is None:
            return
        readers, self._readers = self._readers, None
        writer, self._writer = self._writer, None
        session, self._session = self._session, None
        self._news.close()
        if writer is not None:
            await writer.close()
        await readers.close()
        lender, self._lender = self._lender, None
        if lender is not None:
            await lender.close()
        if session is not None:
            await session.stop()

    def forked(self) -> None:
        # The event loop's own table of sockets is shared with the parent: closing them here would make it deaf.
        for source in (self._writer, self._readers, self._session, self._lender):
            for thing in source.connections if source is not None else ():
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))

    async def reach(self) -> None:
        writer, readers = self._writable(), self._readers
        if readers is not None and not (writer.is_connected and readers.is_connected):
            await self._at_home(writer.reach())
            await self._at_home(readers.reach())

    # ways to the server

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedConnection(
                f"{self.url} was opened by process {self._pid}, and this is its forked child {os.getpid()}. "
                "Connect again in the child, or fork before connecting."
            )

    def _writable(self) -> Writer:
        self._check_usable()
        if self._writer is None:
            raise StoreError(f"{self.url} is {'not open' if self._readers is None else 'open read-only'}.")
        return self._writer

    def _live(self) -> Session:
        self._check_usable()
        if self._session is None:
            raise StoreError(f"{self.url} is not open.")
        return self._session

    async def _at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Connections belong to the loop that opened the store; whoever comes from another one is taken there."""
        if self._home is asyncio.get_running_loop() or self._home is None:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    async def _submit(self, make: Callable[[asyncio.Future[Any]], Any]) -> Any:
        self._writable()

        async def submit() -> Any:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._writable().submit(make(future))
            return await future

        return await self._at_home(submit())

    async def _write(self, work: Callable[[Any, bool], Awaitable[Any]], points: tuple[str, str] = ("", "")) -> Any:
        return await self._submit(lambda future: CallOp(work, future, points))

    async def _read(self, work: Callable[[Reads], Awaitable[T]]) -> T:
        self._check_usable()
        readers = self._readers
        if readers is None:
            raise StoreError(f"{self.url} is not open.")
        return await self._at_home(readers.read(work))

    # runs

    async def create(self, append: Append, *, owner: WorkerId | None, fence: Fence | None = None) -> RunRow:
        row: RunRow = await self._submit(lambda future: CreateOp(append, owner, fence, future))
        return row

    def create_inline(self, append: Append) -> bool:
        """Always declined, as `commit_inline`."""
        return False

    async def claim(
        self,
        row: RunRow,
        *,
        owner: WorkerId,
        expected_epoch: int,
        expected_owner: WorkerId | None,
        limits: Mapping[str, Limit] | None = None,
    ) -> bool:
        claim = Claim(row, expected_epoch, expected_owner)

        async def work(connection: Any, again: bool) -> bool:
            found = await apply.claim_many(
                connection, self._queries, [claim], owner, limits=limits or {}, waits=True, again=again
            )
            (won,) = await self._queue_locks.settle(connection, self._queries, [claim], found)
            return won

        return bool(await self._write(work, _CLAIM_POINTS))

    async def claim_many(
        self, claims: Sequence[Claim], *, owner: WorkerId, limits: Mapping[str, Limit] | None = None
    ) -> list[bool]:
        async def work(connection: Any, again: bool) -> list[bool]:
            found = await apply.claim_many(
                connection, self._queries, claims, owner, limits=limits or {}, waits=False, again=again
            )
            return await self._queue_locks.settle(connection, self._queries, claims, found)

        won: list[bool] = await self._write(work, _CLAIM_POINTS)
        return won

    def submit(self, append: Append, acknowledge: Acknowledge, *, urgent: bool) -> None:
        # What is not urgent shares the next call anyway, if one is under way.
        self._writable().submit(AppendOp(append, acknowledge))

    def commit_inline(self, append: Append) -> Applied | None:
        """Always declined: nothing can be committed without waiting for the server's answer."""
        self._writable()
        return None

    def submit_alone(self, append: Append, acknowledge: Acknowledge) -> Awaitable[None] | None:
        return self._writable().submit_alone(append, acknowledge)

    async def amend(self, append: Append, *, seize: bool = False) -> bool:
        outcome = await self._submit(lambda future: PostOp(Telling(append, seize), future, AMEND_POINTS))
        return outcome is Applied.committed

    async def quarantine(self, run_id: RunId, reason: str) -> None:
        await self._write(lambda connection, _: apply.quarantine(connection, self._queries, run_id, reason))

    # reads

    async def run(self, run_id: RunId) -> RunRow | None:
        return await self._read(lambda reads: reads.run(run_id))

    async def runs(self, which: RunFilter) -> list[RunRow]:
        return await self._read(lambda reads: reads.runs(which))

    async def records(self, run_id: RunId, *, after: int = 0) -> list[Record]:
        return await self._read(lambda reads: reads.records(run_id, after))

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
        return await self._read(lambda reads: reads.load(run_id))

    async def load_many(self, run_ids: Sequence[RunId]) -> list[Loaded]:
        return await self._read(lambda reads: reads.load_many(run_ids))

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
        which = (list(agents), None if queues is None else list(queues), now, list(closed))
        return await self._read(lambda reads: reads.ready(which, limit=limit, after=after))

    async def next_wake(self) -> int | None:
        return await self._read(lambda reads: reads.next_wake())

    async def blobs(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._read(lambda reads: reads.blobs(run_id, digests))

    # the user's own tables

    def transaction(self, landing: Landing) -> Borrowing:
        return Borrowing(landing, self._lending())

    async def landed(self, landing: Landing) -> str | None:
        return await self._at_home(self._lending().landed(landing))

    def _lending(self) -> Lender:
        self._writable()
        if self._lender is None:
            self._lender = Lender(self._target, self._queries)
        return self._lender

    # mail

    async def send(
        self, mail: Mail, *, wake: Wake, expected: int | None = None, decides: tuple[QuestionState, str] | None = None
    ) -> Sent:
        delivery = Delivery(mail, wake, expected, decides)
        sent: Sent = await self._submit(lambda future: PostOp(delivery, future, SEND_POINTS))
        return sent

    async def mail(self, run_id: RunId, *, after: int) -> list[Mail]:
        return await self._read(lambda reads: reads.mail(run_id, after))

    async def queue_counts(self, queues: Sequence[str]) -> dict[str, dict[Status, int]]:
        return await self._read(lambda reads: reads.queue_counts(queues))

    async def mail_counts(self, owner: WorkerId) -> dict[RunId, tuple[int, int]]:
        return await self._read(lambda reads: reads.mail_counts(owner))

    # questions

    async def open_question(self, question: QuestionRow, *, fence: Fence | None = None) -> QuestionRow:
        stored: QuestionRow = await self._write(
            lambda connection, _: apply.open_question(connection, self._queries, question, fence), _QUESTION_POINTS
        )
        return stored

    async def close_question(
        self, run_id: RunId, key: str, state: QuestionState, at: int, *, fence: Fence | None = None
    ) -> QuestionRow | None:
        stored: QuestionRow | None = await self._write(
            lambda connection, _: apply.close_question(connection, self._queries, run_id, key, state, at, fence),
            _QUESTION_POINTS,
        )
        return stored

    async def questions(
        self, *, run_id: RunId | None = None, id_prefix: str | None = None, only_open: bool = True, limit: int = 200
    ) -> list[QuestionRow]:
        return await self._read(
            lambda reads: reads.questions(run_id=run_id, id_prefix=id_prefix, only_open=only_open, limit=limit)
        )

    # what workers share by name

    async def define(self, definitions: Sequence[Definition], *, within: Any = None) -> list[bool]:
        if within is not None:
            return await define_within(within, self._queries, self._live().channel, definitions)
        won: list[bool] = await self._write(
            lambda connection, again: apply.define(connection, self._queries, definitions, again=again), _DEFINE_POINTS
        )
        return won

    async def definitions(
        self, kind: str, *, names: Sequence[str] | None = None, due: int | None = None, limit: int = 10_000
    ) -> list[Definition]:
        return await self._read(lambda reads: reads.definitions(kind, names=names, due=due, limit=limit))

    async def forget(self, kind: str, names: Sequence[str], *, bodies: Sequence[str] | None = None) -> None:
        await self._write(
            lambda connection, _: apply.forget(connection, self._queries, kind, names, bodies), _DEFINE_POINTS
        )

    # news

    def _ring_all(self) -> None:
        self._news.ring()
        if self._session is not None:
            self._session.ring()

    def ring(self) -> None:
        self._check_usable()
        if self._writer is not None:
            self._ring_all()

    async def changed(self, timeout_s: float) -> bool:
        self._check_usable()
        if self._readers is None:
            raise StoreError(f"{self.url} is not open.")
        return await self._news.changed(timeout_s)

    def serve(self, worker_id: WorkerId, deliver: Callable[[Mail], None]) -> None:
        self._carrier.serve(worker_id, deliver)

    # workers

    async def add_worker(self, worker: Worker) -> None:
        self._writable()
        await self._live().add_worker(worker)

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        return await self._live().renew_worker(worker_id, lease_until_ms)

    async def remove_worker(self, worker_id: WorkerId) -> None:
        self._carrier.leave(worker_id)
        await self._live().remove_worker(worker_id)

    async def workers(self) -> list[Worker]:
        return await self._read(lambda reads: reads.workers())

    async def dead_workers(self) -> dict[WorkerId, str]:
        now_us = clock.monotonic_us()
        dead, wait_us = await self._look_at_workers(now_us)
        if 0 < wait_us <= _SHORT_US:
            await asyncio.sleep(wait_us / 1e6)
            dead, _ = await self._look_at_workers(now_us + wait_us)
        if "session" in dead.values():
            await self._look_for_processes(dead)
        return dict.fromkeys(await self._read(lambda reads: reads.ownerless()), "gone") | dead

    async def _look_for_processes(self, dead: dict[WorkerId, str]) -> None:
        """A lost session may be a lost network. On this machine it can be seen whether the process is gone as well."""
        for worker in await self.workers():
            is_here = (worker.host, worker.boot_id or None) == (platform.node(), clock.boot_id())
            if dead.get(worker.id) == "session" and is_here and not _is_process(worker.pid):
                dead[worker.id] = "lock"

    async def _look_at_workers(self, now_us: int) -> tuple[dict[WorkerId, str], int]:
        lease_us = int(self.settings.lease_s * 1e6)
        session = self._live()
        found = await self._read(lambda reads: reads.lives(lease_us))
        is_settled = session.connected_us() >= lease_us
        return self._lives.judge(found, own=session.own, now_us=now_us, is_settled=is_settled)

    def lease_clock_ms(self) -> int:
        """The database's clock, as far as it is known here; never behind it."""
        return self._clock_ms()

    def wall_clock_us(self) -> int:
        return self._clock_ms() * 1000

    # for doctor and verify

    async def check(self) -> list[Problem]:
        return await self._read(lambda reads: health.check(reads.connection, self._queries, self._target))

    async def statistics(self) -> dict[str, int | str]:
        found = await self._read(lambda reads: health.statistics(reads.connection, self._queries, self._target))
        if self.trouble is not None:
            found["trouble"] = self.trouble
        return found


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
