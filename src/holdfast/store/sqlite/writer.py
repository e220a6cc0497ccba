"""The one writer of a store in a process: a thread that commits whatever is queued as one transaction.

A batch is first applied the quick way: few statements, no savepoints. If anything in it does not match, the transaction
is rolled back, and the batch is applied again with what does not match sorted out. If anything fails, that is rolled
back too, and the batch is applied carefully, each write under a savepoint of its own, so that one that is refused never
takes another with it. Nobody is told anything before COMMIT has returned.

When COMMIT or anything around it fails with an I/O error, the outcome is unknown. The connection is given up (a failed
fsync is never repeated on it: the kernel may have marked the lost pages clean), a new one is opened, the log is
checkpointed so that what is in it reaches the disk another way, and the batch is applied again. An append finds its
own head stored if it had been committed, and is acknowledged after this new commit. A full disk keeps the appends
until there is space; the other writes fail at once, their callers can decide.

`commit_alone` does one append on the caller's thread. It declines unless nothing is queued, the lock is free,
no other process is writing, and commits have been fast; the caller then queues the append.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import apsw

from holdfast.base import clock, faults
from holdfast.errors import HoldfastError, StoreError
from holdfast.model import Append
from holdfast.store.carrier import AcceptedMail
from holdfast.store.forks import call_lock
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.batches import Way, apply
from holdfast.store.sqlite.errors import SYSTEMIC, as_store_error, explain, is_full
from holdfast.store.sqlite.files import close_quietly, in_forked_child
from holdfast.store.sqlite.guard import Held
from holdfast.store.sqlite.identity import Identity, LogState
from holdfast.store.sqlite.marks import Mark
from holdfast.store.sqlite.ops import AppendOp, CallOp, Op, Outcomes, acknowledge_all, has_news
from holdfast.store.sqlite.user_transactions import SqliteUserTransaction

_BATCH = 1024  # writes in one commit
_BUSY_US = 30_000_000
_LAST_US = 3_000_000  # the same when closing
_LONG_US = 1_000_000  # waiting for a lock is worth telling
_LOOK_US = 100_000  # how often the file is looked at
_SLOW_US = 5_000  # a commit slower than this keeps others off the event loop …
_SLOW_REST_US = 1_000_000  # … for this long
_INLINE_BYTES = 64 * 1024  # larger values are compressed on the writer's thread
_IO_ATTEMPTS = 5
#: Crash points before and after a commit.
_APPEND_POINTS = ("append.before_commit", "append.after_commit")
CREATE_POINTS = ("start.before_commit", "start.after_commit")
SEND_POINTS = ("send.before_commit", "send.after_commit")


_STOP = object()
_CHECKPOINT = object()


class Writer:
    """Owns the connection that writes."""

    def __init__(
        self,
        path: str,
        connect: Callable[[], apsw.Connection],
        *,
        identity: Identity,
        held: Held,
        mark: Mark,
        loop: asyncio.AbstractEventLoop,
        ring: Callable[[], None],
        carry: Callable[[list[AcceptedMail]], bool],
        checkpoint_pages: int,
    ) -> None:
        self.trouble: str | None = None
        self.wal_pages = 0
        self._path = path
        self._pid = os.getpid()
        self._connect = connect
        self._identity = identity
        self._held = held
        self._mark = mark
        self._log: LogState | None = None  # as the transaction under way found it
        self._counted = 0  # what it wrote into the database for the mark
        self._loop = loop
        self._ring = ring
        self._carry = carry
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = call_lock()  # whoever has it may use the connection
        self._closing = threading.Event()
        self._suspect = False  # a commit's outcome is unknown; the connection must not be used
        self._slow_until = 0
        self._look_at = 0
        self._checkpoint_pages = self._checkpoint_at = checkpoint_pages
        self._adopt(connect())
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)
        self._thread.start()

    # called by others

    def submit(self, op: Op | SqliteUserTransaction) -> None:
        if os.getpid() != self._pid:  # the thread that would commit it is not in this process
            raise in_forked_child(self._path, self._pid)
        if self._closing.is_set():
            raise StoreError(f"{self._path} is closed.")
        self._queue.put(op)

    def commit_alone(self, append: Append) -> bool:
        """Commit an append, or a new run, here and now, or decline."""
        if os.getpid() != self._pid:
            raise in_forked_child(self._path, self._pid)
        if append.outgoing is not None:
            return False
        started = clock.monotonic_us()
        if started < self._slow_until or self._suspect or not self._queue.empty():
            return False
        if append.blobs and sum(len(data) for _, data in append.blobs) > _INLINE_BYTES:
            return False
        if not self._lock.acquire(blocking=False):
            return False
        is_new = not append.base_seq
        before, after = CREATE_POINTS if is_new else _APPEND_POINTS
        committed = False
        try:
            if started >= self._look_at:
                self._look()
            transaction = self._transaction
            transaction.execute("BEGIN IMMEDIATE")
            self._begun()
            if not (transaction.create(append, append.row.owner) if is_new else transaction.append_inline(append)):
                return False
            faults.point(before)
            self._suspect = True
            transaction.execute("COMMIT")
            faults.point(after)
            self._check_committed()
            self._suspect = False
            committed = True
            self._note_duration(clock.monotonic_us() - started)
        except (apsw.Error, OSError, StoreError, ValueError, TypeError, OverflowError):
            return False  # the writer's thread meets the same error and knows what to do about it
        finally:
            if not committed:
                self._roll_back()
            self._lock.release()
            if self.wal_pages >= self._checkpoint_at:
                self._queue.put(_CHECKPOINT)
        if append.row.owner is None if is_new else append.release and append.row.wake_at is not None:
            self._ring()
        return True

    def stop(self) -> None:
        """Commit what is queued, end the thread, checkpoint, close. Blocks; callable from any thread, also twice."""
        self._closing.set()
        self._queue.put(_STOP)
        self._thread.join()
        left: list[Op] = []
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if isinstance(item, AppendOp | CallOp):
                    left.append(item)
                elif isinstance(item, SqliteUserTransaction):
                    item.end(StoreError(f"{self._path} is closed."))
        self._deliver([(op, StoreError(f"{self._path} is closed.")) for op in left])

    @property
    def connection(self) -> apsw.Connection:
        return self._transaction.connection

    # the thread

    def _run(self) -> None:
        stopping = False
        while not stopping:
            ops: list[Op] = []
            user: SqliteUserTransaction | None = None
            item = self._queue.get()
            try:
                while True:
                    if isinstance(item, SqliteUserTransaction):
                        user = item
                        break
                    if item is _STOP:
                        stopping = True
                    elif item is not _CHECKPOINT:
                        ops.append(item)
                    if len(ops) >= _BATCH:
                        break
                    item = self._queue.get_nowait()
            except queue.Empty:
                pass
            if ops:
                self._commit(ops)
            if user is not None:
                self._commit_with_user(user)
            if self.wal_pages >= self._checkpoint_at:
                self._checkpoint()
        self._close()

    def _commit(self, ops: list[Op]) -> None:
        attempts, again, way = 0, False, Way.quick
        while ops:
            error: BaseException
            try:
                with self._lock:
                    outcomes = self._attempt(ops, again=again, way=Way.careful if again else way)
                    accepted, self._transaction.accepted = self._transaction.accepted, []
                if outcomes is None:
                    way = Way(way + 1)
                    continue
                self.trouble = None
                if self._carry(accepted) or has_news(outcomes):
                    self._ring()
                self._deliver(outcomes)
                return
            except SYSTEMIC as systemic:
                error = systemic
            except StoreError as refused:  # the file was replaced
                self.trouble = str(refused)
                self._deliver([(op, refused) for op in ops])
                return
            except Exception as bug:  # the thread must live on, and everybody must be told
                self._deliver([(op, as_store_error(bug, self._path)) for op in ops])
                return
            explained = explain(error, self._path)
            self.trouble = str(explained)
            again, attempts = again or not isinstance(error, apsw.BusyError), attempts + 1
            waits = is_full(error) or isinstance(error, apsw.BusyError)
            if waits:
                self._deliver([(op, explained) for op in ops if isinstance(op, CallOp)])
                ops = [op for op in ops if isinstance(op, AppendOp)]
            elif len(ops) > 1 and attempts == 2:
                for op in ops:
                    self._commit([op])
                return
            if self._closing.is_set() or (not waits and attempts >= _IO_ATTEMPTS):
                self._deliver([(op, explained) for op in ops])
                return
            self._closing.wait(0.5 if waits else 0.05 * attempts)
            if waits and ops:
                ops += self._queued_meanwhile(explained)

    def _queued_meanwhile(self, explained: StoreError) -> list[AppendOp]:
        """Appends that came while others wait; whatever else came fails, or it would wait behind them."""
        appends: list[AppendOp] = []
        with contextlib.suppress(queue.Empty):
            while (item := self._queue.get_nowait()) is not _STOP:
                if isinstance(item, AppendOp):
                    appends.append(item)
                elif isinstance(item, CallOp):
                    self._deliver([(item, explained)])
                elif isinstance(item, SqliteUserTransaction):
                    item.end(explained)
            self._queue.put(_STOP)
        return appends

    def _commit_with_user(self, user: SqliteUserTransaction) -> None:
        """A transaction of the user's own, between two of ours."""
        try:
            with self._lock:
                user.end(self._commit_with_user_now(user))
        except Exception as error:  # the thread must live on, and the effect must be told
            self.trouble = None if isinstance(error, HoldfastError) else str(explain(error, self._path))
            user.end(as_store_error(error, self._path))

    def _commit_with_user_now(self, user: SqliteUserTransaction) -> bool:
        if self._suspect:
            self._reopen()
        self._begin()
        try:
            if not user.lend(self.connection):
                self._roll_back()
                return False
            if not self._transaction.land(user.landing, user.result or ""):
                self._roll_back()
                return False
            faults.point("land.before_commit")
            self._suspect = True
            self._transaction.execute("COMMIT")
            faults.point("land.after_commit")
            self._check_committed()
            self._suspect = False
            return True
        except BaseException:
            self._roll_back()
            raise

    def _attempt(self, ops: list[Op], *, again: bool, way: Way) -> Outcomes | None:
        """One transaction with all of `ops`. None: this way does not do, and nothing was changed."""
        if self._suspect:
            self._reopen()
        self._begin()
        try:
            outcomes = apply(self._transaction, ops, way=way, again=again, path=self._path)
            if outcomes is None:
                self._roll_back()
                return None
            points = [_APPEND_POINTS if isinstance(op, AppendOp) else op.points for op in ops]
            points = list(dict.fromkeys(points))
            for before, _ in points:
                faults.point(before) if before else None
            self._suspect = True
            started = clock.monotonic_us()
            self._transaction.execute("COMMIT")
            self._note_duration(clock.monotonic_us() - started)
            for _, after in points:
                faults.point(after) if after else None
            self._check_committed()
            self._suspect = False
        except BaseException as error:
            # A statement that failed for lack of space has changed nothing, whatever came after it.
            self._suspect = self._suspect or (isinstance(error, SYSTEMIC) and not is_full(error))
            self._roll_back()
            raise
        return outcomes

    def _begin(self) -> None:
        if self._identity.failure is not None:
            raise self._identity.failure.with_traceback(None)
        now = clock.monotonic_us()
        if now >= self._look_at:
            self._look()
        delay_s = 0.0002
        while True:
            try:
                self._transaction.execute("BEGIN IMMEDIATE")
                break
            except apsw.BusyError as error:
                waited_us = clock.monotonic_us() - now
                if waited_us > (_LAST_US if self._closing.is_set() else _BUSY_US):
                    raise
                if waited_us > _LONG_US:
                    self.trouble = str(explain(error, self._path))
                jitter = 0.5 + clock.monotonic_us() % 1000 / 1000  # processes are not in step by the microsecond
                time.sleep(delay_s * jitter)
                delay_s = min(delay_s * 2, 0.02)
        try:
            self._begun()
        except BaseException:
            self._roll_back()
            raise

    def _begun(self) -> None:
        """Right after BEGIN: nobody else changes the log now."""
        self._transaction.accepted.clear()
        self._log, self._counted = self._identity.before_commit(), 0
        if self._log is not None and self._mark.is_outdated(self._log):
            self._counted = self._mark.count(self._transaction)

    def _check_committed(self) -> None:
        """Right after COMMIT: nobody is told of it unless it is in the log that belongs to the file."""
        before = self._log
        log = self._identity.after_commit(None if self._counted else before, self.wal_pages)
        if before is None:
            return
        if log is None:
            self._mark.write(before.salts, self.wal_pages)
        elif log.frames == self.wal_pages:  # else somebody else has committed since, who notes what it has now
            if self._counted:
                self._mark.counted(self._counted, before, log)
            self._mark.write(log.salts, log.frames)

    def _roll_back(self) -> None:
        try:
            if self.connection.in_transaction:
                self._transaction.execute("ROLLBACK")
        except (apsw.Error, OSError):
            self._suspect = True

    def _look(self) -> None:
        self._identity.check()
        self._look_at = clock.monotonic_us() + _LOOK_US

    def _note_duration(self, took_us: int) -> None:
        if took_us > _SLOW_US:
            self._slow_until = clock.monotonic_us() + _SLOW_REST_US

    # the connection

    def _adopt(self, connection: apsw.Connection) -> None:
        connection.set_busy_timeout(0)  # waiting is done here, with jitter, and never on the event loop
        connection.wal_autocheckpoint(0)
        connection.set_wal_hook(self._committed_pages)
        self._transaction = Transaction(connection)
        self._suspect = False

    def _committed_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self.wal_pages = pages
        if pages < self._checkpoint_pages:
            self._checkpoint_at = self._checkpoint_pages
        return apsw.SQLITE_OK

    def _reopen(self) -> None:
        close_quietly(self.connection, checkpoint=False)
        self._look()  # whatever is at that path now would be opened
        self._adopt(self._connect())
        self._suspect = True
        # Where others use the log or there is no space, the commit that follows has to do: it syncs the log.
        with contextlib.suppress(apsw.BusyError, apsw.FullError):
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        self._suspect = False

    def _checkpoint(self) -> None:
        with self._lock:
            if self._suspect:
                return
            try:
                self._identity.check()  # a file that was cut short would be filled up again
                pages, done = self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._identity.check()
            except (apsw.Error, OSError, StoreError):
                self._checkpoint_at = self.wal_pages + self._checkpoint_pages
                return
            # Not all of it could be moved (a reader, another process): do not try again at every commit.
            self.wal_pages = 0 if done >= pages else pages
            self._checkpoint_at = self._checkpoint_pages if done >= pages else pages + self._checkpoint_pages

    def _close(self) -> None:
        with self._lock:
            sound, is_empty = not self._suspect, False
            if sound:
                try:
                    self._look()
                    self.connection.set_busy_timeout(200)
                    self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                    is_empty = True
                except apsw.BusyError:
                    pass  # others still use the log; it is theirs to clean up
                except (apsw.Error, OSError, StoreError):
                    sound = False
            self._held.loosen()
            close_quietly(self.connection, checkpoint=sound)
            if sound:
                self._mark.drop(others=is_empty)

    # telling

    def _deliver(self, outcomes: Outcomes) -> None:
        """Tell each caller on its own loop, in one go per loop."""
        loops: dict[asyncio.AbstractEventLoop, Outcomes] = {}
        for op, outcome in outcomes:
            loops.setdefault(self._loop if isinstance(op, AppendOp) else op.loop, []).append((op, outcome))
        for loop, mine in loops.items():
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(acknowledge_all, loop, mine)
