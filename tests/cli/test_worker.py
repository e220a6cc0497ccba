"""`worker`: what it executes, what it tells, how it stops. Real processes, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.commands.worker import SignalLoop
from holdfast.cli.setup import Setup
from holdfast.cli.stop_signals import ECHO_S
from holdfast.cli.worker_events import Events
from holdfast.testing.postgres import PostgresServer
from tests.cli.commands import Commands
from tests.eventually import eventually_now

WORKING = """
import asyncio
import os
import time

import holdfast as hf


@hf.step
async def note(word: str) -> str:
    with open("notes.txt", "a") as notes:
        notes.write(f"{word} {os.getpid()}\\n")
    return word


@hf.step
async def until(name: str) -> str:
    while not os.path.exists(name):
        await asyncio.sleep(0.01)
    return name


@hf.effect
def hang(name: str) -> str:
    open("hanging", "w").close()
    while not os.path.exists(name):
        time.sleep(0.01)
    return name


@hf.step
async def block(seconds: float) -> None:
    time.sleep(seconds)


@hf.agent
async def quick(word: str) -> str:
    return await note(word)


@hf.agent
async def slow(name: str) -> str:
    await note("begun")
    await until(name)
    return await note("ended")


@hf.agent
async def hanging(name: str) -> str:
    return await hang(name)


@hf.agent
async def blocking() -> None:
    await block(1.5)
"""

SETUP = """

async def setup(app):
    print("the file prints")
    await app.start(%s, id="r1")
    await asyncio.sleep(0.1)
"""


class Worker:
    """A worker process, and what it tells."""

    def __init__(self, hf: Commands, *arguments: str) -> None:
        self.process: subprocess.Popen[str] = hf.start("worker", *arguments)
        self.out: list[str] = []
        self.err: list[str] = []
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines))
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._news:
                lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def told(self, text: str, times: int = 1) -> list[str]:
        """Wait until so many lines have this in them; those lines."""
        with self._news:
            found = self._news.wait_for(lambda: len(self._with(text)) >= times, 60)
            assert found, f"{text!r} was not told: {self.out} {self.err}"
            return self._with(text)

    def _with(self, text: str) -> list[str]:
        return [line for line in self.out + self.err if text in line]

    def events(self, name: str, times: int = 1) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.told(f'"event": "{name}"', times)]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(60)
        for reader in self._readers:
            reader.join(60)
        return code

    def close(self) -> None:
        self.process.kill()
        self.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def working(hf: Commands, *arguments: str) -> Iterator[Worker]:
    worker = Worker(hf, *arguments)
    try:
        yield worker
    finally:
        worker.close()


def write(hf: Commands, setup: str | None = None) -> None:
    (hf.folder / "work.py").write_text(WORKING + (SETUP % setup if setup is not None else ""))


def status(hf: Commands, run_id: str) -> str:
    ended = hf("runs", "--json")
    return str(next((each["status"] for each in ended.json["items"] if each["id"] == run_id), "")) if ended.out else ""


def notes(hf: Commands) -> list[str]:
    file = hf.folder / "notes.txt"
    return file.read_text().splitlines() if file.exists() else []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# what it executes


def test_it_executes_what_is_there_and_tells_it_on_stderr(hf: Commands) -> None:
    write(hf, 'quick("a")')
    with working(hf, "work.py", "--concurrency", "7") as worker:
        (started,) = worker.told(" executes ")
        assert "executes blocking, hanging, quick, slow; all queues, 7 at once" in started
        eventually_now(lambda: status(hf, "r1") == "done")
        assert worker.stop() == 0
        assert worker.told("SIGTERM: 0 runs to be handed over")
        assert worker.told(" stopped")
        assert worker.told("the file prints")
        assert worker.out == []
    assert [line.split()[0] for line in notes(hf)] == ["a"]


def test_json_makes_it_lines_of_json_on_stdout(hf: Commands) -> None:
    write(hf, 'quick("a")')
    with working(hf, "work.py", "--queue", "default", "--queue", "other", "--json") as worker:
        (started,) = worker.events("worker.started")
        assert started["agents"] == ["blocking", "hanging", "quick", "slow"]
        assert started["queues"] == ["default", "other"]
        assert started["pid"] == started["process"] == worker.process.pid
        assert (started["level"], started["concurrency"]) == ("info", 100)
        eventually_now(lambda: status(hf, "r1") == "done")
        assert worker.stop(signal.SIGINT) == 0
        assert [json.loads(line)["event"] for line in worker.out[-2:]] == ["worker.stopping", "worker.stopped"]
        assert worker.err == ["the file prints"]


def test_a_named_agent_is_the_only_one(hf: Commands) -> None:
    write(hf)
    with working(hf, "work.py:slow", "agents.py:echo", "--json") as worker:
        assert worker.events("worker.started")[0]["agents"] == ["echo", "slow"]
        assert worker.stop() == 0


def test_only_runs_of_its_queues_are_taken(hf: Commands) -> None:
    write(hf, 'quick("mine"), queue="mine"')
    (hf.folder / "other.py").write_text(
        "from work import quick\n"
        "async def setup(app):\n    await app.start(quick('other'), id='r2', queue='other', priority=9)\n"
    )
    with working(hf, "work.py", "other.py", "--queue", "mine") as worker:
        eventually_now(lambda: status(hf, "r1") == "done")
        assert status(hf, "r2") == "queued"
        assert worker.stop() == 0
    with working(hf, "work.py", "--queue", "mine", "--queue", "other") as worker:
        eventually_now(lambda: status(hf, "r2") == "done")
        assert worker.stop() == 0
    assert [line.split()[0] for line in notes(hf)] == ["mine", "other"]


@pytest.mark.parametrize(
    ("files", "arguments", "code", "said"),
    [
        ({}, ["nothere.py"], 2, "There is no file nothere.py"),
        ({"empty.py": ""}, ["empty.py"], 2, "empty.py has no agent"),
        ({}, ["agents.py:nobody"], 2, "there is no agent 'nobody'; it has research, echo"),
        ({}, ["agents.py", "--drain-timeout", "soon"], 2, "'soon' is no time"),
        ({}, ["agents.py", "--processes", "0"], 2, "--processes"),
        (
            {"b.py": "import holdfast as hf\n@hf.agent\nasync def echo() -> int:\n    return 1\n"},
            ["agents.py", "b.py"],
            2,
            "an agent 'echo' is in another file too",
        ),
        ({"c.py": "from agents import echo\ndef setup(): pass\n"}, ["c.py"], 2, "Write `def setup(app)`"),
        ({"d.py": "from agents import echo\ndef setup(app):\n    1 / 0\n"}, ["d.py"], 1, "d.py:3"),
        ({"e.py": "1 / 0\n"}, ["e.py"], 1, "ZeroDivisionError"),
    ],
)
def test_what_cannot_work_is_said_at_once(
    hf: Commands, files: dict[str, str], arguments: list[str], code: int, said: str
) -> None:
    for name, text in files.items():
        (hf.folder / name).write_text(text)
    ended = hf("worker", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


def test_an_imported_setup_is_not_called_and_an_agent_may_be_in_two_files(hf: Commands) -> None:
    write(hf, 'quick("a")')
    (hf.folder / "other.py").write_text("from work import quick, setup\n")
    with working(hf, "other.py", "--json") as worker:
        assert worker.events("worker.started")[0]["agents"] == ["quick"]
        assert worker.stop() == 0
    assert not status(hf, "r1")
    with working(hf, "work.py", "other.py") as worker:
        eventually_now(lambda: status(hf, "r1") == "done")
        assert worker.stop() == 0
        assert len(worker.told("the file prints")) == 1


def test_a_server_that_is_not_there_yet_is_waited_for(hf: Commands) -> None:
    write(hf, 'quick("a")')
    with PostgresServer(hf.folder / "server", fsync=False) as server:
        url = server.url(server.create_database("late"))
        server.stop()
        with working(hf, "work.py", "--db", url) as worker:
            (line,) = worker.told("waiting for the store: postgresql://")
            assert "cannot be reached" in line
            assert worker.process.poll() is None
            server.start()
            worker.told("executes")
            eventually_now(lambda: [r["status"] for r in hf("runs", "--json", "--db", url).json["items"]] == ["done"])
            assert worker.stop() == 0
        server.stop()
        with working(hf, "work.py", "--db", url) as worker:
            worker.told("waiting for the store")
            assert worker.stop() == 0
            worker.told("stopped")


# how it stops


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_hands_runs_over_and_another_worker_goes_on(hf: Commands, number: signal.Signals) -> None:
    write(hf, 'slow("go")')
    with working(hf, "work.py", "--drain-timeout", "200ms") as first:
        eventually_now(lambda: len(notes(hf)) == 1)
        assert first.stop(number) == 0
    assert status(hf, "r1") == "queued"
    write(hf)
    (hf.folder / "go").touch()
    with working(hf, "work.py") as second:
        eventually_now(lambda: status(hf, "r1") == "done")
        assert second.stop() == 0
    assert [line.split()[0] for line in notes(hf)] == ["begun", "ended"]
    assert notes(hf) == [f"begun {first.process.pid}", f"ended {second.process.pid}"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_leaves_at_once(hf: Commands, number: signal.Signals, code: int) -> None:
    write(hf, 'hanging("go")')
    with working(hf, "work.py", "--drain-timeout", "1h") as worker:
        eventually_now((hf.folder / "hanging").exists)
        worker.process.send_signal(number)
        worker.told("to be handed over")
        time.sleep(ECHO_S + 0.1)
        assert worker.process.poll() is None, "it waits for the effect to end"
        assert worker.stop(number) == code


def test_signals_that_come_together_are_one(hf: Commands) -> None:
    """As `timeout` sends them: to the process, and to its group."""
    write(hf, 'slow("go")')
    with working(hf, "work.py", "--drain-timeout", "200ms") as worker:
        eventually_now(lambda: len(notes(hf)) == 1)
        for _ in range(5):
            worker.process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        worker.told("stopped")
        assert worker.wait() == 0
    assert status(hf, "r1") == "queued"


def test_an_effect_under_way_may_end_before_it_stops(hf: Commands) -> None:
    write(hf, 'hanging("go")')
    with working(hf, "work.py") as worker:
        eventually_now((hf.folder / "hanging").exists)
        worker.process.send_signal(signal.SIGTERM)
        worker.told("to be handed over")
        (hf.folder / "go").touch()
        assert worker.wait() == 0
    assert hf("in-doubt", "--json").json["items"] == []


def test_what_blocks_the_loop_is_told(hf: Commands) -> None:
    write(hf, "blocking()")
    with working(hf, "work.py") as worker:
        line = worker.told("the event loop stands still")[0]
        assert "because of block#1 of run r1 at " in line
        assert f"{hf.folder / 'work.py'}:" in line
        worker.told("the event loop turns again")
        assert worker.stop() == 0


# several processes


def children(worker: Worker, number: int) -> list[int]:
    return [each["pid"] for each in worker.events("worker.started", number)]


@contextmanager
def several(hf: Commands, number: int) -> Iterator[tuple[Worker, list[int]]]:
    pids: list[int] = []
    with working(hf, "work.py", "--processes", str(number), "--json") as worker:
        try:
            pids += children(worker, number)
            yield worker, pids
        finally:
            for pid in {*pids, *(json.loads(line)["pid"] for line in worker.out if '"child.started"' in line)}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_a_child_that_is_killed_is_replaced_and_its_run_goes_on_elsewhere(hf: Commands) -> None:
    write(hf)
    with several(hf, 2) as (worker, pids):
        starter = "import asyncio, holdfast as hf\nfrom work import slow\n"
        starter += "async def main():\n    async with hf.connect() as app:\n"
        starter += '        await app.start(slow("go"), id="r1", delay=0)\nasyncio.run(main())\n'
        (hf.folder / "start.py").write_text(starter)
        started = subprocess.run(
            [sys.executable, "start.py"], cwd=hf.folder, env=hf.environment, capture_output=True, text=True
        )
        assert started.returncode == 0, started.stderr
        eventually_now(lambda: len(notes(hf)) >= 1)
        owner = int(notes(hf)[-1].split()[1])
        assert owner in pids
        os.kill(owner, signal.SIGKILL)
        (died,) = worker.events("child.died")
        assert (died["pid"], died["signal"]) == (owner, "SIGKILL")
        worker.events("child.started", 3)
        (hf.folder / "go").touch()
        eventually_now(lambda: status(hf, "r1") == "done")
        assert worker.stop() == 0
    assert [line.split()[0] for line in notes(hf)] == ["begun", "ended"]
    assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_children(hf: Commands, number: signal.Signals) -> None:
    write(hf)
    with several(hf, 3) as (worker, pids):
        for pid in pids:  # as a terminal does, or what manages services: everybody gets it, and the parent passes it on
            os.kill(pid, number)
        assert worker.stop(number) == 0
        assert [pid for pid in pids if is_alive(pid)] == []
        assert len(worker.events("worker.stopped", 3)) >= 3


def test_children_end_when_their_parent_is_killed(hf: Commands) -> None:
    write(hf)
    with several(hf, 2) as (worker, pids):
        worker.process.kill()
        eventually_now(lambda: not any(map(is_alive, pids)))


def test_wrong_usage_in_a_child_ends_the_parent_too(hf: Commands) -> None:
    ended = hf("worker", "nothere.py", "--processes", "2")
    assert ended.code == 2
    assert "There is no file nothere.py" in ended.err


def test_a_signal_is_never_left_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment: between working and having handed over, another one would end the process."""
    before = signal.getsignal(signal.SIGTERM)
    loop = SignalLoop(Events(Setup(json=True), shows_pid=False), is_child=True)
    try:
        task = loop.create_task(asyncio.sleep(0))
        loop.run_until_complete(task)
        loop.count_signals(task)
        handlers: list[object] = []
        set_handler = signal.signal

        def watched(number: int, handler: Any) -> Any:
            handlers.append(handler)
            return set_handler(number, handler)

        monkeypatch.setattr(signal, "signal", watched)
        loop.add_signal_handler(signal.SIGTERM, lambda: None)
        assert loop.remove_signal_handler(signal.SIGTERM)
        assert handlers
        assert signal.SIG_DFL not in handlers
        assert signal.getsignal(signal.SIGTERM) == loop._signal_came
    finally:
        monkeypatch.undo()
        loop.close()
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
