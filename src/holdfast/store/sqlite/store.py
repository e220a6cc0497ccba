"""Runs in one SQLite file: the default store, for one machine.

Write-ahead log with `synchronous=FULL`: what was acknowledged survives power loss. One thread writes
(`writer`), one thread reads with a connection of its own, in short transactions. The file, its lock files
(`<path>-workers/`) and what SQLite keeps next to it are readable by their owner only.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.base import clock
from holdfast.base.config import Settings
from holdfast.errors import StoreError, StoreReplaced
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
from holdfast.store.problems import Problem
from holdfast.store.sqlite import liveness, reads
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.chunks import SqliteFiles
from holdfast.store.sqlite.claims import claim_many
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.errors import explain
from holdfast.store.sqlite.health import DURABILITY, Health
from holdfast.store.sqlite.mail import accept_mail, accept_with_appends
from holdfast.store.sqlite.ops import AppendOp, CreateOp, SendOp
from holdfast.store.sqlite.retention import SqliteRetention
from holdfast.store.sqlite.surveys import SqliteSurveys
from holdfast.store.sqlite.sweeps import Sweeps
from holdfast.store.sqlite.threads import SqliteThreads
from holdfast.store.sqlite.user_transactions import SqliteUserTransaction, define_within
from holdfast.store.sqlite.writer import CREATE_POINTS, SEND_POINTS

_COMMITTED = Applied.committed  # looked up once: on Python 3.11 that takes as long as a small function
_CLAIM_POINTS = ("claim.before_commit", "claim.after_commit")
_QUESTION_POINTS = ("question.before_commit", "question.after_commit")
_DEFINE_POINTS = ("define.before_commit", "define.after_commit")


class SqliteStore:
    """A store in a SQLite file. See `holdfast.store.contract.Store` for what the methods promise."""

    durability = DURABILITY

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        vfs: str | None = None,
        checkpoint_pages: int = 1000,
    ) -> None:
        self.home: Home | None = None
        self.settings = settings or Settings()
        self._carrier = Carrier()
        self._database = Database(
            path,
            settings=self.settings,
            vfs=vfs,
            checkpoint_pages=checkpoint_pages,
            carry=self._carrier.carry,
        )
        self.path = self._database.path
        self._sweeps = Sweeps(self._database)
        self._retention = SqliteRetention(self._database)
        self._threads = SqliteThreads(self._database)
        self._files = SqliteFiles(self._database)
        self._health = Health(self._database)
        self.surveys = SqliteSurveys(self._database)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def trouble(self) -> str | None:
        return self._database.trouble

    @property
    def failure(self) -> StoreReplaced | None:
        return self._database.failure

    async def open(self, *, read_only: bool = False) -> None:
        self._sweeps.forget()
        await self._database.open(read_only=read_only)

    async def close(self) -> None:
        await self._database.close()

    async def reach(self) -> None:
        trouble = self._database.writable().trouble
        if trouble is not None and self.failure is None:
            raise StoreError(trouble)

    # runs

    async def create(
        self, append: Append, *, owner: WorkerId | None, fence: Fence | None = None, act: Act | None = None
    ) -> RunRow:
        def work(transaction: Transaction, again: bool) -> RunRow:
            transaction.check_fence(fence)
            if transaction.create(append, owner):
                transaction.add_act(act)
                return dataclasses.replace(append.row, owner=owner)
            stored = transaction.run(append.row.id)
            assert stored is not None
            return stored

        if fence is not None or act is not None:
            return await self._database.write(work, CREATE_POINTS, rings=owner is None)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[RunRow] = loop.create_future()
        self._database.writable().submit(CreateOp(work, loop, future, CREATE_POINTS, owner is None, append, owner))
        return await future

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
        return (await self.claim_many([claim], owner=owner, limits=limits))[0]

    async def claim_many(
        self, claims: Sequence[Claim], *, owner: WorkerId, limits: Mapping[str, Limit] | None = None
    ) -> list[bool]:
        def work(transaction: Transaction, again: bool) -> list[bool]:
            return claim_many(transaction, claims, owner=owner, limits=limits or {}, again=again)

        return await self._database.write(work, _CLAIM_POINTS)

    def submit(self, append: Append, acknowledge: Acknowledge, *, urgent: bool) -> None:
        # Everything queued is committed at once, so what is not urgent gains nothing from waiting here.
        (self._database.writer or self._database.writable()).submit(AppendOp(append, acknowledge))

    def commit_alone(self, append: Append, acknowledge: Acknowledge) -> bool:
        """On this thread, or declined: what cannot be committed here and now is the writer's thread's."""
        if not (self._database.writer or self._database.writable()).commit_alone(append):
            return False
        acknowledge(_COMMITTED)
        return True

    async def amend(self, append: Append, *, seize: bool = False, act: Act | None = None) -> bool:
        def work(transaction: Transaction, again: bool) -> bool:
            is_stored, is_new = transaction.amend(append, seize, again=again)
            if is_new:
                transaction.add_act(act)
            if is_new and append.outgoing is not None:
                accept_with_appends(transaction, [append.outgoing])
            return is_stored

        is_heard = append.row.wake_at is not None or append.outgoing is not None
        return await self._database.write(work, ("amend.before_commit", "amend.after_commit"), rings=is_heard)

    async def quarantine(self, run_id: RunId, reason: str) -> None:
        await self._database.write(lambda transaction, _: transaction.quarantine(run_id, reason))

    # reads

    async def run(self, run_id: RunId) -> RunRow | None:
        return await self._database.read(lambda connection: reads.run(connection, run_id), run_id=run_id)

    async def runs(self, which: RunFilter) -> list[RunRow]:
        return await self._database.read(lambda connection: reads.runs(connection, which))

    async def records(self, run_id: RunId, *, after: int = 0, limit: int | None = None) -> list[Record]:
        return await self._database.read(
            lambda connection: reads.records(connection, run_id, after, limit=limit), run_id=run_id
        )

    async def checkpoints(
        self, run_id: RunId, *, turn: int | None = None, after: int = 0, limit: int = 1000
    ) -> list[tuple[Record, bytes]]:
        key = None if turn is None else f"@{turn}"
        return await self._database.read(
            lambda connection: reads.checkpoints(connection, run_id, key, after=after, limit=limit), run_id=run_id
        )

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
        return await self._database.read(lambda connection: reads.load(connection, run_id), run_id=run_id)

    async def load_many(self, run_ids: Sequence[RunId]) -> list[Loaded]:
        return await self._database.read(lambda connection: reads.load_many(connection, run_ids))

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
        return await self._sweeps.ready(agents=agents, queues=queues, now=now, limit=limit, after=after, closed=closed)

    async def next_wake(self) -> int | None:
        return await self._sweeps.next_wake()

    async def family_use(self, owner: RunId, asks: RunId) -> FamilyUse:
        return await self._database.read(lambda connection: reads.family_use(connection, owner, asks))

    async def queue_counts(self, queues: Sequence[str]) -> dict[str, dict[Status, int]]:
        return await self._database.read(lambda connection: reads.queue_counts(connection, queues))

    async def blobs(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._database.read(lambda connection: reads.blobs(connection, run_id, digests), run_id=run_id)

    # the user's own tables

    def transaction(self, landing: Landing) -> SqliteUserTransaction:
        return SqliteUserTransaction(landing, self._database.writable().submit, self.settings.lease_s / 3)

    async def landed(self, landing: Landing) -> str | None:
        return await self._database.write(lambda transaction, _: transaction.landed(landing))

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

        def work(transaction: Transaction, again: bool) -> Sent:
            (sent,) = accept_mail(transaction, [outgoing], again=again)
            if isinstance(sent, Exception):
                raise sent
            return sent

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sent] = loop.create_future()
        self._database.writable().submit(SendOp(work, loop, future, SEND_POINTS, True, outgoing))
        return await future

    async def mail(self, run_id: RunId, *, after: int, limit: int | None = None) -> list[Mail]:
        return await self._database.read(
            lambda connection: reads.mail(connection, run_id, after, limit=limit), run_id=run_id
        )

    async def mail_of_numbers(self, run_id: RunId, numbers: Sequence[int]) -> list[Mail]:
        return await self._database.read(
            lambda connection: reads.mail_of_numbers(connection, run_id, numbers), run_id=run_id
        )

    async def mail_counts(self, owner: WorkerId) -> dict[RunId, tuple[int, int]]:
        return await self._sweeps.mail_counts(owner)

    # questions

    async def open_question(self, question: QuestionRow, *, fence: Fence | None = None) -> QuestionRow:
        def work(transaction: Transaction, again: bool) -> QuestionRow:
            transaction.check_fence(fence)
            transaction.open_question(question)
            stored = transaction.question(question.run_id, question.key)
            assert stored is not None
            return stored

        return await self._database.write(work, _QUESTION_POINTS)

    async def close_question(
        self, run_id: RunId, key: str, state: QuestionState, at: int, *, fence: Fence | None = None
    ) -> QuestionRow | None:
        def work(transaction: Transaction, again: bool) -> QuestionRow | None:
            transaction.check_fence(fence)
            transaction.decide_question(run_id, key, state, at=at)
            return transaction.question(run_id, key)

        return await self._database.write(work, _QUESTION_POINTS)

    async def questions(
        self, *, run_id: RunId | None = None, id_prefix: str | None = None, only_open: bool = True, limit: int = 200
    ) -> list[QuestionRow]:
        return await self._database.read(
            lambda connection: reads.questions(
                connection, run_id=run_id, id_prefix=id_prefix, only_open=only_open, limit=limit
            )
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
            self._database.writable()
            return define_within(within, self.path, definitions)

        def work(transaction: Transaction, again: bool) -> list[bool]:
            # Of an earlier commit that may have succeeded: what it wrote is there, and the act with it.
            was_written = again and all(transaction.is_defined(definition) for definition in definitions)
            written = transaction.define_all(definitions, again=again, guarded=guarded)
            transaction.add_act(act if any(written) and not was_written else None)
            return written

        return await self._database.write(work, _DEFINE_POINTS)

    async def definitions(
        self, kind: str, *, names: Sequence[str] | None = None, due: int | None = None, limit: int = 10_000
    ) -> list[Definition]:
        return await self._sweeps.definitions(kind, names=names, due=due, limit=limit)

    async def forget(
        self, kind: str, names: Sequence[str], *, bodies: Sequence[str] | None = None, act: Act | None = None
    ) -> None:
        def work(transaction: Transaction, again: bool) -> None:
            if transaction.forget(kind, names, bodies):
                transaction.add_act(act)

        await self._database.write(work, _DEFINE_POINTS)

    async def add_act(self, act: Act) -> None:
        await self._database.write(lambda transaction, _: transaction.add_act(act), _DEFINE_POINTS)

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
        self._database.bell.ring()

    async def changed(self, timeout_s: float) -> bool:
        self._database.check_usable()
        if not self._database.is_open:
            raise StoreError(f"{self.path} is not open.")
        return await self._database.bell.changed(timeout_s)

    def serve(self, worker_id: WorkerId, deliver: Callable[[Mail], None]) -> None:
        self._carrier.serve(worker_id, deliver)

    # workers

    async def add_worker(self, worker: Worker) -> None:
        self._database.writable()
        try:
            inode = self._database.locks.take(worker.id)
        except OSError as error:
            raise explain(error, self._database.locks.directory) from error
        await self._database.write(lambda transaction, again: liveness.add(transaction, worker, inode, again=again))

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        return await self._database.write(lambda transaction, _: liveness.renew(transaction, worker_id, lease_until_ms))

    async def remove_worker(self, worker_id: WorkerId) -> None:
        self._carrier.leave(worker_id)
        await self._database.write(lambda transaction, _: liveness.remove(transaction, worker_id))
        self._database.locks.drop(worker_id)

    async def workers(self) -> list[Worker]:
        return await self._database.read(reads.workers)

    async def dead_workers(self) -> dict[WorkerId, Proof]:
        return await self._sweeps.dead_workers()

    def lease_clock_ms(self) -> int:
        return clock.boottime_ms()

    def wall_clock_us(self) -> int:
        return clock.now_us()

    # for doctor, verify, migrate and backup

    async def check(self) -> list[Problem]:
        return await self._health.check()

    async def statistics(self) -> dict[str, int | str]:
        return await self._health.statistics()

    async def largest(self, limit: int) -> list[tuple[RunId, int, int]]:
        return await self._health.largest(limit)

    async def schema(self) -> list[SchemaStep]:
        return await self._retention.schema()

    def known_schema(self) -> list[SchemaStep]:
        return self._retention.known_schema()

    async def backup(self, path: str) -> int:
        return await self._retention.backup(path)
