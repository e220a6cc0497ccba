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
import os
import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from holdfast.base import clock
from holdfast.base.config import Settings
from holdfast.errors import StoreError
from holdfast.model import (
    Act,
    Append,
    Applied,
    Claim,
    Definition,
    Ended,
    Fence,
    Landing,
    Limit,
    Loaded,
    Mail,
    Message,
    Outgoing,
    Proof,
    QuestionRow,
    QuestionState,
    Record,
    Removal,
    RunFilter,
    RunId,
    RunRow,
    Said,
    Saying,
    SchemaStep,
    Sent,
    Status,
    ThreadId,
    ThreadRow,
    Wake,
    Whole,
    Worker,
    WorkerId,
)
from holdfast.model.budgets import FamilyUse
from holdfast.store.carrier import Carrier
from holdfast.store.contract import Acknowledge
from holdfast.store.home import Home
from holdfast.store.postgres import apply, health
from holdfast.store.postgres.chunks import PostgresFiles
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.liveness import Liveness
from holdfast.store.postgres.locks import QueueLocks
from holdfast.store.postgres.mail import MailingAppend
from holdfast.store.postgres.ops import AppendOp, CreateOp, MailOp
from holdfast.store.postgres.retention import PostgresRetention
from holdfast.store.postgres.surveys import PostgresSurveys
from holdfast.store.postgres.threads import PostgresThreads
from holdfast.store.postgres.user_transactions import PostgresUserTransaction, define_within
from holdfast.store.postgres.writer import AMEND_POINTS, CREATE_POINTS, SEND_POINTS
from holdfast.store.problems import Problem

_CLAIM_POINTS = ("claim.before_commit", "claim.after_commit")
_QUESTION_POINTS = ("question.before_commit", "question.after_commit")
_DEFINE_POINTS = ("define.before_commit", "define.after_commit")
_SHORT_US = 60_000  # a second look at missing sessions is waited for, if it is this near


class PostgresStore:
    """A store in a PostgreSQL database. See `holdfast.store.contract.Store` for what the methods promise."""

    def __init__(self, url: str, *, settings: Settings | None = None) -> None:
        self.home: Home | None = None
        self.settings = settings or Settings()
        self._carrier = Carrier()
        self._database = Database(url, carry=self._carrier.carry)
        self._queries = self._database.queries
        self._liveness = Liveness()
        self._queue_locks = QueueLocks(self._database.target.schema)
        self._retention = PostgresRetention(self._database)
        self.surveys = PostgresSurveys(self._database)
        self._threads = PostgresThreads(self._database)
        self._files = PostgresFiles(self._database)

    @property
    def url(self) -> str:
        """Without the password."""
        return self._database.target.shown

    @property
    def durability(self) -> str:
        return self._database.durability

    @property
    def trouble(self) -> str | None:
        return self._database.trouble

    @property
    def failure(self) -> StoreError | None:
        return None  # a server comes back

    async def open(self, *, read_only: bool = False) -> None:
        await self._database.open(read_only=read_only)

    async def close(self) -> None:
        await self._database.close()

    async def reach(self) -> None:
        await self._database.reach()

    # runs

    async def create(
        self, append: Append, *, owner: WorkerId | None, fence: Fence | None = None, act: Act | None = None
    ) -> RunRow:
        if act is not None:
            created: RunRow = await self._database.write(
                lambda connection, _: apply.create_by(connection, self._queries, append, owner=owner, act=act),
                CREATE_POINTS,
            )
            if owner is None:
                self.ring()
            return created
        row: RunRow = await self._database.submit(lambda future: CreateOp(append, owner, fence, future))
        return row

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

        return bool(await self._database.write(work, _CLAIM_POINTS))

    async def claim_many(
        self, claims: Sequence[Claim], *, owner: WorkerId, limits: Mapping[str, Limit] | None = None
    ) -> list[bool]:
        async def work(connection: Any, again: bool) -> list[bool]:
            found = await apply.claim_many(
                connection, self._queries, claims, owner, limits=limits or {}, waits=False, again=again
            )
            return await self._queue_locks.settle(connection, self._queries, claims, found)

        won: list[bool] = await self._database.write(work, _CLAIM_POINTS)
        return won

    def submit(self, append: Append, acknowledge: Acknowledge, *, urgent: bool) -> None:
        # What is not urgent shares the next call anyway, if one is under way.
        self._database.writable().submit(AppendOp(append, acknowledge))

    def commit_alone(self, append: Append, acknowledge: Acknowledge) -> Awaitable[None] | bool:
        return self._database.writable().commit_alone(append, acknowledge)

    async def amend(self, append: Append, *, seize: bool = False, act: Act | None = None) -> bool:
        amendment = MailingAppend(append, seize, act)
        outcome = await self._database.submit(lambda future: MailOp(amendment, future, AMEND_POINTS))
        return outcome is Applied.committed

    async def quarantine(self, run_id: RunId, reason: str) -> None:
        await self._database.write(lambda connection, _: apply.quarantine(connection, self._queries, run_id, reason))

    # reads

    async def run(self, run_id: RunId) -> RunRow | None:
        return await self._database.read(lambda reads: reads.run(run_id))

    async def runs(self, which: RunFilter) -> list[RunRow]:
        return await self._database.read(lambda reads: reads.runs(which))

    async def records(self, run_id: RunId, *, after: int = 0, limit: int | None = None) -> list[Record]:
        return await self._database.read(lambda reads: reads.records(run_id, after, limit))

    async def checkpoints(
        self, run_id: RunId, *, turn: int | None = None, after: int = 0, limit: int = 1000
    ) -> list[tuple[Record, bytes]]:
        key = None if turn is None else f"@{turn}"
        return await self._database.read(lambda reads: reads.checkpoints(run_id, key, after=after, limit=limit))

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
        return await self._database.read(lambda reads: reads.load(run_id))

    async def load_many(self, run_ids: Sequence[RunId]) -> list[Loaded]:
        return await self._database.read(lambda reads: reads.load_many(run_ids))

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
        return await self._database.read(lambda reads: reads.ready(which, limit=limit, after=after))

    async def next_wake(self) -> int | None:
        return await self._database.read(lambda reads: reads.next_wake())

    async def blobs(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._database.read(lambda reads: reads.blobs(run_id, digests))

    # the user's own tables

    def transaction(self, landing: Landing) -> PostgresUserTransaction:
        return PostgresUserTransaction(landing, self._database.user_connections())

    async def landed(self, landing: Landing) -> str | None:
        return await self._database.at_home(self._database.user_connections().landed(landing))

    # mail

    async def send(
        self,
        mail: Mail,
        *,
        wake: Wake,
        expected: int | None = None,
        decides: tuple[QuestionState, str] | None = None,
        act: Act | None = None,
    ) -> Sent:
        outgoing = Outgoing(mail, wake, expected, decides, act)
        sent: Sent = await self._database.submit(lambda future: MailOp(outgoing, future, SEND_POINTS))
        return sent

    async def mail(self, run_id: RunId, *, after: int, limit: int | None = None) -> list[Mail]:
        return await self._database.read(lambda reads: reads.mail(run_id, after, limit))

    async def family_use(self, owner: RunId, asks: RunId) -> FamilyUse:
        return await self._database.read(lambda reads: reads.family_use(owner, asks))

    async def mail_of_numbers(self, run_id: RunId, numbers: Sequence[int]) -> list[Mail]:
        return await self._database.read(lambda reads: reads.mail_of_numbers(run_id, numbers))

    async def queue_counts(self, queues: Sequence[str]) -> dict[str, dict[Status, int]]:
        return await self._database.read(lambda reads: reads.queue_counts(queues))

    async def mail_counts(self, owner: WorkerId) -> dict[RunId, tuple[int, int]]:
        return await self._database.read(lambda reads: reads.mail_counts(owner))

    # questions

    async def open_question(self, question: QuestionRow, *, fence: Fence | None = None) -> QuestionRow:
        stored: QuestionRow = await self._database.write(
            lambda connection, _: apply.open_question(connection, self._queries, question, fence), _QUESTION_POINTS
        )
        return stored

    async def close_question(
        self, run_id: RunId, key: str, state: QuestionState, at: int, *, fence: Fence | None = None
    ) -> QuestionRow | None:
        stored: QuestionRow | None = await self._database.write(
            lambda connection, _: apply.close_question(connection, self._queries, run_id, key, state, at, fence),
            _QUESTION_POINTS,
        )
        return stored

    async def questions(
        self, *, run_id: RunId | None = None, id_prefix: str | None = None, only_open: bool = True, limit: int = 200
    ) -> list[QuestionRow]:
        return await self._database.read(
            lambda reads: reads.questions(run_id=run_id, id_prefix=id_prefix, only_open=only_open, limit=limit)
        )

    # threads

    async def say(self, saying: Saying, *, fence: Fence | None = None) -> Said:
        return await self._threads.say(saying, fence=fence)

    async def thread(self, thread_id: ThreadId) -> ThreadRow | None:
        return await self._threads.thread(thread_id)

    async def threads(self, *, id_prefix: str = "", after: str = "", limit: int = 200) -> list[ThreadRow]:
        return await self._threads.threads(id_prefix=id_prefix, after=after, limit=limit)

    async def messages(
        self, thread_id: ThreadId, *, after: int = 0, upto: int | None = None, limit: int = 1000, newest: bool = False
    ) -> list[Message]:
        return await self._threads.messages(thread_id, after=after, upto=upto, limit=limit, newest=newest)

    async def idle_threads(self, *, before: int, strays: bool, limit: int) -> list[ThreadId]:
        return await self._threads.idle_threads(before=before, strays=strays, limit=limit)

    async def forget_thread(self, thread_id: ThreadId, *, before: int, strays: bool) -> bool:
        return await self._threads.forget_thread(thread_id, before=before, strays=strays)

    async def put_messages(self, messages: Sequence[Message], row: ThreadRow) -> bool:
        return await self._threads.put_messages(messages, row)

    # what workers share by name

    async def define(
        self, definitions: Sequence[Definition], *, within: Any = None, act: Act | None = None, guarded: bool = False
    ) -> list[bool]:
        if within is not None:
            return await define_within(within, self._queries, self._database.live().channel, definitions)
        work = apply.define if not guarded else apply.define_guarded
        won: list[bool] = await self._database.write(
            lambda connection, again: work(connection, self._queries, definitions, again=again, act=act), _DEFINE_POINTS
        )
        return won

    async def definitions(
        self, kind: str, *, names: Sequence[str] | None = None, due: int | None = None, limit: int = 10_000
    ) -> list[Definition]:
        return await self._database.read(lambda reads: reads.definitions(kind, names=names, due=due, limit=limit))

    async def forget(
        self, kind: str, names: Sequence[str], *, bodies: Sequence[str] | None = None, act: Act | None = None
    ) -> None:
        await self._database.write(
            lambda connection, _: apply.forget(connection, self._queries, kind, names, bodies=bodies, act=act),
            _DEFINE_POINTS,
        )

    async def add_act(self, act: Act) -> None:
        await self._database.write(lambda connection, _: apply.noted(connection, self._queries, act), _DEFINE_POINTS)

    # files

    async def put_chunks(self, run_id: RunId, chunks: Mapping[str, bytes], *, fence: Fence | None) -> None:
        await self._files.put_chunks(run_id, chunks, fence=fence)

    async def known_chunks(self, run_id: RunId, digests: Sequence[str]) -> set[str]:
        return await self._files.known_chunks(run_id, digests)

    async def chunks(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._files.chunks(run_id, digests)

    async def drop_chunks(self, run_id: RunId) -> None:
        await self._files.drop_chunks(run_id)

    async def chunk_page(self, run_id: RunId, *, after: str, limit: int) -> list[str]:
        return await self._files.chunk_page(run_id, after=after, limit=limit)

    async def notes(self, run_id: RunId, name: str, *, digest: str | None = None) -> list[Record]:
        return await self._files.notes(run_id, name, digest=digest)

    # what is removed, and what is taken elsewhere

    async def ended(
        self, agent: str, *, before: int, limit: int, after: tuple[int, RunId] | None = None
    ) -> list[Ended]:
        return await self._retention.ended(agent, before=before, limit=limit, after=after)

    async def ended_agents(self) -> list[str]:
        return await self._retention.ended_agents()

    async def prune(self, tombstones: Sequence[RunRow], *, before: int | None, most: int, now: int) -> list[Removal]:
        return await self._retention.prune(tombstones, before=before, most=most, now=now)

    async def tombstones(
        self, *, before: int, limit: int, agent: str | None = None, after: RunId | None = None
    ) -> list[RunRow]:
        return await self._retention.tombstones(before=before, limit=limit, agent=agent, after=after)

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        return await self._retention.forget_runs(run_ids)

    async def whole(self, run_id: RunId, *, bare: bool = False) -> Whole | None:
        return await self._retention.whole(run_id, bare=bare)

    async def put(self, whole: Whole, *, instead_of: RunRow | None = None, act: Act | None = None) -> RunRow:
        return await self._retention.put(whole, instead_of=instead_of, act=act)

    # news

    def ring(self) -> None:
        self._database.check_usable()
        if self._database.writer is not None:
            self._database.ring()

    async def changed(self, timeout_s: float) -> bool:
        self._database.check_usable()
        if not self._database.is_open:
            raise StoreError(f"{self.url} is not open.")
        return await self._database.news.changed(timeout_s)

    def serve(self, worker_id: WorkerId, deliver: Callable[[Mail], None]) -> None:
        self._carrier.serve(worker_id, deliver)

    # workers

    async def add_worker(self, worker: Worker) -> None:
        self._database.writable()
        await self._database.live().add_worker(worker)

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        return await self._database.live().renew_worker(worker_id, lease_until_ms)

    async def remove_worker(self, worker_id: WorkerId) -> None:
        self._carrier.leave(worker_id)
        await self._database.live().remove_worker(worker_id)

    async def workers(self) -> list[Worker]:
        return await self._database.read(lambda reads: reads.workers())

    async def dead_workers(self) -> dict[WorkerId, Proof]:
        now_us = clock.monotonic_us()
        dead, wait_us = await self._look_at_workers(now_us)
        if 0 < wait_us <= _SHORT_US:
            await asyncio.sleep(wait_us / 1e6)
            dead, _ = await self._look_at_workers(now_us + wait_us)
        if Proof.session in dead.values():
            await self._look_for_processes(dead)
        return dict.fromkeys(await self._database.read(lambda reads: reads.ownerless()), Proof.gone) | dead

    async def _look_for_processes(self, dead: dict[WorkerId, Proof]) -> None:
        """A lost session may be a lost network. On this machine it can be seen whether the process is gone as well."""
        for worker in await self.workers():
            is_here = (worker.host, worker.boot_id or None) == (platform.node(), clock.boot_id())
            if dead.get(worker.id) is Proof.session and is_here and not _is_process(worker.pid):
                dead[worker.id] = Proof.lock

    async def _look_at_workers(self, now_us: int) -> tuple[dict[WorkerId, Proof], int]:
        lease_us = int(self.settings.lease_s * 1e6)
        session = self._database.live()
        found = await self._database.read(lambda reads: reads.worker_signs(lease_us))
        is_settled = session.connected_us() >= lease_us
        return self._liveness.judge(found, own=session.own, now_us=now_us, is_settled=is_settled)

    def lease_clock_ms(self) -> int:
        """The database's clock, as far as it is known here; never behind it."""
        return self._database.clock_ms()

    def wall_clock_us(self) -> int:
        return self._database.clock_ms() * 1000

    # for doctor, verify, migrate and backup

    async def check(self) -> list[Problem]:
        return await self._database.read(
            lambda reads: health.check(reads.connection, self._queries, self._database.target)
        )

    async def largest(self, limit: int) -> list[tuple[RunId, int, int]]:
        return await self._database.read(lambda reads: health.largest(reads.connection, self._queries, limit))

    async def statistics(self) -> dict[str, int | str]:
        found = await self._database.read(
            lambda reads: health.statistics(reads.connection, self._queries, self._database.target)
        )
        if self.trouble is not None:
            found["trouble"] = self.trouble
        return found

    async def schema(self) -> list[SchemaStep]:
        return await self._retention.schema()

    def known_schema(self) -> list[SchemaStep]:
        return self._retention.known_schema()

    async def backup(self, path: str) -> int:
        return await self._retention.backup(path)


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
