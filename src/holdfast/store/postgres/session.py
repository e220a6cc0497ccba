"""The session of a process: its workers' locks, their leases, the database's clock, and the bell.

It has a thread with an event loop and a connection of its own, so that an agent that blocks the loop of the store
keeps nobody from seeing that its worker lives. What it does needs no group commit: a renewal every few seconds.

A worker's advisory lock belongs to the connection, and the server drops it when the process is gone, however it ended.
Others look for it in `pg_locks`, never by taking it. If the connection is lost and the process is not, the lock is
taken again on a new one and the worker's row says where it is now. If somebody else has it by then (the server, which
has not noticed yet that the old connection is gone, or a stranger), the worker goes on without, and tries again with
each renewal: meanwhile it would be found dead by its lease. Behind a pooler in transaction mode there are no
sessions, so there is neither lock nor LISTEN: workers are found dead by their leases, and news by polling.

The bell is NOTIFY, sent in a transaction of its own that waits for no disk, at most `_RINGS_A_SECOND` times a second;
ringing more often makes one more ring at the end of that time. It is a hint and nothing more.

Time: `clock_ms` is the machine's own clock plus what the database's was ahead of it when last asked, counted from
before the question was sent. So it is never behind the database, and a lease that is stored never ends before its
owner thinks so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from asyncpg.exceptions import ReadOnlySQLTransactionError

from holdfast.base import clock, ids
from holdfast.base.telemetry import info, warn
from holdfast.codec import said_by
from holdfast.errors import HoldfastError, StoreError
from holdfast.model import Worker, WorkerId
from holdfast.store.postgres.connection import Backoff, Keeper, Role, Sort, Target, explain, sort_of
from holdfast.store.postgres.locks import holder, lock_key
from holdfast.store.queries import Queries

T = TypeVar("T")

_RINGS_A_SECOND = 50
_CALL_S = 5.0  # for one statement
_PATIENCE_S = 10.0  # for one call, with the server away meanwhile


class Session:
    """Runs in its own thread from `start` to `stop`; `call` may be used from any loop."""

    def __init__(self, target: Target, queries: Queries, *, read_only: bool, heard: Callable[[], None]) -> None:
        self._target = target
        self._queries = queries
        self._read_only = read_only
        self._heard = heard  # called in this thread
        self.channel = f"holdfast_{target.schema}"
        self._me = ids.new_uuid().hex
        self._keeper = Keeper(target, Role.session)
        self._workers: dict[WorkerId, Worker] = {}
        self._unlocked: set[WorkerId] = set()  # those whose lock somebody else has
        self._offset_ms = 0
        self._connected_at_us = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._is_stopping = False
        self._wants_ring = False
        self.rings_sent = 0
        self._thread = threading.Thread(target=self._main, name="holdfast-session", daemon=True)

    # from outside

    @property
    def own(self) -> frozenset[WorkerId]:
        """Workers of this process."""
        return frozenset(self._workers)

    @property
    def connections(self) -> list[Any]:
        return [each for each in (self._keeper.connection, self._loop) if each is not None]

    def connected_us(self) -> int:
        """For how long the server has been there, as far as is known here."""
        connection = self._keeper.connection
        if connection is None or connection.is_closed():
            return 0
        return clock.monotonic_us() - self._connected_at_us

    def clock_ms(self) -> int:
        return clock.boottime_ms() + self._offset_ms

    async def start(self) -> None:
        """Connect and ask for the time; raises what keeps it from that."""
        self._thread.start()
        await asyncio.to_thread(self._started.wait)
        try:
            await self._in_thread(self._begin)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Let go of everything; workers whose rows are still there are said to be gone."""
        if self._is_stopping or self._loop is None:
            return
        self._is_stopping = True
        loop, ended = self._loop, self._ended
        loop.call_soon_threadsafe(ended.set)
        await asyncio.to_thread(self._thread.join)

    def ring(self) -> None:
        """Have the other processes hear that there is something new; any thread, never waits."""
        if self._read_only or self._target.is_pooled or self._wants_ring or self._loop is None or self._is_stopping:
            return
        self._wants_ring = True
        try:
            self._loop.call_soon_threadsafe(self._ringing.set)
        except RuntimeError:
            return  # the thread has ended

    async def add_worker(self, worker: Worker) -> None:
        attempts = 0

        async def add(connection: Any) -> None:
            nonlocal attempts
            attempts += 1
            await self._add(connection, worker, is_first=attempts == 1)

        await self._in_thread(lambda: self._patiently(add))

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        async def renew(connection: Any) -> bool:
            before_ms = clock.boottime_ms()
            now_ms = await connection.fetchval(
                self._queries["renew_worker"], worker_id, lease_until_ms, timeout=_CALL_S
            )
            if now_ms is not None:
                self._offset_ms = now_ms - before_ms
                if worker_id in self._unlocked:
                    await self._move(connection, worker_id)
            return now_ms is not None

        return await self._in_thread(lambda: self._patiently(renew))

    async def remove_worker(self, worker_id: WorkerId) -> None:
        async def remove(connection: Any) -> None:
            await connection.execute(self._queries["remove_worker"], worker_id, timeout=_CALL_S)
            self._unlocked.discard(worker_id)
            if self._workers.pop(worker_id, None) is not None and not self._target.is_pooled:
                key = lock_key(self._target.schema, worker_id)
                await connection.fetchval(self._queries["drop_lock"], key, timeout=_CALL_S)

        await self._in_thread(lambda: self._patiently(remove))

    async def _in_thread(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._loop is None or self._is_stopping:
            raise StoreError(f"{self._target.shown} is closed.")

        async def call() -> T:
            return await work()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), self._loop))

    # in the thread

    def _main(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._ended, self._ringing, self._lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._using = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._started.set()
        tasks = [asyncio.create_task(self._ring_others()), asyncio.create_task(self._stay_connected())]
        await self._ended.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._let_go()
        await self._keeper.close()

    async def _begin(self) -> None:
        async with self._using:
            await self._connected()

    async def _let_go(self) -> None:
        connection = self._keeper.connection
        if not self._workers or connection is None:
            return
        try:
            async with asyncio.timeout(_CALL_S), self._using:
                await connection.execute(self._queries["let_go"], list(self._workers), timeout=_CALL_S)
        except Exception as error:  # others find out by the lock, or by the lease
            info("session.not_let_go", error=said_by(error))

    async def _patiently(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do something with the connection that may be done twice; for a while, also with the server away."""
        backoff, give_up_us = Backoff(), clock.monotonic_us() + int(_PATIENCE_S * 1e6)
        while True:
            try:
                async with self._using:
                    return await work(await self._connected())
            except HoldfastError:
                raise
            except Exception as error:
                if sort_of(error) is Sort.away:
                    self._keeper.drop()
                if sort_of(error) is Sort.own or clock.monotonic_us() > give_up_us or self._is_stopping:
                    raise explain(error, self._target) from error
                await asyncio.sleep(backoff.next_s())

    async def _connected(self) -> Any:
        """The connection, with all that belongs to it: the time, the locks, the bell. The caller has it for itself."""
        known = self._keeper.connection
        connection = await self._keeper.get()
        if connection is known:
            return connection
        try:
            before_ms = clock.boottime_ms()
            now_ms = await connection.fetchval(self._queries["database_clock"], timeout=_CALL_S)
            self._offset_ms = now_ms - before_ms
            self._connected_at_us = clock.monotonic_us()
            if not self._target.is_pooled:
                self._lost.clear()
                connection.add_termination_listener(lambda _: self._lost.set())
                await self._listen(connection)
                for worker_id in self._workers:
                    await self._move(connection, worker_id)
                self._heard()  # somebody may have rung while nobody listened
        except BaseException:
            self._keeper.drop()
            raise
        return connection

    async def _stay_connected(self) -> None:
        """Nothing else may need the connection for a while; the locks and the bell do."""
        backoff = Backoff()
        while not self._target.is_pooled:
            await self._lost.wait()
            try:
                async with self._using:
                    await self._connected()
                backoff = Backoff()
            except Exception as error:  # until the server is back
                warn("session.lost", error=str(explain(error, self._target)))
                self._keeper.drop()
                await asyncio.sleep(backoff.next_s())

    # workers

    async def _add(self, connection: Any, worker: Worker, *, is_first: bool) -> None:
        backend: tuple[Any, ...] = (None, None, None, None)
        if not self._target.is_pooled:
            backend = await self._take_lock(connection, worker.id, is_first=is_first)
        await connection.execute(
            self._queries["add_worker"],
            worker.id,
            worker.pid,
            worker.host,
            worker.boot_id,
            worker.started_at,
            worker.lease_until_ms,
            worker.told,
            *backend,
            timeout=_CALL_S,
        )
        self._workers[worker.id] = worker

    async def _move(self, connection: Any, worker_id: WorkerId) -> None:
        """Say in a worker's row where its lock is now."""
        backend = await self._take_lock(connection, worker_id, is_first=False)
        await connection.execute(self._queries["move_worker"], worker_id, *backend, timeout=_CALL_S)

    async def _take_lock(self, connection: Any, worker_id: WorkerId, *, is_first: bool) -> tuple[Any, ...]:
        key = lock_key(self._target.schema, worker_id)
        is_ours, *backend = await connection.fetchrow(self._queries["take_lock"], key, timeout=_CALL_S)
        if is_ours:
            if worker_id in self._unlocked:
                self._unlocked.remove(worker_id)
                info("worker.locked_again", worker=worker_id)
            return (key, *backend)
        who = await holder(connection, self._queries, key=key)
        if is_first:
            raise StoreError(f"Worker {worker_id} is locked by another process, {who}; worker ids must be unique.")
        if worker_id not in self._unlocked:
            self._unlocked.add(worker_id)
            warn("worker.not_locked", worker=worker_id, by=who, advice="it goes on by its lease alone, and tries again")
        return (None, *backend)

    # the bell

    async def _listen(self, connection: Any) -> None:
        try:
            await connection.add_listener(self.channel, self._hear)
        except ReadOnlySQLTransactionError:
            if not self._read_only:
                raise  # what was the primary is a standby now
            info("bell.not_heard", why="a standby has none")

    def _hear(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        if payload != self._me:
            self._heard()

    async def _ring_others(self) -> None:
        while True:
            await self._ringing.wait()
            self._ringing.clear()
            self._wants_ring = False  # from here on, a ring is a new one
            try:
                async with self._using:
                    connection = await self._connected()
                    await connection.fetchrow(self._queries["notify"], self.channel, self._me, timeout=_CALL_S)
                self.rings_sent += 1
            except Exception as error:  # they poll
                info("bell.not_rung", error=said_by(error))
            await asyncio.sleep(1 / _RINGS_A_SECOND)
