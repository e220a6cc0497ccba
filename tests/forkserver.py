"""A process that forks others, so that tests can start them by the hundred.

    python -m tests.forkserver SOCKET

Holdfast and the agents are imported once: whoever is forked is at work a few milliseconds after it was asked for, and
is a process of its own all the same.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.base import clock, faults
from holdfast.codec.schema import schema_of
from holdfast.store import open_store
from holdfast.testing.child import agents_of, warm_up
from holdfast.testing.processes import environment
from tests.eventually import eventually as wait_until
from tests.stopped import is_stopped

_LONGEST = 1 << 17
_PATIENCE_S = 60.0

#: Where the store of a folder is.
StoreUrl = Callable[[Path], str]


# in the process that forks


def main(descriptor: int) -> None:
    _warm_up()
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    children: set[int] = set()
    with socket.socket(fileno=descriptor) as test:
        while True:
            ready, _, _ = select.select([descriptor, heard], [], [])
            if heard in ready:
                os.read(heard, 4096)
            while children and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                children.remove(ended[0])
                _say(test, ended=ended[0], code=os.waitstatus_to_exitcode(ended[1]))
            if descriptor in ready:
                text, streams, _, _ = socket.recv_fds(test, _LONGEST, 3)
                if not text:  # the test is gone, perhaps in the middle of a life
                    break
                order = json.loads(text)
                for name in order["imports"]:
                    _load(name)
                pid = os.fork()
                if not pid:
                    test.close()
                    _become(order, streams)
                children.add(pid)
                for each in streams:
                    os.close(each)
                _say(test, started=pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _warm_up() -> None:
    """Load what processes load when they need it."""
    warm_up()
    open_store("postgresql://warm/", settings=hf.Settings())  # the driver and the queries; opens nothing
    schema_of(int)  # pydantic
    _load("holdfast.codec.models")


def _say(test: socket.socket, **what: int) -> None:
    with suppress(BrokenPipeError):
        test.send(json.dumps(what).encode())


def _load(name: str) -> None:
    """Import a module, and do once what each process would do first with the agents in it."""
    if name not in sys.modules:
        for agent in agents_of(importlib.import_module(name)).values():
            assert agent._code
            assert agent._source
            assert agent.coder is not None


def _become(order: dict[str, Any], streams: Sequence[int]) -> None:
    """In the forked process: become what the order says, and never return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _open_streams(order["log"], streams)
        if order["only"]:
            os.environ.clear()
        os.environ.update(order["env"])
        _read_environment()
        module, _, name = order["call"].partition(":")
        getattr(sys.modules[module], name)(**order["arguments"])
        code = 0
    except BaseException:
        print(f"--- process {os.getpid()}", file=sys.stderr)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read_environment() -> None:
    """What is read when a process starts, which was before the fork."""
    time.tzset()
    clock.reset()
    faults.reset()


def _open_streams(log: str, streams: Sequence[int]) -> None:
    if len(streams) == 1:
        os.login_tty(streams[0])
    else:
        file = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, each in enumerate(streams or (os.open(os.devnull, os.O_RDONLY), file, file)):
            os.dup2(each, number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


# in the test


def sqlite_in(folder: Path) -> str:
    return str(folder / "store.db")


class ForkServer:
    """The process that forks others, as the test sees it; it knows where the store of a folder is."""

    def __init__(self, store_url: StoreUrl = sqlite_in) -> None:
        self.store_url = store_url
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment(),
            )
        self._started: list[Forked] = []
        self._alive: dict[int, Forked] = {}  #: no longer than they are: the system uses a pid again

    def start(
        self,
        call: Callable[..., object],
        *,
        imports: Sequence[str] = (),
        streams: Sequence[int] = (),
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        only: bool = False,
        fault: str = "",
        trace: Path | None = None,
        **arguments: Any,
    ) -> Forked:
        """Fork a process that calls a function of a module with these arguments, and ends.

        What it prints goes to `log`, or it has these `streams`: three, or one that is a terminal. `env` is added to the
        environment of this process; with `only`, it is all there is.
        """
        more = {"HOLDFAST_FAULT": fault, "HOLDFAST_FAULT_TRACE": str(trace or "")}
        order = {
            "call": f"{call.__module__}:{call.__name__}",
            "imports": [call.__module__, *imports],
            "log": str(log or ""),
            "env": {**(env or {}), **{name: value for name, value in more.items() if value}},
            "only": only,
            "arguments": arguments,
        }
        socket.send_fds(self._socket, [json.dumps(order).encode()], streams)
        give_up = time.monotonic() + _PATIENCE_S
        while not self._started:
            self.read(0.1)
            assert time.monotonic() < give_up, "no process was started"
        return self._started.pop()

    def read(self, wait_s: float = 0) -> None:
        """Hear of who has ended."""
        while select.select([self._socket], [], [], wait_s)[0]:
            text = self._socket.recv(_LONGEST)
            assert text, "the process that forks others has died"
            said = json.loads(text)
            if "started" in said:
                self._started.append(Forked(self, said["started"]))
                self._alive[said["started"]] = self._started[-1]
            else:
                self._alive.pop(said["ended"])._code = said["code"]
            wait_s = 0

    def close(self) -> None:
        """Kill whoever is still there."""
        self._socket.close()
        self._process.wait(_PATIENCE_S)


@functools.cache
def shared_forkserver() -> ForkServer:
    """The one of all tests of this process."""
    forkserver = ForkServer()
    atexit.register(forkserver.close)
    return forkserver


class Forked:
    """A process that was forked."""

    def __init__(self, forkserver: ForkServer, pid: int) -> None:
        self._forkserver = forkserver
        self.pid = pid
        self._code: int | None = None

    @property
    def code(self) -> int | None:
        """How it ended; None if it has not."""
        self._forkserver.read()
        return self._code

    @property
    def is_stopped(self) -> bool:
        """By itself, or by a test."""
        return is_stopped(self.pid)

    def send(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and return when it is dead."""
        self.send(signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = _PATIENCE_S) -> int:
        give_up = time.monotonic() + timeout_s
        while self._code is None:
            assert time.monotonic() < give_up, f"process {self.pid} did not end within {timeout_s:g} s"
            self._forkserver.read(0.05)
        return self._code

    async def wait_stopped(self) -> None:
        """Wait until it has been stopped (SIGSTOP, perhaps by a fault)."""
        await eventually(lambda: self.is_stopped, what=f"process {self.pid} to be stopped")

    async def wait_dead(self, timeout_s: float = _PATIENCE_S) -> int:
        await eventually(lambda: self.code is not None, timeout_s, what=f"process {self.pid} to end")
        assert self._code is not None
        return self._code


async def eventually(is_so: Callable[[], object], timeout_s: float = _PATIENCE_S, *, what: str = "it") -> None:
    """As `tests.eventually`, with a name for what is waited for."""
    try:
        await wait_until(is_so, timeout=timeout_s)
    except AssertionError as error:
        raise AssertionError(f"still waiting for {what}: {error}") from None


if __name__ == "__main__":
    main(int(sys.argv[1]))
