"""What a worker tells while it runs: what Holdfast logs, as lines for people on stderr, or for programs on stdout."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from holdfast.base.clock import now_us
from holdfast.base.telemetry import log
from holdfast.cli.setup import Setup
from holdfast.cli.text import clean, paint, to_json
from holdfast.history.words import count, duration

Fields = Mapping[str, Any]


def _started(fields: Fields) -> str:
    queues = f"queues {', '.join(fields['queues'])}" if fields["queues"] else "all queues"
    who = f"worker {fields['worker']} (pid {fields['pid']})"
    return f"{who} executes {', '.join(fields['agents'])}; {queues}, {fields['concurrency']} at once"


def _stopping(fields: Fields) -> str:
    return f"{fields['signal']}: {count(fields['runs'], 'run')} to be handed over"


def _blocked(fields: Fields) -> str:
    what = fields.get("call") or "the agent's own code"
    whose = f"{what} of run {fields['run']}" if "run" in fields else "code outside of any run"
    return f"the event loop stands still for {_seconds(fields)} because of {whose} at {fields['at']}"


def _unblocked(fields: Fields) -> str:
    return f"the event loop turns again, after {_seconds(fields)}"


def _stalled(fields: Fields) -> str:
    return (
        f"the event loop has not turned for {_seconds(fields)}: the lease of {fields['worker']} is not renewed until "
        "it does, and others may take over its runs"
    )


def _taken_over(fields: Fields) -> str:
    lost, proof = fields.get("lost"), fields.get("proof")
    return f"took over run {fields['run']}" + (f" from {lost}" if lost else "") + (f" ({proof})" if proof else "")


def _backwards(fields: Fields) -> str:
    effects = ", ".join(fields["effects"][:20]) or "none"
    return (
        f"the history of run {fields['run']} went backwards: the store ends at record {fields['there']}, and record "
        f"{fields['here']} was on disk; it is {fields['status']} now. Effects begun since: {effects}"
    )


def _child_died(fields: Fields) -> str:
    which = f"child {fields['child']}" + (f" (pid {fields['pid']})" if "pid" in fields else "")
    if "signal" in fields:
        how = f"was killed by {fields['signal']}"
    elif "code" in fields:
        how = f"ended with exit code {fields['code']}"
    else:
        how = f"could not be started: {fields['error']}"
    wait_s = fields["restart_in_s"]
    again = f"in {duration(wait_s)}" if wait_s else "at once"
    return f"{which} {how} after {duration(fields['lived_s'])}; it is replaced {again}"


def _seconds(fields: Fields) -> str:
    return duration(float(fields["seconds"]))


_SENTENCES: dict[str, Callable[[Fields], str]] = {
    "worker.started": _started,
    "worker.stopping": _stopping,
    "worker.stopped": lambda _: "stopped",
    "run.taken_over": _taken_over,
    "run.backwards": _backwards,
    "run.given_back": lambda fields: f"run {fields['run']} was this worker's and not executed: it is queued again",
    "run.gone": lambda fields: (
        f"run {fields['run']} is not in the store any more; record {fields['known']} was on disk"
    ),
    "loop.blocked": _blocked,
    "loop.unblocked": _unblocked,
    "lease.stalled": _stalled,
    "environment.for_tests": lambda fields: (
        f"{', '.join(fields['switches'])} in the environment: for tests only; processes fail, or their clocks go "
        "wrong, on purpose"
    ),
    "lease.lost": lambda fields: f"somebody removed worker {fields['worker']}: its runs are no longer its own",
    "child.started": lambda fields: f"child {fields['child']} started (pid {fields['pid']})",
    "child.died": _child_died,
    "child.killed": lambda fields: f"child {fields['child']} (pid {fields['pid']}) is killed: {fields['why']}",
    "store.away": lambda fields: f"waiting for the store: {fields['detail']}",
    "store.out_of_reach": lambda fields: f"no runs are taken up, since nothing could be written: {fields['detail']}",
    "store.reached": lambda fields: f"{fields['url']} can be written to: runs are taken up",
    "heartbeat.failed": lambda fields: f"no sign of life can be written to {fields['file']}: {fields['error']}",
    "url.still_shown": lambda fields: f"HOLDFAST_URL could not be taken out of {fields['file']}",
    "supervisor.stopping": lambda fields: (
        f"{fields['signal']}: passed on to {count(fields['children'], 'child', 'children')}"
    ),
    "supervisor.gone": lambda _: "the supervisor is gone: this worker stops",
}


class Events(logging.Handler):
    """Shows what is logged under `holdfast`, one line each, while it is entered."""

    def __init__(self, setup: Setup, *, shows_pid: bool) -> None:
        super().__init__(logging.INFO)
        self._is_json = setup.is_json
        self._stream = sys.stdout if setup.is_json else sys.stderr  # as they are now: stdout is redirected later
        self._has_color = setup.has_color(self._stream)
        self._shows_pid = shows_pid
        self.more: dict[str, Fields] = {}  #: what the command knows of an event, and who logs it does not

    def __enter__(self) -> Events:
        self._before = (log.level, log.propagate)
        log.addHandler(self)
        log.setLevel(logging.INFO)
        log.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        log.removeHandler(self)
        log.setLevel(self._before[0])
        log.propagate = self._before[1]

    def emit(self, record: logging.LogRecord) -> None:
        """In one write: lines of several processes must not be mixed."""
        event = getattr(record, "event", "log")
        fields = {**getattr(record, "fields", {"message": record.getMessage()}), **self.more.get(event, {})}
        line = self._as_json(record, event, fields) if self._is_json else self._as_text(record, event, fields)
        with suppress(OSError, ValueError):  # nobody reads any more
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def _as_json(self, record: logging.LogRecord, event: str, fields: Fields) -> str:
        at = datetime.fromtimestamp(now_us() / 1e6, UTC).isoformat(timespec="milliseconds")
        told = {"at": at, "level": record.levelname.lower(), "event": event, "process": os.getpid()}
        return to_json(told | {name: _plain(value) for name, value in fields.items()})

    def _as_text(self, record: logging.LogRecord, event: str, fields: Fields) -> str:
        text = record.getMessage()
        if event in _SENTENCES:
            with suppress(KeyError, TypeError, ValueError):  # fields that it does not know: the plain form will do
                text = _SENTENCES[event](fields)
        text = clean(text, one_line=True)
        if record.levelno >= logging.WARNING:
            text = f"{paint('warning:', 'yellow', self._has_color)} {text}"
        at = datetime.fromtimestamp(now_us() / 1e6).strftime("%H:%M:%S")
        return f"{at} [{os.getpid()}] {text}" if self._shows_pid else f"{at} {text}"


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return str(value)
