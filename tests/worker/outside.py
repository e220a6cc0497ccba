"""A world in which triggers start runs, without anybody who executes them: a real store, and processes to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from holdfast.automation.triggers import TriggeredStart, Triggers
from holdfast.base import clock
from holdfast.base.config import Settings
from holdfast.model import Definition, Kind, Mail, RunFilter, RunId, RunRow, Status
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.testing.samples import extend, unborn
from tests.eventually import eventually
from tests.forkserver import Forked, ForkServer


class World:
    """A store, and triggers on it."""

    def __init__(self, store: Store, *, rescan_s: float = 5.0) -> None:
        self.store = store
        self.triggers = Triggers(store, self.start, send=self.send, rescan_s=rescan_s)
        self.starts: list[TriggeredStart] = []
        self.fails: Exception | None = None
        self.after_start: Callable[[], None] = lambda: None

    async def start(self, start: TriggeredStart) -> bool:
        """Store a queued run, as a worker would; its input is the payload of its first record."""
        self.starts.append(start)
        if self.fails is not None:
            raise self.fails
        now = clock.now_us()
        row = dataclasses.replace(
            unborn(start.run_id),
            agent=start.agent,
            status=Status.queued,
            queue=start.queue or "default",
            queue_key=start.queue_key,
            created_at=now,
            updated_at=now,
            wake_at=now,
        )
        stored = await self.store.create(extend(row, Kind.created, payload=start.text), owner=None)
        self.after_start()
        return stored.nonce == row.nonce

    async def send(self, run_id: str, name: str, value: str, dedup: str) -> bool:
        body = json.dumps({"value": value, "by": None})
        mail = Mail(RunId(run_id), 0, "signal", name, body, clock.now_us(), "", dedup)
        return (await self.store.send(mail, wake=lambda row: None)).is_new

    async def waiting_run(self, run_id: str, agent: str, **changes: object) -> None:
        state: dict[str, object] = {"status": Status.waiting, "created_at": clock.now_us()}
        row = dataclasses.replace(unborn(run_id), agent=agent, **state | changes)  # type: ignore[arg-type]
        await self.store.create(extend(row, Kind.created), owner=None)

    async def declare_agent(self, name: str, *signals: str) -> None:
        body = json.dumps({"signals": {each: {} for each in signals}, "code": "", "queue": None, "interrupts": False})
        await self.store.define([Definition("agent", name, body, 1)])

    # what became of it

    async def runs(self) -> list[RunRow]:
        """The runs that were started, oldest first."""
        return list(reversed(await self.store.runs(RunFilter(status=frozenset({Status.queued}), limit=100_000))))

    async def inputs(self) -> list[object]:
        found = [await self.store.records(row.id) for row in await self.runs()]
        return [json.loads(records[0].payload or "") for records in found]

    async def signals(self, run_id: str) -> list[tuple[str, object, str | None]]:
        mails = await self.store.mail(RunId(run_id), after=0)
        return [(mail.key, json.loads(json.loads(mail.body)["value"]), mail.dedup) for mail in mails]


@contextlib.asynccontextmanager
async def world(folder: Path, *, rescan_s: float = 5.0) -> AsyncIterator[World]:
    store = open_store(str(folder / "runs.db"), settings=Settings())
    await store.open()
    try:
        yield World(store, rescan_s=rescan_s)
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def going(here: World) -> AsyncIterator[None]:
    """Keep the triggers going meanwhile."""
    task = asyncio.create_task(here.triggers.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def counted(here: World, *, received: int, matched: int, started: int) -> None:
    """Wait until the only trigger has written down that this is what it did."""

    async def is_written() -> bool:
        info = (await here.triggers.list())[0]
        return info.received >= received and info.started >= started

    await eventually(is_written)
    info = (await here.triggers.list())[0]
    assert (info.received, info.matched, info.started) == (received, matched, started)


@contextlib.contextmanager
def process(folder: Path, forkserver: ForkServer, *, kills: bool = False, fault: str = "") -> Iterator[Forked]:
    """A process that keeps the triggers of a store going and delivers events.

    With `kills`, it kills itself right after the first run is durable, before the trigger hears of it.
    """
    log = folder / "log.txt"
    running = forkserver.start(keep_going, log=log, fault=fault, path=str(folder / "runs.db"), kills=kills)
    try:
        yield running
    finally:
        running.kill()


def keep_going(path: str, kills: bool) -> None:
    async def serve() -> None:
        store = open_store(path, settings=Settings())
        await store.open()
        here = World(store, rescan_s=0.5)
        if kills:
            here.after_start = lambda: os.kill(os.getpid(), signal.SIGKILL)
        async with going(here):
            while True:
                await here.triggers.deliver_due(clock.now_us())
                await asyncio.sleep(0.05)

    asyncio.run(serve())
