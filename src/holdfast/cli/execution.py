"""Executing one run in this process, for `run` and `resume`: its progress, its outcome, how to go on with it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from holdfast.app import Holdfast
from holdfast.app.interruption import Interruption, left_safe
from holdfast.app.options import AppOptions
from holdfast.base.clock import as_time, monotonic_us, now_us
from holdfast.base.config import store_url
from holdfast.base.tracebacks import carries
from holdfast.cli.failure import INTERRUPTED, OK, TIMEOUT, code_of
from holdfast.cli.setup import Setup
from holdfast.cli.text import SHAPES, clean, folded, paint, shorten, to_json
from holdfast.errors import CorruptJournal, NeedsHuman, RunError, RunFailed
from holdfast.handle.run import Run
from holdfast.history.info import info_of
from holdfast.history.needs import Needs, needs_of
from holdfast.history.values import jsonable
from holdfast.history.words import due_text, duration
from holdfast.model import Kind, RunId, RunRow, Status
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent
from holdfast.worker.executor import Executor

F = TypeVar("F", bound=Callable[..., Any])

_REFRESH_S = 0.2
_GRACE_S = 5.0
_TRACEBACK_LINES = 12
_ENDING = 20  # records, of which one says how the run ended


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long a command waits for a run."""

    timeout_s: float | None
    stays: bool  #: also for what somebody has to do, however long that takes


def patience_options(function: F) -> F:
    """Give a command --timeout and --wait."""
    function = click.option(
        "--wait",
        "stays",
        is_flag=True,
        help="Stay while the run waits for a person or a signal. [default: only if something is due within a minute]",
    )(function)
    return click.option(
        "--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer than this."
    )(function)


@asynccontextmanager
async def executing(setup: Setup, agents: Iterable[Agent[..., Any]]) -> AsyncIterator[Executor]:
    """An executor that takes up nothing by itself: the user asked for one run, not for all that are left over."""
    app = Holdfast(store_url(setup.db), AppOptions(tuple(agents), only_own=True))
    async with app:
        yield app._here


class Attempt:
    """One `run` or `resume`: remembers which run it is about, whatever happens to it."""

    def __init__(self, setup: Setup, again: Callable[..., str], patience: Patience) -> None:
        self._setup = setup
        self._patience = patience
        self._again = again  #: the command that goes on with a run, with more options
        self.run_id: str | None = None
        self.exit_code = OK
        self._interruption = Interruption(lambda: f"Interrupted; {self._left_safe()}")
        self._told: set[str] = set()  #: needs that the user knows of

    def execute(self, work: Callable[[Attempt], Coroutine[Any, Any, str | None]]) -> int:
        """Do the work; the exit code. What the user's code prints goes to stderr: stdout is for the result."""
        try:
            with redirect_stdout(_UserOutput()):
                outcome = asyncio.run(self._interruption.guard(work(self)))
        except (asyncio.CancelledError, KeyboardInterrupt):
            if self.run_id is None:
                raise KeyboardInterrupt from None
            self._say(self._interruption.told())
            return INTERRUPTED
        if outcome is not None:
            print(outcome)
        return self.exit_code

    async def outcome(self, run: Run[Any], store: Store) -> str | None:
        """Wait for the end; what to print on stdout. Sets the exit code and tells the rest on stderr."""
        self.run_id, timeout_s = run.id, self._patience.timeout_s
        watcher = asyncio.create_task(self._show_progress(run, store)) if self._shows_progress else None
        try:
            value = await run._result_or_needs(timeout_s, tell=self._hear, stays=self._patience.stays)
        except TimeoutError:
            self.exit_code = TIMEOUT
            self._say(f"Still not done after {timeout_s:g} s; {self._left_safe()}")
            told = await self._as_json(run, store, {}) if self._setup.is_json else None
            asyncio.get_running_loop().call_later(_GRACE_S, self._leave_now, told)
            return told
        except (RunError, CorruptJournal) as error:
            self.exit_code = code_of(error)
            await self._tell(error, run, store)
            said = {"type": type(error).__name__, "message": str(error)}
            if isinstance(error, NeedsHuman):
                said["command"] = error.command
            return await self._as_json(run, store, {"error": said}) if self._setup.is_json else None
        finally:
            if watcher is not None:
                watcher.cancel()
                await asyncio.wait({watcher})
                self._clear()
        if self._setup.is_json:
            return await self._as_json(run, store, {"result": jsonable(value)})
        if isinstance(value, str):
            return clean(value)
        return clean(to_json(jsonable(value), indent=2 if sys.stdout.isatty() else None))

    def _leave_now(self, told: str | None) -> None:
        """A `def` body does not end: leave it, as a crash would."""
        if told is not None:
            os.write(1, f"{told}\n".encode())
        os._exit(TIMEOUT)

    async def _as_json(self, run: Run[Any], store: Store, more: dict[str, Any]) -> str:
        row = await _row(run, store)
        return to_json(
            {"id": row.id, "token": f"{row.id}@{row.thread_id}", "agent": row.agent, "status": row.status, **more}
        )

    # telling

    def started(self, run: Run[Any]) -> None:
        """Name the run before it does anything: whoever kills this process can find it again."""
        self.run_id = run.id
        self._say(clean(f"Run {run.id}  (thread {run.thread_id})"))

    def _left_safe(self) -> str:
        return left_safe(clean(str(self.run_id)), self._again(str(self.run_id)))

    async def _tell(self, error: Exception, run: Run[Any], store: Store) -> None:
        self._say(clean(str(error)))
        if isinstance(error, RunFailed):
            trace = await _traceback(run, store)
            if trace:
                self._say(paint(clean(trace), "dim", self._setup.has_color(sys.stderr)))
            self._say(f"What was done is kept. When the cause is mended: {self._again(run.id, '--retry')}")

        if isinstance(error, NeedsHuman) and await run.status() is not Status.paused:
            needs = await needs_of(store, await _row(run, store))
            due = f"Nothing else is due before {_due_text(needs)}. " if needs.due_us is not None else ""
            self._say(f"{due}With --wait, this command waits. To go on after that: {self._again(run.id)}")

    def _hear(self, needs: Needs) -> None:
        """What the run needs while this command waits for it: each need is told once, by whoever can meet it."""
        if needs.is_long_sleep and str(needs.due_us) not in self._told:
            self._told.add(str(needs.due_us))
            self._say(f"It sleeps until {_due_text(needs)}; Ctrl-C leaves the run safe.")
        new = [need for need in needs.open if need.key not in self._told]
        if not new or (needs.is_far and not self._patience.stays):
            return  # nothing that is not known, or it is told at the end
        self._told.update(need.key for need in new)
        for need in new:
            self._say(clean(need.text))
        until = f" until {_due_text(needs)}" if needs.due_us is not None else ""
        self._say(f"Waiting for it{until}; Ctrl-C leaves the run safe.")

    def _say(self, text: str) -> None:
        self._clear()  # the line of progress may be drawn between two sentences
        print(folded(text, sys.stderr), file=sys.stderr)

    # progress

    @property
    def _shows_progress(self) -> bool:
        return sys.stderr.isatty() and not self._setup.is_json

    def _clear(self) -> None:
        if self._shows_progress:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    async def _show_progress(self, run: Run[Any], store: Store) -> None:
        began = monotonic_us()
        while True:
            row = await store.run(RunId(run.id))
            if row is not None:
                info = info_of(row)
                shape, word, style = SHAPES[row.status]
                parts = [f"{info.steps + info.effects} calls done", clean(info.now, one_line=True)]
                text = (
                    f"{shape} {word}  {' · '.join(p for p in parts if p)}  {duration((monotonic_us() - began) / 1e6)}"
                )
                shown = shorten(text, shutil.get_terminal_size().columns - 1)
                sys.stderr.write(f"\r\x1b[K{paint(shown, style, self._setup.has_color(sys.stderr))}")
                sys.stderr.flush()
            await asyncio.sleep(_REFRESH_S)


async def _row(run: Run[Any], store: Store) -> RunRow:
    row = await store.run(RunId(run.id))
    assert row is not None
    return row


def _due_text(needs: Needs) -> str:
    assert needs.due_us is not None
    return due_text(as_time(needs.due_us), now=as_time(now_us()))


class _UserOutput(io.TextIOBase):
    """What the user's code prints: on stderr, on lines of its own."""

    def __init__(self) -> None:
        self._at_line_start = True

    def write(self, text: str) -> int:
        if self._at_line_start and text and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")  # over the progress line; it is drawn anew below
        if text:
            self._at_line_start = text.endswith("\n")
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


async def _traceback(run: Run[Any], store: Store) -> str:
    """The last lines of where the agent failed, without our own frames."""
    row = await store.run(RunId(run.id))
    for record in [] if row is None else reversed(await store.records(row.id, after=max(0, row.head_seq - _ENDING))):
        if record.kind == Kind.finished and record.name == Status.failed:
            with suppress(ValueError, AttributeError):
                text = json.loads(record.payload or "{}").get("traceback", "")
                return "\n".join(_without_own_frames(text.rstrip().splitlines())[-_TRACEBACK_LINES:])
    return ""


def _without_own_frames(lines: list[str]) -> list[str]:
    kept: list[str] = []
    is_own = False
    for line in lines:
        if line.startswith("  File "):
            is_own = carries(line)
        if not is_own:
            kept.append(line)
    return kept
