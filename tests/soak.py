"""Run the tests again and again, beside processes that keep the machine busy: a test that depends on speed fails.

In a loaded run each process of the tests may also stand still for a moment, whatever it is doing: a page takes a minute
longer, a commit half a second, an answer comes after whoever asked has gone on.

    make soak N=5                        the whole suite five times, the last two of them loaded
    make soak TESTS="node ids" N=20      these tests, each time loaded

A line per run says how it went. The logs of red runs are kept in `.soak`; any red run makes the end non-zero.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.stopped import STILL, state

LOGS = Path(".soak")

#: It ends by itself when whoever started it is gone, however that went.
_BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""
_COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")
_SUMMARY = re.compile(r"^[= ]*(?:\d+ \w+|no tests ran).* in [\d.]+s")
_LEAVING_S = 30.0
_STILL_S, _MOVING_S = 0.6, 0.5  # at most: how long one stands still, and how long none does


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of the tests went."""

    code: int
    seconds: float
    passed: int
    failed: int

    @property
    def is_green(self) -> bool:
        """It ended well, and something was tested."""
        return self.code == 0 and self.passed > 0 and self.failed == 0

    def __str__(self) -> str:
        word = "green" if self.is_green else "RED"
        why = "" if self.code == 0 else f", exit code {self.code}"
        return f"{word:5}  {self.seconds:6.1f} s  {self.passed} passed, {self.failed} failed{why}"


@contextmanager
def busy(count: int) -> Iterator[list[int]]:
    """So many processes that never rest; their ids."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(
            subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())], start_new_session=True)
            for _ in range(count)
        )
        yield [each.pid for each in processes]
    finally:
        for each in processes:
            each.kill()
        for each in processes:
            each.wait()


@contextmanager
def stuttering(root: int, still: Path) -> Iterator[list[int]]:
    """Again and again one of the processes below another stands still for a moment; those that did.

    `still` names it meanwhile: whoever waits for a process that stops itself is not to take this for it.
    """
    stopped: list[int] = []
    is_over = threading.Event()

    def stutter() -> None:
        chance = random.Random(root)
        while not is_over.wait(chance.uniform(0, _MOVING_S)):
            if not (some := below(root)):
                continue
            pid = chance.choice(some)
            still.write_text(str(pid))
            if state(pid) in "RSD":  # one that stopped itself must not go on by this
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)
                    is_over.wait(chance.uniform(0, _STILL_S))
                    os.kill(pid, signal.SIGCONT)
            still.write_text("")

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield stopped
    finally:
        is_over.set()
        thread.join()


def below(pid: int) -> list[int]:
    """All processes that a process has started, and those that these have; none, where a system does not tell."""
    with suppress(OSError):
        lists = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/children")]
        return [one for child in map(int, " ".join(lists).split()) for one in (child, *below(child))]
    return []


def run_once(command: Sequence[str], log: Path, *, stutters: bool = False) -> Outcome:
    """Run the tests; everything they say is in the log."""
    began, still = time.monotonic(), log.with_suffix(".still")
    env = os.environ | {STILL: str(still.absolute())}
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        try:
            with stuttering(process.pid, still) if stutters else nullcontext():
                code = process.wait()
        finally:
            _end(process)
            still.unlink(missing_ok=True)
    passed, failed = counts(log.read_text(errors="replace"))
    return Outcome(code, time.monotonic() - began, passed, failed)


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does it, so that the tests end the processes of their own."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_LEAVING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def counts(said: str) -> tuple[int, int]:
    """How many tests passed and failed, by the last line that sums up."""
    lines = [line for line in said.splitlines() if _SUMMARY.match(line)]
    found = {what: int(number) for number, what in _COUNT.findall(lines[-1])} if lines else {}
    return found.get("passed", 0), sum(number for what, number in found.items() if what != "passed")


def soak(command: Sequence[str], *, times: int, loaded: int, processes: int = 3, logs: Path = LOGS) -> int:
    """Run a command so many times, the last ones loaded; how many runs were red."""
    logs.mkdir(parents=True, exist_ok=True)
    red, began = 0, time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, times + 1):
        is_loaded = number > times - loaded
        log = logs / f"{began}-{number}.log"
        with busy(processes if is_loaded else 0):
            outcome = run_once(command, log, stutters=is_loaded)
        where = "" if outcome.is_green else f"  {log}"
        print(f"{number:3} of {times}  {'loaded' if is_loaded else 'alone':6}  {outcome}{where}", flush=True)
        red += not outcome.is_green
        if outcome.is_green:
            log.unlink()
    return red


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak", description="Run a test command again and again.")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--loaded", type=int, default=2, help="so many of them, the last ones, on a busy machine")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        red = soak(given.command, times=given.times, loaded=given.loaded)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    print(f"{red} of {given.times} runs were red" if red else f"{given.times} runs, all green")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
