"""An open PostgreSQL store: its connections, and the ways to read and write for the parts of a store."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from typing import Any, TypeVar

from holdfast.base import clock
from holdfast.errors import ForkedConnection, NoStore, StoreError, UsageError
from holdfast.store import forks
from holdfast.store.carrier import AcceptedMail
from holdfast.store.postgres import health, migrate
from holdfast.store.postgres.connection import Backoff, Role, Sort, Target, drop, explain, is_starting, sort_of
from holdfast.store.postgres.news import News
from holdfast.store.postgres.ops import CallOp
from holdfast.store.postgres.pool import Readers
from holdfast.store.postgres.reads import Reads
from holdfast.store.postgres.session import Session
from holdfast.store.postgres.user_transactions import UserConnections
from holdfast.store.postgres.writer import Writer
from holdfast.store.queries import OLDER_TURN, TAGS_SINCE, TURNS_SINCE, load_queries

T = TypeVar("T")

_STARTING_S = 10.0


class Database:
    """One schema of one server, for one process."""

    def __init__(self, url: str, *, carry: Callable[[list[AcceptedMail]], bool]) -> None:
        self.target = Target.of(url)
        self.queries = copy(load_queries("postgres", self.target.schema))
        self.news = News()
        self._carry = carry
        self._pid = os.getpid()
        self._home: asyncio.AbstractEventLoop | None = None
        self.writer: Writer | None = None
        self._readers: Readers | None = None
        self.session: Session | None = None
        self._user_connections: UserConnections | None = None
        self.durability = "full"
        self._is_reached = False  #: did the server answer when the store was opened?
        self.clock_ms = clock.boottime_ms  #: the database's clock, as far as it is known here; never behind it

    @property
    def is_open(self) -> bool:
        return self._readers is not None

    @property
    def trouble(self) -> str | None:
        trouble = self.writer.trouble if self.writer is not None else None
        return trouble or (self._readers.trouble if self._readers is not None else None)

    # open and close

    async def open(self, *, read_only: bool = False) -> None:
        if self._readers is not None:
            raise UsageError(f"{self.target.shown} is open already.")
        self._pid, self._home = os.getpid(), asyncio.get_running_loop()
        try:
            await self._prepare_soon(read_only=read_only)
            session = Session(self.target, self.queries, read_only=read_only, heard=self.news.ring)
            await session.start()
        except UsageError:
            raise
        except Exception as error:
            explained = explain(error, self.target)
            if explained is error:
                raise
            raise explained from error
        self.session, self.clock_ms = session, session.clock_ms
        self._readers = Readers(self.target, self.queries)
        self.news.open()
        if not read_only:
            self.writer = Writer(self.target, self.queries, self.ring, self._carry)
            self.writer.begin()
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
        connection = await self.target.connect(Role.read if read_only else Role.session)
        self._is_reached = True
        try:
            if read_only:
                count = await migrate.check_version(connection, self.queries, self.target)
                if not count:
                    raise NoStore(f"There is no store in schema {self.target.schema} of {self.target.shown}.")
                if count < TURNS_SINCE:
                    has_tags = count >= TAGS_SINCE
                    older = load_queries("postgres", self.target.schema, turn=OLDER_TURN, has_tags=has_tags)
                    self.queries.become(older)
            else:
                await migrate.migrate(connection, self.queries, self.target)
            fsync, full_page_writes, _ = await connection.fetchrow(self.queries["durability"])
            self.durability = health.durability(fsync, full_page_writes)
        except BaseException:
            drop(connection)
            raise
        await connection.close(timeout=5)

    async def close(self) -> None:
        if self._pid != os.getpid() or self._readers is None:
            return
        readers, self._readers = self._readers, None
        writer, self.writer = self.writer, None
        session, self.session = self.session, None
        self.news.close()
        if writer is not None:
            await writer.close()
        await readers.close()
        connections, self._user_connections = self._user_connections, None
        if connections is not None:
            await connections.close()
        if session is not None:
            await session.stop()

    def forked(self) -> None:
        # The event loop's own table of sockets is shared with the parent: closing them here would make it deaf.
        for source in (self.writer, self._readers, self.session, self._user_connections):
            for thing in source.connections if source is not None else ():
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))

    async def reach(self) -> None:
        """Have connections to write and to read with."""
        writer, readers = self.writable(), self._readers
        if readers is not None and not (writer.is_connected and readers.is_connected):
            await self.at_home(writer.reach())
            await self.at_home(readers.reach())

    # ways to the server

    def check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedConnection(
                f"{self.target.shown} was opened by process {self._pid}, and this is its forked child {os.getpid()}. "
                "Connect again in the child, or fork before connecting."
            )

    def writable(self) -> Writer:
        self.check_usable()
        if self.writer is None:
            raise StoreError(f"{self.target.shown} is {'not open' if self._readers is None else 'open read-only'}.")
        return self.writer

    def live(self) -> Session:
        self.check_usable()
        if self.session is None:
            raise StoreError(f"{self.target.shown} is not open.")
        return self.session

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Connections belong to the loop that opened the store; whoever comes from another one is taken there."""
        if self._home is asyncio.get_running_loop() or self._home is None:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    async def submit(self, make: Callable[[asyncio.Future[Any]], Any]) -> Any:
        self.writable()

        async def submit() -> Any:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.writable().submit(make(future))
            return await future

        return await self.at_home(submit())

    async def write(self, work: Callable[[Any, bool], Awaitable[Any]], points: tuple[str, str] = ("", "")) -> Any:
        return await self.submit(lambda future: CallOp(work, future, points))

    async def read(self, work: Callable[[Reads], Awaitable[T]]) -> T:
        self.check_usable()
        readers = self._readers
        if readers is None:
            raise StoreError(f"{self.target.shown} is not open.")
        return await self.at_home(readers.read(work))

    def user_connections(self) -> UserConnections:
        self.writable()
        if self._user_connections is None:
            self._user_connections = UserConnections(self.target, self.queries)
        return self._user_connections

    def ring(self) -> None:
        self.news.ring()
        if self.session is not None:
            self.session.ring()
