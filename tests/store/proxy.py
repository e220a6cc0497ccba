"""A proxy between a store and its server that loses an answer or a request when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.samples import opened

SYNC = b"S\x00\x00\x00\x04"  # ends every request of the driver that executes something


class Proxy:
    """Passes bytes on, until it is told to lose an answer (`reply`) or a request (`request`)."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.port = 0
        self.loses = ""
        self.mark = b""  #: only a request that has these bytes is meant
        self.lost = 0
        self._listens = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._thread = threading.Thread(target=asyncio.run, args=(self._live(),), daemon=True)
        self._thread.start()
        await asyncio.to_thread(self._listens.wait)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        await asyncio.to_thread(self._thread.join)

    async def _live(self) -> None:
        """On a loop of its own: whom it serves may block theirs."""
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        await self._end.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = await asyncio.open_connection(self._host, self._port)
        state = {"drop": False}
        passing = [
            asyncio.create_task(self._requests(reader, back, state)),
            asyncio.create_task(self._answers(there, writer, state)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in passing:
                each.cancel()
            await asyncio.gather(*passing, return_exceptions=True)
            for end in (writer, back):
                end.close()
                with contextlib.suppress(Exception):
                    await end.wait_closed()
            self._tasks.discard(task)

    async def _requests(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter, state: dict[str, bool]
    ) -> None:
        while data := await reader.read(1 << 20):
            if self.loses and self.mark in data and data.endswith(SYNC):
                loses, self.loses = self.loses, ""
                self.lost += 1
                if loses == "request":
                    return
                state["drop"] = True
            there.write(data)
            await there.drain()

    async def _answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, state: dict[str, bool]) -> None:
        while data := await there.read(1 << 20):
            if state["drop"]:
                return  # it was done, and nobody hears of it
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, PostgresStore]]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    async with Proxy(parts.hostname, parts.port or 5432) as proxy:
        login = parts.netloc.rpartition("@")[0]
        through = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{proxy.port}"))
        async with opened(lambda: PostgresStore(through)) as store:
            assert isinstance(store, PostgresStore)
            yield proxy, store
