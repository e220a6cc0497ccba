"""A worker whose network is cut loses its runs to others, and what it writes when the network is back is refused."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.model import RunId, RunRow
from holdfast.testing import Ledger
from holdfast.testing.ledger import VARIABLE
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.processes import environment
from tests.eventually import eventually
from tests.ownership import agents

SETTINGS: dict[str, Any] = {"lease_s": 10.0, "renew_s": 0.3, "sweep_s": 0.1}
#: For the worker that is cut off, and alone until then: the other one waits for the end of its lease.
BRIEF: dict[str, Any] = {**SETTINGS, "lease_s": 1.5}
NET = "10.213"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_not() -> str | None:
    """Why there can be no networks here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command `ip` (iproute2)"
    name = f"hf{os.getpid()}"
    try:
        ip("netns", "add", name)
        try:
            ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
            ip("link", "del", f"{name}a")
        finally:
            ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    return None


class Host:
    """A machine of its own, as far as the network goes; `number` is its network."""

    def __init__(self, number: int) -> None:
        self.name = f"hf{os.getpid()}n{number}"
        self._here, there = f"hf{os.getpid() % 100000}x{number}", f"hf{os.getpid() % 100000}y{number}"
        ours, theirs = f"{NET}.{number}.1", f"{NET}.{number}.2"
        self.gateway = ours
        ip("netns", "add", self.name)
        ip("link", "add", self._here, "type", "veth", "peer", "name", there)
        ip("link", "set", there, "netns", self.name)
        ip("addr", "add", f"{ours}/24", "dev", self._here)
        ip("link", "set", self._here, "up")
        for words in (
            ("addr", "add", f"{theirs}/24", "dev", there),
            ("link", "set", there, "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", ours),
        ):
            ip("-n", self.name, *words)

    def cut(self) -> None:
        ip("link", "set", self._here, "down")

    def mend(self) -> None:
        ip("link", "set", self._here, "up")

    def close(self) -> None:
        ip("link", "del", self._here)
        ip("netns", "del", self.name)


@contextmanager
def host(number: int) -> Iterator[Host]:
    made = Host(number)
    try:
        yield made
    finally:
        made.close()


class Site:
    """A server, hosts with a worker each, and an app that the network does not concern."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.folder = folder
        self.database = server.create_database("site")
        self._server = server
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.app = hf.connect(server.socket_url(self.database))
        self._workers: list[subprocess.Popen[bytes]] = []

    def worker(self, where: Host, settings: dict[str, Any] = SETTINGS) -> subprocess.Popen[bytes]:
        arguments = {
            "url": self._server.url(self.database),
            "agents": agents.__name__,
            "settings": settings,
            "level": "INFO",
        }
        command = ["ip", "netns", "exec", where.name, sys.executable, "-m", "tests.postgres.worker"]
        with (self.folder / "log.txt").open("ab") as log:
            worker = subprocess.Popen(
                [*command, json.dumps(arguments)],
                env=environment({VARIABLE: str(self.ledger.path)}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def said(self, worker: subprocess.Popen[bytes]) -> str:
        lines = (self.folder / "log.txt").read_text().splitlines()
        return "\n".join(line for line in lines if line.startswith(f"{worker.pid} "))

    def open(self, gate: str, worker: subprocess.Popen[bytes]) -> None:
        (self.folder / f"{gate}.open.{worker.pid}").touch()

    def is_reached(self, gate: str, worker: subprocess.Popen[bytes]) -> bool:
        path = self.folder / f"{gate}.reached"
        return path.exists() and str(worker.pid) in path.read_text().split()

    async def wait_reached(self, gate: str, worker: subprocess.Popen[bytes]) -> None:
        await eventually(lambda: self.is_reached(gate, worker))

    async def row(self, run: hf.Run[Any]) -> RunRow:
        row = await self.app._store.run(RunId(run.id))
        assert row is not None
        return row

    async def has_lost_all(self, worker: subprocess.Popen[bytes]) -> None:
        """Wait until a worker says that it has no run: it wanted to write for each of them."""

        def answers() -> list[str]:
            return [line for line in self.said(worker).splitlines() if line.split()[1:2] == ["has"]]

        while not answers() or len(answers()[-1].split()) > 2:
            before = len(answers())
            worker.send_signal(signal.SIGUSR1)
            await eventually(lambda before=before: len(answers()) > before)  # type: ignore[misc]

    async def owners(self, run: hf.Run[Any]) -> list[int]:
        records = await self.app._store.records(RunId(run.id))
        return [json.loads(r.payload or "{}")["pid"] for r in records if r.kind == "claimed"]

    def begun(self, key: str) -> list[int]:
        return [line.pid for line in self.ledger.lines() if line.what == "begin" and line.key == key]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[[Callable[[Site, Host, Host], Awaitable[None]]], None]]:
    reason = why_not()
    if reason is not None:
        print(reason)
        pytest.skip(reason)
    with ExitStack() as stack:
        one, other = (stack.enter_context(host(number)) for number in (os.getpid() % 120, os.getpid() % 120 + 120))
        server = stack.enter_context(PostgresServer(tmp_path / "server", host=one.gateway))
        site = Site(tmp_path, server)
        stack.callback(site.close)

        def lived(story: Callable[[Site, Host, Host], Awaitable[None]]) -> None:
            async def told() -> None:
                async with site.app:
                    await story(site, one, other)

            asyncio.run(told())

        yield lived


#: What an agent does right behind its gate, and how its run stands when another worker was let through.
KINDS: dict[str, tuple[Any, str]] = {
    "step": (agents.before_a_step, "done"),
    "intent": (agents.before_an_effect, "done"),
    "end": (agents.before_its_end, "done"),
    "failure": (agents.before_its_failure, "failed"),
    "park": (agents.before_a_sleep, "sleeping"),
    "question": (agents.before_a_question, "waiting"),
    "child": (agents.before_a_child, "done"),
}

Live = Callable[[Callable[[Site, Host, Host], Awaitable[None]]], None]


async def is_at(site: Site, run: hf.Run[Any], status: str) -> None:
    async def has_come() -> bool:
        return (await site.row(run)).status == status

    await eventually(has_come)


@pytest.mark.parametrize("is_quick", [True, False], ids=["acts while cut off", "acts when it is back"])
def test_a_worker_that_was_cut_off_is_taken_over_from_and_its_late_writes_are_refused(
    live: Live, is_quick: bool
) -> None:
    async def story(site: Site, one: Host, other: Host) -> None:
        runs = {kind: await site.app.start(agent(kind)) for kind, (agent, _) in KINDS.items()}
        old = site.worker(one, BRIEF)
        for kind in KINDS:
            await site.wait_reached(kind, old)
        one.cut()
        if is_quick:
            for kind in KINDS:
                site.open(kind, old)
        new = site.worker(other)
        for kind in KINDS:
            await site.wait_reached(kind, new)
        before = {kind: await site.row(run) for kind, run in runs.items()}
        assert [await site.owners(run) for run in runs.values()] == [[old.pid, new.pid]] * len(runs)
        one.mend()
        if not is_quick:
            for kind in KINDS:
                site.open(kind, old)
        await eventually(lambda: "lease.late" in site.said(old) or "lease.lost" in site.said(old))
        await site.has_lost_all(old)
        assert old.poll() is None, site.said(old)
        assert {kind: await site.row(run) for kind, run in runs.items()} == before
        assert site.begun("post#1") == []
        assert await site.app.questions(only_open=False) == []
        assert {each.id for each in await site.app.runs()} == {run.id for run in runs.values()}
        for kind, (_, status) in KINDS.items():
            site.open(kind, new)
            await is_at(site, runs[kind], status)
            assert (await site.owners(runs[kind]))[:2] == [old.pid, new.pid]
        assert site.begun("post#1") == [new.pid]
        old.send_signal(signal.SIGTERM)
        new.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(old.wait, 60) == 0, site.said(old)
        assert await asyncio.to_thread(new.wait, 60) == 0, site.said(new)

    live(story)
