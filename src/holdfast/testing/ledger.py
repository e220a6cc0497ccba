"""What really happened, written down by the bodies themselves, apart from the store.

A crash test needs a second opinion: the journal says what Holdfast believes, the ledger says what the code did. Each
line is one `write` to a file opened with O_APPEND, so a line of a process that is killed is there or is not.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.base.clock import now_us
from holdfast.errors import UsageError
from holdfast.verbs.values import this_step

#: Where `Ledger()` without a path writes; `assert_survives` sets it for every life.
VARIABLE = "HOLDFAST_LEDGER"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One line of a ledger: the body of a step or effect began, or ended.

    Example: `[line for line in ledger.lines() if line.what == "begin"]`
    """

    what: Literal["begin", "end"]
    kind: Literal["effect", "step"]
    run: str
    key: str
    attempt: int
    idempotency_key: str
    pid: int
    at: int  #: µs since the epoch
    error: str | None  #: at an end: the type of what the body raised

    def __str__(self) -> str:
        ended = f", {self.error}" if self.error else ""
        return f"{self.at / 1e6:.6f} pid {self.pid} {self.what:5} {self.run} {self.key} attempt {self.attempt}{ended}"


def whole_lines(path: Path) -> list[str]:
    """What others append to a file, without a line that is being written right now; empty if there is no file.

    Example: `acts = [json.loads(line) for line in whole_lines(path)]`
    """
    try:
        return path.read_text("utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return []


class Ledger:
    """An append-only file in which bodies write that they began and that they ended.

    It survives what the store does not see: a line is written at once and never changed, whoever is killed afterwards.
    Without a path it is the file that $HOLDFAST_LEDGER names when a body writes, as set by `assert_survives`.

    Example:
        ledger = Ledger()

        @hf.effect
        async def send_email(to: str) -> str:
            with ledger.effect():
                return await mailer.send(to)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path)

    @property
    def path(self) -> Path:
        """The file."""
        if self._path is not None:
            return self._path
        named = os.environ.get(VARIABLE)
        if not named:
            raise UsageError(f"Ledger() has no file: pass a path, or set ${VARIABLE}.")
        return Path(named)

    @contextmanager
    def effect(self) -> Iterator[None]:
        """Around what an effect does to the world: a line before it and one after it.

        Example: `with ledger.effect(): await mailer.send(to)`
        """
        with self._body("effect"):
            yield

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around the body of a step, which may be repeated; effects may not, so they are told apart.

        Example: `with ledger.step(): return await web.get(url)`
        """
        with self._body("step"):
            yield

    @contextmanager
    def _body(self, kind: Literal["effect", "step"]) -> Iterator[None]:
        self._write("begin", kind, None)
        try:
            yield
        except BaseException as error:
            self._write("end", kind, type(error).__name__)
            raise
        self._write("end", kind, None)

    def _write(self, what: Literal["begin", "end"], kind: Literal["effect", "step"], error: str | None) -> None:
        step = this_step()
        line = {
            "what": what,
            "kind": kind,
            "run": step.run_id,
            "key": step.key,
            "attempt": step.attempt,
            "idempotency_key": step.idempotency_key,
            "pid": os.getpid(),
            "at": now_us(),
            "error": error,
        }
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)

    def lines(self) -> list[LedgerLine]:
        """Everything written so far, in order; empty if nothing was.

        Example: `print(*ledger.lines(), sep="\\n")`
        """
        return [LedgerLine(**json.loads(line)) for line in whole_lines(self.path)]

    def happened(self, key: str, *, run: str | None = None) -> int:
        """How often the body of this call came to its end without raising.

        Example: `assert ledger.happened("send_email#1") == 1`
        """
        return sum(times for (each, of), times in self._ends().items() if of == key and run in (None, each))

    def repeated(self) -> list[tuple[str, str, int]]:
        """The effects that happened more than once: (run, key, times).

        Example: `assert ledger.repeated() == []`
        """
        return [(run, key, times) for (run, key), times in sorted(self._ends("effect").items()) if times > 1]

    def _ends(self, kind: str | None = None) -> Counter[tuple[str, str]]:
        return Counter(
            (line.run, line.key)
            for line in self.lines()
            if line.what == "end" and line.error is None and kind in (None, line.kind)
        )
