"""Processes for crash tests: started by the hundred, killed, and timed out."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import holdfast

_SOURCE = str(Path(holdfast.__file__).parent.parent)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """For a process that must import what this one can, with no fault unless `more` has one."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    # What the interpreter comes with is left out: as part of PYTHONPATH it would come first.
    own = [each for each in sys.path if not each.startswith((sys.prefix, sys.base_prefix))]
    paths = dict.fromkeys([_SOURCE, *(os.path.abspath(each) for each in own)])
    return inherited | {"PYTHONPATH": os.pathsep.join(paths)} | dict(more or {})


#: What a process may take that does little, on a machine that has much else to do.
_BUSY_S = 120.0


@dataclass(frozen=True, slots=True)
class Order:
    """One process: which run to start or go on with, and in what surroundings."""

    file: str
    agent: str
    run_id: str
    url: str
    text: str  #: the input, encoded
    env: Mapping[str, str]
    log: Path
    alone: bool = False  #: leave other runs in the store alone
    driven: bool = False  #: somebody will come who answers: end at a question or signal, whatever its deadline
    left: Sequence[str] = ()  #: except for these, which that somebody left open


class Lane:
    """Runs one process after the other, forked from one that has Holdfast imported already."""

    def __init__(self) -> None:
        self._surroundings = _surroundings()
        self._owed = 0  # answers
        self._server = subprocess.Popen(
            [sys.executable, "-m", "holdfast.testing.child", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            bufsize=0,
        )
        self._answers = b""

    def run(self, order: Order, timeout_s: float) -> int:
        """Its exit code (negative: the signal that killed it); TimeoutError if it had to be killed from here."""
        assert self._server.stdin is not None
        said = {
            "file": order.file,
            "agent": order.agent,
            "id": order.run_id,
            "url": order.url,
            "input": order.text,
            "env": dict(order.env),
            "log": str(order.log),
            "alone": order.alone,
            "driven": order.driven,
            "left": list(order.left),
        }
        self._owed = 2  # which process it is, and how that ended
        self._server.stdin.write(json.dumps(said).encode() + b"\n")
        pid = self._answer(_BUSY_S)["pid"]
        try:
            return self._answer(timeout_s)["code"]
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._answer(_BUSY_S)
            raise

    def _answer(self, timeout_s: float) -> dict[str, int]:
        assert self._server.stdout is not None
        while b"\n" not in self._answers:
            if not select.select([self._server.stdout], [], [], timeout_s)[0]:
                raise TimeoutError(f"no answer in {timeout_s:g} s")
            some = os.read(self._server.stdout.fileno(), 65536)
            if not some:
                raise RuntimeError("the process that starts the others has died")
            self._answers += some
        line, _, self._answers = self._answers.partition(b"\n")
        self._owed -= 1
        answer: dict[str, int] = json.loads(line)
        return answer

    @property
    def is_as_new(self) -> bool:
        """It has answered all it was asked, and one that is started now would see the same folder and environment."""
        return not self._owed and self._server.poll() is None and self._surroundings == _surroundings()

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(_BUSY_S)
        self._server.stdout.close()

    def __enter__(self) -> Lane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_resting: list[Lane] = []


def take_lane() -> Lane:
    """One that rests, if it would do for a new one, which costs more than a life."""
    with contextlib.suppress(IndexError):
        while True:
            lane = _resting.pop()
            if lane.is_as_new:
                return lane
            lane.close()
    return Lane()


def rest(lane: Lane) -> None:
    """Leave a lane to whoever needs one next; those that rest end with this process."""
    _resting.append(lane)


@atexit.register
def _close_resting() -> None:
    while _resting:
        _resting.pop().close()


def _surroundings() -> tuple[int, str, dict[str, str]]:
    return os.getpid(), os.getcwd(), environment()
