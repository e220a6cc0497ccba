"""Runs in one SQLite file: the default store, for one machine.

Write-ahead log with `synchronous=FULL`: what was acknowledged survives power loss. One thread writes
(`writer`), one thread reads with a connection of its own, in short transactions. The file, its lock files
(`<path>-workers/`) and what SQLite keeps next to it are readable by their owner only.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import apsw

from holdfast.base import clock
from holdfast.base.config import Settings, shared_group
from holdfast.base.telemetry import warn
from holdfast.errors import CorruptJournal, ForkedConnection, NoStore, StoreError, StoreReplaced, UsageError
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
from holdfast.store import forks, migrate
from holdfast.store.carrier import Carrier
from holdfast.store.contract import Acknowledge
from holdfast.store.home import AtHome
from holdfast.store.mailing import Delivery
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import lives, reads
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.bell import Bell
from holdfast.store.sqlite.errors import explain
from holdfast.store.sqlite.files import (
    check_not_inherited,
    check_ours,
    close_quietly,
    distrust_schema,
    mark_as_ours,
    only_read,
    prepare_file,
    prepare_folder,
    uri,
)
from holdfast.store.sqlite.guard import Held, check_alone, hold, leave_alone, watch_over
from holdfast.store.sqlite.health import Health
from holdfast.store.sqlite.identity import Identity
from holdfast.store.sqlite.lending import Lending, define_within
from holdfast.store.sqlite.locks import WorkerLocks
from holdfast.store.sqlite.lost import Past, check_count, check_past, check_there
from holdfast.store.sqlite.mail import deliver, tell
from holdfast.store.sqlite.marks import Mark
from holdfast.store.sqlite.ops import AppendOp, CallOp, CreateOp, SendOp
from holdfast.store.sqlite.owners import Owners
from holdfast.store.sqlite.retention import Retention
from holdfast.store.sqlite.side_thread import SideThread
from holdfast.store.sqlite.sweeps import Answers, Sweeps
from holdfast.store.sqlite.writer import CREATE_POINTS, SEND_POINTS, Writer

T = TypeVar("T")

_WRITING = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW  # the path has no links
_BUSY_MS = 30_000
_LOOK_US = 100_000
_CLAIM_POINTS = ("claim.before_commit", "claim.after_commit")
_QUESTION_POINTS = ("question.before_commit", "question.after_commit")
_DEFINE_POINTS = ("define.before_commit", "define.after_commit")


class SqliteStore(Sweeps, Retention, Health, AtHome):
    """A store in a SQLite file. See `holdfast.store.contract.Store` for what the methods promise."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        vfs: str | None = None,
        checkpoint_pages: int = 1000,
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise UsageError("A store needs a file: what is in memory does not survive the process. Use a path.")
        self.path = os.path.realpath(path)
        self.settings = settings or Settings()
        self._vfs = vfs  # for tests that simulate disks
        self._checkpoint_pages = checkpoint_pages  # of 4 KB; the log is moved into the file when it is this long
        self._queries = load_queries("sqlite")
        self._owners = Owners(shared_group(self.settings))
        self._locks = WorkerLocks(f"{self.path}-workers", self._owners)
        self._bell = Bell(os.path.join(self._locks.directory, "bell"), self._owners)
        self._carrier = Carrier()
        self._pid = os.getpid()
        self._writer: Writer | None = None
        self._reader: apsw.Connection | None = None
        self._identity: Identity | None = None
        self._held: Held | None = None
        self._look_at = 0
        self._answers = Answers()
        self._side: SideThread | None = None

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def trouble(self) -> str | None:
        """What the writer is waiting for or failed with, if anything: a full disk, a lock, an I/O error."""
        return self._writer.trouble if self._writer is not None else None

    @property
    def failure(self) -> StoreReplaced | None:
        """The files are not those that were opened, or were cut short: this store cannot go on."""
        return self._identity.failure if self._identity is not None else None

    # open and close

    async def open(self, *, read_only: bool = False) -> None:
        if self._reader is not None:
            raise UsageError(f"{self.path} is open already.")
        self._pid = os.getpid()
        self._answers = Answers()
        side = SideThread("holdfast-reader")
        loop = asyncio.get_running_loop()
        watch_over(self.path)
        try:
            await side.do(lambda: (self._open_to_read if read_only else self._open_to_write)(loop))
        except BaseException as error:
            leave_alone(self.path)
            side.stop()
            if isinstance(error, apsw.Error | OSError | UnicodeDecodeError):
                raise explain(error, self.path) from error
            raise
        self._side = side
        forks.register(self)
        atexit.register(self._stop_at_exit)

    def _open_to_write(self, loop: asyncio.AbstractEventLoop) -> None:
        prepare_folder(self.path, self._owners)
        with self._locks.opening(_BUSY_MS / 1000):
            check_there(self.path, self._locks.directory)
            prepare_file(self.path, self._owners)
            check_not_inherited(self.path)
            check_alone(self.path)
            check_ours(self.path)
            past = self._check_past()
            connection = self._connect()
            try:
                check_count(self.path, past, connection)
                mark_as_ours(connection, self.path)
                if connection.pragma("journal_mode", "wal") != "wal":
                    raise StoreError(
                        f"{self.path} is on a file system without shared memory, so it cannot have a write-ahead log. "
                        "Use a local disk."
                    )
                migrate.migrate(connection, self.path)
                connection.execute("BEGIN IMMEDIATE")  # makes sure that the log exists before its identity is taken
                connection.execute("COMMIT")
                with contextlib.ExitStack() as undo:
                    held = hold(self.path)
                    undo.callback(held.let_go)
                    self._owners.check(self.path, os.fstat(held.main))  # it may have been replaced since the first look
                    identity = Identity(self.path, held)
                    undo.callback(identity.close)
                    reader = self._connect()
                    undo.callback(close_quietly, reader, checkpoint=False)
                    undo.callback(held.loosen)
                    only_read(reader)
                    self._writer = Writer(
                        self.path,
                        self._connect,
                        identity=identity,
                        held=held,
                        mark=Mark(self._locks.directory, [each.file for each in past.marks], self._owners),
                        loop=loop,
                        ring=self._bell.ring,
                        carry=self._carrier.carry,
                        checkpoint_pages=self._checkpoint_pages,
                    )
                    undo.pop_all()
                self._reader, self._identity, self._held = reader, identity, held
                self._owners.tighten(self.path)
            finally:
                close_quietly(connection, checkpoint=False)
        self._bell.open(read_only=False)

    def _check_past(self) -> Past:
        return check_past(self.path, self._locks, lambda: self._connect_to_read("immutable=1"))

    def _open_to_read(self, loop: asyncio.AbstractEventLoop) -> None:
        if not os.path.isfile(self.path):
            raise NoStore(f"There is no store at {self.path}.")
        for problem in self._owners.foreign(self.path, self._locks.directory):
            warn("store.foreign", problem=problem)
        check_there(self.path, self._locks.directory)
        check_not_inherited(self.path)
        check_alone(self.path)
        check_ours(self.path)
        wal = f"{self.path}-wal"
        past = self._check_past()
        try:
            reader = self._connect_to_read("mode=ro")
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            if os.path.exists(wal) and os.stat(wal).st_size:
                raise StoreError(
                    f"{self.path} has a write-ahead log that cannot be read without write access to its directory "
                    f"{os.path.dirname(self.path)} ({error}). Open it once as a user who may write there, or copy "
                    "the file and its -wal to a directory of your own."
                ) from error
            reader = self._connect_to_read("immutable=1")  # no log, and none can be made: nobody writes
        try:
            check_count(self.path, past, reader)
        except BaseException:
            close_quietly(reader, checkpoint=False)
            raise
        self._reader, self._identity = reader, Identity(self.path, None)
        self._bell.open(read_only=True)

    def _connect_to_read(self, query: str) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
        connection = apsw.Connection(uri(self.path, query), flags=flags, vfs=self._vfs, statementcachesize=100)
        try:
            connection.set_busy_timeout(_BUSY_MS)
            only_read(connection)
            migrate.check_version(connection, self.path)
        except BaseException:
            close_quietly(connection, checkpoint=False)
            raise
        return connection

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(self.path, flags=_WRITING, vfs=self._vfs, statementcachesize=200)
        connection.set_busy_timeout(_BUSY_MS)
        connection.wal_autocheckpoint(0)
        distrust_schema(connection)
        for name, value in (
            ("synchronous", "full"),
            ("fullfsync", "on"),
            ("checkpoint_fullfsync", "on"),
            ("temp_store", "memory"),
            ("cache_size", -16_000),
        ):
            connection.pragma(name, value)
        return connection

    async def reach(self) -> None:
        trouble = self._writable().trouble
        if trouble is not None and self.failure is None:
            raise StoreError(trouble)

    async def close(self) -> None:
        if self._pid != os.getpid() or self._side is None:
            return
        side, self._side = self._side, None
        self._bell.close()
        try:
            await side.do(self._close)
        finally:
            side.stop()

    def _close(self) -> None:
        # The reader first: then the writer's checkpoint can empty the log, and its close remove it.
        reader, self._reader = self._reader, None
        if reader is not None:
            close_quietly(reader, checkpoint=False)
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()
        if self._identity is not None:
            self._identity.close()
        if self._held is not None:
            self._held.let_go()
            self._held = None
        leave_alone(self.path)
        self._locks.drop_all()
        atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        if self._pid == os.getpid() and self._writer is not None:
            self._writer.stop()

    def forked(self) -> None:
        if self._identity is not None and self._identity.file is not None and self._reader is not None:
            forks.inherit(self._identity.file)
        # Closing an inherited connection could delete the parent's log, so it must never be freed here.
        for connection in (self._reader, self._writer.connection if self._writer is not None else None):
            if connection is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    # ways to the writer and the reader

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedConnection(
                f"{self.path} was opened by process {self._pid}, and this is its forked child {os.getpid()}. "
                "Connect again in the child, or fork before connecting."
            )

    def _writable(self) -> Writer:
        self._check_usable()
        if self._writer is None:
            raise StoreError(f"{self.path} is {'not open' if self._reader is None else 'open read-only'}.")
        return self._writer

    async def _write(
        self, work: Callable[[Transaction, bool], T], points: tuple[str, str] = ("", ""), *, rings: bool = False
    ) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._writable().submit(CallOp(work, loop, future, points, rings))
        return await future

    def _reading(self) -> tuple[SideThread, Identity]:
        self._check_usable()
        if self._side is None or self._identity is None or self._reader is None:
            raise StoreError(f"{self.path} is not open.")
        return self._side, self._identity

    async def _read(self, work: Callable[[apsw.Connection], T], *, run_id: RunId | None = None) -> T:
        side, _ = self._reading()
        return await side.do(lambda: self._read_now(work, run_id))

    def _commits(self) -> bytes | None:
        return self._reading()[1].commits()

    def _check_files(self) -> None:
        now = clock.monotonic_us()
        if now >= self._look_at and self._identity is not None:
            self._identity.check()
            self._look_at = now + _LOOK_US

    def _read_now(self, work: Callable[[apsw.Connection], T], run_id: RunId | None) -> T:
        connection = self._reader
        if connection is None or self._identity is None:
            raise StoreError(f"{self.path} is closed.")
        self._check_files()
        try:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            self._identity.check()  # what was cut short reads as if it were damaged
            if run_id is None or not isinstance(error, apsw.CorruptError):
                raise explain(error, self.path) from error
            raise CorruptJournal(
                f"A page of {self.path} that belongs to run {run_id} is damaged ({error}).", run_id=run_id
            ) from error

    # runs

    async def create(self, append: Append, *, owner: WorkerId | None, fence: Fence | None = None) -> RunRow:
        def work(transaction: Transaction, again: bool) -> RunRow:
            transaction.check_fence(fence)
            if transaction.create(append, owner):
                return dataclasses.replace(append.row, owner=owner)
            stored = transaction.run(append.row.id)
            assert stored is not None
            return stored

        if fence is not None:
            return await self._write(work, CREATE_POINTS, rings=owner is None)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[RunRow] = loop.create_future()
        self._writable().submit(CreateOp(work, loop, future, CREATE_POINTS, owner is None, append, owner))
        return await future

    def create_inline(self, append: Append) -> bool:
        return self._writable().create_inline(append)

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
            return transaction.claim_many(claims, owner, limits or {}, again=again)

        return await self._write(work, _CLAIM_POINTS)

    def submit(self, append: Append, acknowledge: Acknowledge, *, urgent: bool) -> None:
        # Everything queued is committed at once, so what is not urgent gains nothing from waiting here.
        self._writable().submit(AppendOp(append, acknowledge))

    def commit_inline(self, append: Append) -> Applied | None:
        return Applied.committed if self._writable().append_inline(append) else None

    def submit_alone(self, append: Append, acknowledge: Acknowledge) -> Awaitable[None] | None:
        """Always declined: what cannot be committed inline is the writer's thread's."""
        return None

    async def amend(self, append: Append, *, seize: bool = False) -> bool:
        def work(transaction: Transaction, again: bool) -> bool:
            is_stored, is_new = transaction.amend(append, seize, again=again)
            if is_new and append.tell is not None:
                tell(transaction, append.tell)
            return is_stored

        is_heard = append.row.wake_at is not None or append.tell is not None
        return await self._write(work, ("amend.before_commit", "amend.after_commit"), rings=is_heard)

    async def quarantine(self, run_id: RunId, reason: str) -> None:
        await self._write(lambda transaction, _: transaction.quarantine(run_id, reason))

    # reads

    async def run(self, run_id: RunId) -> RunRow | None:
        return await self._read(lambda connection: reads.run(connection, run_id), run_id=run_id)

    async def runs(self, which: RunFilter) -> list[RunRow]:
        return await self._read(lambda connection: reads.runs(connection, which))

    async def records(self, run_id: RunId, *, after: int = 0) -> list[Record]:
        return await self._read(lambda connection: reads.records(connection, run_id, after), run_id=run_id)

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
        return await self._read(lambda connection: reads.load(connection, run_id), run_id=run_id)

    async def load_many(self, run_ids: Sequence[RunId]) -> list[Loaded]:
        return await self._read(lambda connection: reads.load_many(connection, run_ids))

    async def queue_counts(self, queues: Sequence[str]) -> dict[str, dict[Status, int]]:
        return await self._read(lambda connection: reads.queue_counts(connection, queues))

    async def blobs(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._read(lambda connection: reads.blobs(connection, run_id, digests), run_id=run_id)

    # the user's own tables

    def transaction(self, landing: Landing) -> Lending:
        return Lending(landing, self._writable().submit, self.settings.lease_s / 3)

    async def landed(self, landing: Landing) -> str | None:
        return await self._write(lambda transaction, _: transaction.landed(landing))

    # mail

    async def send(
        self, mail: Mail, *, wake: Wake, expected: int | None = None, decides: tuple[QuestionState, str] | None = None
    ) -> Sent:
        delivery = Delivery(mail, wake, expected, decides)

        def work(transaction: Transaction, again: bool) -> Sent:
            (sent,) = deliver(transaction, (delivery,), again=again)
            if isinstance(sent, Exception):
                raise sent
            return sent

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sent] = loop.create_future()
        self._writable().submit(SendOp(work, loop, future, SEND_POINTS, True, delivery))
        return await future

    async def mail(self, run_id: RunId, *, after: int) -> list[Mail]:
        return await self._read(lambda connection: reads.mail(connection, run_id, after), run_id=run_id)

    # questions

    async def open_question(self, question: QuestionRow, *, fence: Fence | None = None) -> QuestionRow:
        def work(transaction: Transaction, again: bool) -> QuestionRow:
            transaction.check_fence(fence)
            transaction.open_question(question)
            stored = transaction.question(question.run_id, question.key)
            assert stored is not None
            return stored

        return await self._write(work, _QUESTION_POINTS)

    async def close_question(
        self, run_id: RunId, key: str, state: QuestionState, at: int, *, fence: Fence | None = None
    ) -> QuestionRow | None:
        def work(transaction: Transaction, again: bool) -> QuestionRow | None:
            transaction.check_fence(fence)
            transaction.decide_question(run_id, key, state, at=at)
            return transaction.question(run_id, key)

        return await self._write(work, _QUESTION_POINTS)

    async def questions(
        self, *, run_id: RunId | None = None, id_prefix: str | None = None, only_open: bool = True, limit: int = 200
    ) -> list[QuestionRow]:
        return await self._read(
            lambda connection: reads.questions(
                connection, run_id=run_id, id_prefix=id_prefix, only_open=only_open, limit=limit
            )
        )

    # what workers share by name

    async def define(self, definitions: Sequence[Definition], *, within: Any = None) -> list[bool]:
        if within is not None:
            self._writable()
            return define_within(within, self.path, definitions)

        def work(transaction: Transaction, again: bool) -> list[bool]:
            return [transaction.define(definition, again=again) for definition in definitions]

        return await self._write(work, _DEFINE_POINTS)

    async def forget(self, kind: str, names: Sequence[str], *, bodies: Sequence[str] | None = None) -> None:
        await self._write(lambda transaction, _: transaction.forget(kind, names, bodies), _DEFINE_POINTS)

    # news

    def ring(self) -> None:
        self._check_usable()
        self._bell.ring()

    async def changed(self, timeout_s: float) -> bool:
        self._check_usable()
        if self._side is None:
            raise StoreError(f"{self.path} is not open.")
        return await self._bell.changed(timeout_s)

    def serve(self, worker_id: WorkerId, deliver: Callable[[Mail], None]) -> None:
        self._carrier.serve(worker_id, deliver)

    # workers

    async def add_worker(self, worker: Worker) -> None:
        self._writable()
        try:
            inode = self._locks.take(worker.id)
        except OSError as error:
            raise explain(error, self._locks.directory) from error
        await self._write(lambda transaction, again: lives.add(transaction, worker, inode, again=again))

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        return await self._write(lambda transaction, _: transaction.renew_worker(worker_id, lease_until_ms))

    async def remove_worker(self, worker_id: WorkerId) -> None:
        self._carrier.leave(worker_id)
        await self._write(lambda transaction, _: lives.remove(transaction, worker_id))
        self._locks.drop(worker_id)

    async def workers(self) -> list[Worker]:
        return await self._read(reads.workers)

    def lease_clock_ms(self) -> int:
        return clock.boottime_ms()

    def wall_clock_us(self) -> int:
        return clock.now_us()
