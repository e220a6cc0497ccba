"""Tests in several processes that are forked from one: what they import is loaded, and they are collected, once.

    python -m pytest --lanes 4

A lane takes the tests of one file after the other, in the order in which they were collected, and keeps what lives for
a session (a server, a process that forks others) from file to file. A lane that dies is a failure of the test that it
was at, and another one goes on behind that test.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureManager, FDCapture
from _pytest.terminal import TerminalReporter

_LEAVING_S = 30

#: The tests of a file that one lane runs.
Group = Sequence[pytest.Item]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lanes", type=int, default=0, metavar="N", help="run the tests in N processes forked from this one"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if options.lanes < 1 or options.collectonly or session.testsfailed:
        return None
    groups = [list(group) for _, group in groupby(session.items, key=lambda item: item.path)]
    _Lanes(session, groups).run(options.lanes)
    return True


@dataclass(slots=True, eq=False)
class _Lane:
    """A process that runs tests, as the one that deals them out sees it."""

    pid: int
    wire: Connection
    groups: deque[Group] = field(default_factory=deque)  #: the one that it is at, and the next one
    at: pytest.Item | None = None
    is_leaving: bool = False


class _Lanes:
    """Deals the tests out, and tells what comes of them as if they were run here."""

    def __init__(self, session: pytest.Session, groups: Sequence[Group]) -> None:
        self._session = session
        self._config = session.config
        self._items = {item.nodeid: item for item in session.items}
        self._waiting = deque(groups)
        self._alive: dict[Connection, _Lane] = {}
        self._made = 0
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self._folder = factory.getbasetemp()

    def run(self, count: int) -> None:
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        terminal.showfspath = False  # results of many files are told by turns
        capture: CaptureManager = self._config.pluginmanager.getplugin("capturemanager")
        capture.read_global_capture()  # or each lane has it again
        gc.collect()
        gc.freeze()  # what is here stays, and is shared as long as nobody writes to it
        try:
            for _ in range(min(count, len(self._waiting))):
                self._fork()
            for lane in self._alive.values():
                self._deal(lane)
            while self._alive:
                for wire in _ready(self._alive):
                    self._hear(self._alive[wire])
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            self._end()

    def _fork(self) -> _Lane:
        ours, theirs = Pipe()
        self._made += 1
        sys.stdout.flush()
        sys.stderr.flush()
        if not (pid := os.fork()):
            for other in (ours, *self._alive):
                other.close()
            folder = self._folder / f"lane{self._made}"
            folder.mkdir()
            _become_lane(self._session, theirs, folder)
        theirs.close()
        lane = self._alive[ours] = _Lane(pid, ours)
        self._deal(lane)
        return lane

    def _deal(self, lane: _Lane) -> None:
        """One file more than it is at: what lives for a session ends when nothing comes next."""
        group = self._waiting.popleft() if self._waiting else None
        if group:
            lane.groups.append(group)
        with suppress(BrokenPipeError):
            lane.wire.send([item.nodeid for item in group or ()])

    def _hear(self, lane: _Lane) -> None:
        try:
            what, said = lane.wire.recv()
        except (EOFError, OSError):
            self._bury(lane)
            return
        match what:
            case "at":
                lane.at = self._items[said]
            case "report":
                self._tell(self._config.hook.pytest_report_from_serializable(config=self._config, data=said))
            case "done":
                lane.at = None
                lane.groups.popleft()
                self._deal(lane)
            case "left":
                lane.is_leaving = True
            case _:
                raise AssertionError(f"a lane said {what}")

    def _tell(self, report: pytest.TestReport) -> None:
        self._config.hook.pytest_runtest_logreport(report=report)

    def _bury(self, lane: _Lane) -> None:
        """It has ended. If it was not asked to: whatever it was at has failed, and another one takes what it had."""
        del self._alive[lane.wire]
        lane.wire.close()
        code = os.waitstatus_to_exitcode(os.waitpid(lane.pid, 0)[1])
        if lane.is_leaving and not code:
            return
        at = lane.at or (lane.groups[0][0] if lane.groups else self._session.items[-1])
        why = f"the process that ran it ended with {'signal' if code < 0 else 'code'} {abs(code)}"
        self._tell(pytest.TestReport(at.nodeid, at.location, {}, "failed", why, "call"))
        left = [list(group) for group in lane.groups]
        if left and at in left[0]:
            left[0] = left[0][left[0].index(at) + 1 :]
        self._waiting.extendleft(reversed([group for group in left if group]))
        if self._waiting:
            self._deal(self._fork())

    def _end(self) -> None:
        """Nobody outlives the tests: those who are left clean up, or are killed."""
        for number in (signal.SIGINT, signal.SIGKILL):
            for lane in self._alive.values():
                with suppress(ProcessLookupError):
                    os.kill(lane.pid, number)
            left = dict(self._alive)
            while left and (ended := _ready(left, _LEAVING_S)):
                for wire in ended:
                    with suppress(EOFError, OSError):
                        wire.recv()
                        continue
                    del left[wire]
                    os.waitpid(self._alive.pop(wire).pid, 0)


def _ready(wires: Iterable[Connection], timeout_s: float | None = None) -> list[Connection]:
    """Those that something was said on, or that have ended."""
    known = {wire.fileno(): wire for wire in wires}
    return [known[number] for number in wait(list(known), timeout_s) if isinstance(number, int)]


def _become_lane(session: pytest.Session, wire: Connection, folder: Path) -> None:
    """In the forked process: run what is dealt, and never return."""
    code = 1
    try:
        config = session.config
        config.workerinput = {"workerid": folder.name}  # type: ignore[attr-defined]  # plugins leave files to who has none
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        terminal: TerminalReporter = config.pluginmanager.getplugin("terminalreporter")
        terminal._tw._file = io.StringIO()  # who deals the tests out tells what becomes of them
        _capture_apart(config.pluginmanager.getplugin("capturemanager"))
        config.pluginmanager.register(_Teller(config, wire))
        _run(session, wire)
        config.hook.pytest_sessionfinish(session=session, exitstatus=0)
        wire.send(("left", None))
        code = 0
    except BaseException:
        print(f"lane {folder.name}:", file=sys.__stderr__)
        traceback.print_exc(file=sys.__stderr__)
    finally:
        atexit._run_exitfuncs()
        os._exit(code)


def _capture_apart(manager: CaptureManager) -> None:
    """What is printed goes to files of its own, behind the same objects: modules keep the `sys.stderr` they found."""
    for stream in (manager._global_capturing.out, manager._global_capturing.err) if manager._global_capturing else ():
        if isinstance(stream, FDCapture):
            with tempfile.TemporaryFile(buffering=0) as file:
                os.dup2(file.fileno(), stream.tmpfile.fileno())
            os.dup2(stream.tmpfile.fileno(), stream.targetfd)


def _run(session: pytest.Session, wire: Connection) -> None:
    items = {item.nodeid: item for item in session.items}

    def dealt() -> Group:
        return [items[name] for name in wire.recv()]

    now, then = dealt(), dealt()
    while now:
        for item, following in zip(now, (*now[1:], then[0] if then else None), strict=True):
            wire.send(("at", item.nodeid))
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        wire.send(("done", None))
        now, then = then, dealt()


class _Teller:
    """Has the process that deals tests out know what came of them."""

    def __init__(self, config: pytest.Config, wire: Connection) -> None:
        self._config = config
        self._wire = wire

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data: dict[str, Any] = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._wire.send(("report", data))
