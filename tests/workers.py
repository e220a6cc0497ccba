"""Worker processes that tests stop, kill and start anew, and the folder that they work in."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import holdfast as hf
from holdfast.base import clock
from holdfast.testing.child import agents_of
from holdfast.worker.executor import Executor
from tests.eventually import eventually
from tests.forkserver import Forked, ForkServer

T = TypeVar("T")

_PATIENCE_S = 60.0


def work(
    url: str,
    agents: str,
    *,
    settings: Mapping[str, Any],
    concurrency: int = 100,
    level: str = "WARNING",
    boot: str = "",
) -> None:
    """Be a worker with the agents of a module; `boot` is the boot of the machine that it believes to live in."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until `app.work` has a handler: nothing is under way
    logging.basicConfig(level=level, format=f"{os.getpid()} %(message)s")
    if boot:
        clock.boot_id = lambda: boot  # type: ignore[assignment]
        hf.worker.leases.boot_id = clock.boot_id  # type: ignore[attr-defined]
    known = agents_of(sys.modules[agents]).values()

    async def at_work() -> None:
        async with hf.connect(url, agents=known, concurrency=concurrency, settings=hf.Settings(**settings)) as app:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGUSR1, _say_what_it_has, app._here)
            loop.add_signal_handler(signal.SIGUSR2, _say_where_it_stands, app._here)
            await app.work()

    asyncio.run(at_work())


def _say_what_it_has(executor: Executor) -> None:
    """To its log, when a test asks for it: the runs that this process has, or believes to have, and hands over."""
    runs = [each.run for each in executor.executions]
    logging.warning("has %s", " ".join(f"{run.id}{'/leaving' if run.gate.draining else ''}" for run in runs))


def _say_where_it_stands(executor: Executor) -> None:
    """To its log, when something is not over that should be: what each run waits for, and each task."""
    for each in executor.executions:
        run = each.run
        states = {name: getattr(run.life, name) for name in ("parking", "dead", "halted")}
        states |= {"paused": run.gate.paused, "at work": run.activity.is_at_work, "lines": run.activity.lines}
        logging.warning(
            "run %s: waits for %s; %s; reads mail: %s", run.id, run.waits.keys, states, each._mailbox.is_reading
        )
    for task in asyncio.all_tasks():
        stack = io.StringIO()
        task.print_stack(file=stack)
        logging.warning("%s", stack.getvalue())


class Scene:
    """A folder with a store and workers, who are killed when it is left."""

    def __init__(
        self, folder: Path, forkserver: ForkServer, *, agents: str, settings: Mapping[str, Any], level: str = "WARNING"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = forkserver.store_url(folder)
        self.log = folder / "log.txt"
        self.env: dict[str, str] = {}  #: of its workers
        self._forkserver = forkserver
        self._agents, self._settings, self._level = agents, settings, level
        self._workers: list[Forked] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()

    def client(self) -> hf.Holdfast:
        return hf.connect(self.url)

    def worker(
        self,
        *,
        fault: str = "",
        trace: Path | None = None,
        boot: str = "",
        shift_s: float = 0,
        concurrency: int = 100,
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Forked:
        """Start a worker; `shift_s` puts its clock forward."""
        worker = self._forkserver.start(
            work,
            imports=[self._agents],
            log=self.log,
            env=self.env | {"HOLDFAST_TEST_CLOCK_SHIFT_S": str(shift_s) if shift_s else ""} | dict(env or {}),
            fault=fault,
            trace=trace,
            url=self.url,
            agents=self._agents,
            settings={**self._settings, **settings},
            concurrency=concurrency,
            level=self._level,
            boot=boot,
        )
        self._workers.append(worker)
        return worker

    @contextmanager
    def working(self, **options: Any) -> Iterator[Forked]:
        worker = self.worker(**options)
        try:
            yield worker
        finally:
            worker.kill()


async def seen(
    look: Callable[[], Awaitable[T]],
    is_so: Callable[[T], object],
    *,
    timeout_s: float = _PATIENCE_S,
    what: Callable[[T], str],
) -> T:
    """Look again and again, until what is seen is so."""
    found: list[T] = []

    async def is_seen() -> bool:
        found[:] = [await look()]
        return bool(is_so(found[0]))

    try:
        await eventually(is_seen, timeout=timeout_s)
    except AssertionError:
        raise AssertionError(f"after {timeout_s:g} s {what(found[0])}") from None
    return found[0]


async def until(run: hf.Run[Any], *wanted: str, timeout_s: float = _PATIENCE_S) -> hf.Status:
    """Wait until a run has one of these states."""
    info = await seen(
        run.info,
        lambda info: info.status in wanted,
        timeout_s=timeout_s,
        what=lambda info: f"{run.id} is {info.status} ({info.reason}), not {' or '.join(wanted)}",
    )
    return info.status


async def noted(run: hf.Run[Any], name: str, *, times: int = 1, timeout_s: float = _PATIENCE_S) -> None:
    """Wait until the journal of a run has records of this name."""
    await seen(
        lambda: run._store.records(run.id),
        lambda records: sum(record.name == name for record in records) >= times,
        timeout_s=timeout_s,
        what=lambda records: f"{run.id} has not {times} records of {name}: {[record.name for record in records]}",
    )


async def asked(
    run: hf.Run[Any], count: int = 1, *, only_open: bool = True, timeout_s: float = _PATIENCE_S
) -> list[hf.Question]:
    """Wait until a run has this many questions."""
    return await seen(
        lambda: run.questions(only_open=only_open),
        lambda found: len(found) >= count,
        timeout_s=timeout_s,
        what=lambda found: f"{run.id} has asked {len(found)} questions, not {count}",
    )
