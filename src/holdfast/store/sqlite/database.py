"""An open SQLite file: its connections, locks and writer, and the ways to them for the parts of a store."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import TypeVar

import apsw

from holdfast.base import clock
from holdfast.base.config import Settings, shared_group
from holdfast.base.telemetry import warn
from holdfast.errors import CorruptJournal, NoStore, StoreError, StoreReplaced, UsageError
from holdfast.model import RunId
from holdfast.store import forks, migrate
from holdfast.store.carrier import AcceptedMail
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.bell import Bell
from holdfast.store.sqlite.errors import explain
from holdfast.store.sqlite.files import (
    check_not_inherited,
    check_ours,
    close_quietly,
    distrust_schema,
    in_forked_child,
    mark_as_ours,
    only_read,
    prepare_file,
    prepare_folder,
    uri,
)
from holdfast.store.sqlite.guard import Held, check_alone, hold, leave_alone, watch_over
from holdfast.store.sqlite.identity import Identity
from holdfast.store.sqlite.locks import WorkerLocks
from holdfast.store.sqlite.lost import LeftBehind, check_count, check_past, check_there
from holdfast.store.sqlite.marks import Mark
from holdfast.store.sqlite.ops import CallOp
from holdfast.store.sqlite.owners import Owners
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.side_thread import SideThread
from holdfast.store.sqlite.writer import Writer

T = TypeVar("T")

_WRITING = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW  # the path has no links
_BUSY_MS = 30_000
_LOOK_US = 100_000


class Database:
    """One file, for one process."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        settings: Settings,
        vfs: str | None,
        checkpoint_pages: int,
        carry: Callable[[list[AcceptedMail]], bool],
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise UsageError("A store needs a file: what is in memory does not survive the process. Use a path.")
        self.path = os.path.realpath(path)
        self._vfs = vfs  # for tests that simulate disks
        self._carry = carry
        self._checkpoint_pages = checkpoint_pages  # of 4 KB; the log is moved into the file when it is this long
        self.owners = Owners(shared_group(settings))
        self.locks = WorkerLocks(f"{self.path}-workers", self.owners)
        self.bell = Bell(os.path.join(self.locks.directory, "bell"), self.owners)
        self._pid = os.getpid()
        self.writer: Writer | None = None
        self.reader: apsw.Connection | None = None
        self._identity: Identity | None = None
        self._held: Held | None = None
        self._look_at = 0
        self._side: SideThread | None = None

    @property
    def is_open(self) -> bool:
        return self._side is not None

    @property
    def trouble(self) -> str | None:
        """What the writer is waiting for or failed with, if anything: a full disk, a lock, an I/O error."""
        return self.writer.trouble if self.writer is not None else None

    @property
    def failure(self) -> StoreReplaced | None:
        """The files are not those that were opened, or were cut short: this store cannot go on."""
        return self._identity.failure if self._identity is not None else None

    # open and close

    async def open(self, *, read_only: bool = False) -> None:
        if self.reader is not None:
            raise UsageError(f"{self.path} is open already.")
        self._pid = os.getpid()
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
        prepare_folder(self.path, self.owners)
        with self.locks.opening(_BUSY_MS / 1000):
            check_there(self.path, self.locks.directory)
            prepare_file(self.path, self.owners)
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
                    self.owners.check(self.path, os.fstat(held.main))  # it may have been replaced since the first look
                    identity = Identity(self.path, held)
                    undo.callback(identity.close)
                    reader = self._connect()
                    undo.callback(close_quietly, reader, checkpoint=False)
                    undo.callback(held.loosen)
                    only_read(reader)
                    self.writer = Writer(
                        self.path,
                        self._connect,
                        identity=identity,
                        held=held,
                        mark=Mark(self.locks.directory, [each.file for each in past.marks], self.owners),
                        loop=loop,
                        ring=self.bell.ring,
                        carry=self._carry,
                        checkpoint_pages=self._checkpoint_pages,
                    )
                    undo.pop_all()
                self.reader, self._identity, self._held = reader, identity, held
                self.owners.tighten(self.path)
            finally:
                close_quietly(connection, checkpoint=False)
        self.bell.open(read_only=False)

    def _check_past(self) -> LeftBehind:
        return check_past(self.path, self.locks, lambda: self._connect_to_read("immutable=1"))

    def _open_to_read(self, loop: asyncio.AbstractEventLoop) -> None:
        if not os.path.isfile(self.path):
            raise NoStore(f"There is no store at {self.path}.")
        for problem in self.owners.foreign(self.path, self.locks.directory):
            warn("store.foreign", problem=problem)
        check_there(self.path, self.locks.directory)
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
        self.reader, self._identity = reader, Identity(self.path, None)
        self.bell.open(read_only=True)

    def _connect_to_read(self, query: str) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
        connection = Reader(uri(self.path, query), flags=flags, vfs=self._vfs, statementcachesize=100)
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

    async def close(self) -> None:
        if self._pid != os.getpid() or self._side is None:
            return
        side, self._side = self._side, None
        self.bell.close()
        try:
            await side.do(self._close)
        finally:
            side.stop()

    def _close(self) -> None:
        # The reader first: then the writer's checkpoint can empty the log, and its close remove it.
        reader, self.reader = self.reader, None
        if reader is not None:
            close_quietly(reader, checkpoint=False)
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.stop()
        if self._identity is not None:
            self._identity.close()
        if self._held is not None:
            self._held.let_go()
            self._held = None
        leave_alone(self.path)
        self.locks.drop_all()
        atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        if self._pid == os.getpid() and self.writer is not None:
            self.writer.stop()

    def forked(self) -> None:
        if self._identity is not None and self._identity.file is not None and self.reader is not None:
            forks.inherit(self._identity.file)
        # Closing an inherited connection could delete the parent's log, so it must never be freed here; nor may the
        # library, which closes whatever is open when the interpreter frees it.
        for kept in (apsw, self.reader, self.writer.connection if self.writer is not None else None):
            if kept is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    # ways to the writer and the reader

    def check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise in_forked_child(self.path, self._pid)

    def writable(self) -> Writer:
        self.check_usable()
        if self.writer is None:
            raise StoreError(f"{self.path} is {'not open' if self.reader is None else 'open read-only'}.")
        return self.writer

    async def write(
        self, work: Callable[[Transaction, bool], T], points: tuple[str, str] = ("", ""), *, rings: bool = False
    ) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.writable().submit(CallOp(work, loop, future, points, rings))
        return await future

    def _reading(self) -> tuple[SideThread, Identity]:
        self.check_usable()
        if self._side is None or self._identity is None or self.reader is None:
            raise StoreError(f"{self.path} is not open.")
        return self._side, self._identity

    async def read(self, work: Callable[[apsw.Connection], T], *, run_id: RunId | None = None) -> T:
        side, _ = self._reading()
        return await side.do(lambda: self._read_now(work, run_id))

    def commits(self) -> bytes | None:
        return self._reading()[1].commits()

    def check_files(self) -> None:
        now = clock.monotonic_us()
        if now >= self._look_at and self._identity is not None:
            self._identity.check()
            self._look_at = now + _LOOK_US

    def _read_now(self, work: Callable[[apsw.Connection], T], run_id: RunId | None) -> T:
        connection = self.reader
        if connection is None or self._identity is None:
            raise StoreError(f"{self.path} is closed.")
        self.check_files()
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
