"""Several processes under one parent: real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.stop_signals import ECHO_S
from holdfast.cli.supervisor import delay_s
from holdfast.testing.processes import environment
from tests.eventually import eventually_now

PARENT = """
import asyncio, sys
from holdfast.cli.setup import Setup
from holdfast.cli.supervisor import Supervisor
from holdfast.cli.worker_events import Events

with Events(Setup(json=True), shows_pid=True):
    command = [sys.executable, "-c", sys.argv[1]]
    sys.exit(asyncio.run(Supervisor(command, int(sys.argv[2]), float(sys.argv[3])).supervise()))
"""

#: Says that it lives, and ends when it is told to. In one write: `print` makes two where nothing is buffered.
OBEDIENT = """
import os, signal, sys
from holdfast.cli.supervisor import follow_supervisor

assert follow_supervisor(1.0)
assert not follow_supervisor(1.0), "a process that an agent starts must not think that it is a child"
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
signal.signal(signal.SIGINT, lambda number, frame: sys.exit(0))
sys.stdout.write('{"event": "ready", "pid": %d}\\n' % os.getpid())
sys.stdout.flush()
while True:
    signal.pause()
"""

DEAF = OBEDIENT.replace("lambda number, frame: sys.exit(0)", "signal.SIG_IGN")


class Parent:
    """A supervisor, and what it tells."""

    def __init__(self, child: str, processes: int, drain_s: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, child, str(processes), str(drain_s)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.pids: list[int] = []

    def told(self, event: str) -> dict[str, Any]:
        """Read on until it tells this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            if "pid" in found:
                self.pids.append(found["pid"])
            if found["event"] == event:
                return found
        raise AssertionError(f"it ended without telling {event}")

    def ready(self, number: int) -> list[int]:
        return [self.told("ready")["pid"] for _ in range(number)]


@contextmanager
def supervised(child: str, processes: int, drain_s: float = 1.0) -> Iterator[Parent]:
    parent = Parent(child, processes, drain_s)
    try:
        yield parent
    finally:
        parent.process.kill()
        parent.process.wait()
        assert parent.process.stdout is not None
        parent.process.stdout.close()
        for pid in parent.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("lived_s", "former_s", "waits_s"),
    [(60, 0, 0), (60, 30, 0), (9, 0, 0.1), (9, 0.1, 0.2), (0, 0.2, 0.4), (0, 12.8, 25.6), (0, 25.6, 30), (0, 30, 30)],
)
def test_the_wait_doubles_while_children_die_young(lived_s: float, former_s: float, waits_s: float) -> None:
    assert delay_s(lived_s, former_s) == waits_s


def test_a_child_that_is_killed_is_replaced() -> None:
    with supervised(OBEDIENT, 2) as parent:
        pids = parent.ready(2)
        os.kill(pids[0], signal.SIGKILL)
        died = parent.told("child.died")
        assert (died["pid"], died["signal"]) == (pids[0], "SIGKILL")
        assert died["restart_in_s"] == 0.1
        started = parent.told("child.started")
        assert parent.ready(1) == [started["pid"]]
        assert is_alive(pids[1])


def test_a_child_that_keeps_dying_is_replaced_less_and_less_often() -> None:
    with supervised("import sys; sys.exit(3)", 1) as parent:
        deaths = [parent.told("child.died") for _ in range(4)]
        assert [each["restart_in_s"] for each in deaths] == [0.1, 0.2, 0.4, 0.8]
        assert {each["code"] for each in deaths} == {3}
        parent.told("child.started")
        parent.process.send_signal(signal.SIGTERM)  # while it waits, or has one that ends by itself
        assert parent.process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_end_is_clean(number: signal.Signals) -> None:
    with supervised(OBEDIENT, 3) as parent:
        pids = parent.ready(3)
        parent.process.send_signal(number)
        told = parent.told("supervisor.stopping")
        assert (told["signal"], told["children"]) == (number.name, 3)
        assert parent.process.wait(60) == 0
        assert [pid for pid in pids if is_alive(pid)] == []


def test_children_that_do_not_end_in_time_are_killed() -> None:
    with supervised(DEAF, 2, drain_s=-4.7) as parent:  # and 5 s more
        pids = parent.ready(2)
        parent.process.send_signal(signal.SIGTERM)
        assert sorted(parent.told("child.killed")["pid"] for _ in range(2)) == sorted(pids)
        assert parent.process.wait(60) == 1
        assert [pid for pid in pids if is_alive(pid)] == []


def test_a_second_signal_kills_them_at_once() -> None:
    with supervised(DEAF, 2, drain_s=60) as parent:
        pids = parent.ready(2)
        for _ in range(2):
            parent.process.send_signal(signal.SIGTERM)
        parent.told("supervisor.stopping")
        time.sleep(ECHO_S + 0.1)
        assert parent.process.poll() is None, "the first one came twice"
        parent.process.send_signal(signal.SIGTERM)
        assert parent.process.wait(60) == 128 + signal.SIGTERM
        assert [pid for pid in pids if is_alive(pid)] == []


def test_when_the_parent_is_killed_the_children_end_too() -> None:
    with supervised(OBEDIENT, 3) as parent:
        pids = parent.ready(3)
        parent.process.kill()
        eventually_now(lambda: not any(map(is_alive, pids)))


def test_a_child_that_ignores_the_end_of_its_parent_does_not_outlive_its_time() -> None:
    with supervised(DEAF.replace("follow_supervisor(1.0)", "follow_supervisor(-4.7)"), 1) as parent:
        pids = parent.ready(1)
        parent.process.kill()
        eventually_now(lambda: not any(map(is_alive, pids)))


def test_wrong_usage_is_not_tried_again() -> None:
    with supervised("import sys; sys.exit(2)", 2) as parent:
        assert parent.process.wait(60) == 2
