"""What a run waits for, in data and in a few words: the question, the signal, the child, the time; and the ways on."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from holdfast.base.clock import as_time, now_us
from holdfast.base.data import data
from holdfast.base.hints import answer_hint, hint, resume_hint, send_hint
from holdfast.history.facts import Facts
from holdfast.history.info import RunInfo
from holdfast.history.words import due_text
from holdfast.model import Status, WaitKind, reasons, waits
from holdfast.model.reasons import Frozen

_WAITING = frozenset({Status.waiting, Status.sleeping, Status.paused, Status.in_doubt})
_STUCK = frozenset({Status.in_doubt, Status.blocked, Status.quarantined})
_TOLD = 2  #: waits that are told one by one


@data
class WaitInfo(Facts):
    """One thing that a run waits for."""

    kind: WaitKind
    key: str  #: of the call that waits
    name: str  #: of the signal; else what it is called
    due_at: datetime | None  #: when it waits no longer
    prompt: str  #: of the question
    question: str | None  #: its id
    child: str | None  #: the id of its run
    cause: str  #: of the doubt

    def text(self, now: datetime) -> str:
        """`asks: Send it?, until 14:05:00 (in 3h05m)`"""
        until = f"until {due_text(self.due_at, now=now)}" if self.due_at is not None else ""
        match self.kind:
            case WaitKind.question:
                what = f"asks: {self.prompt or self.name}"
            case WaitKind.signal:
                what = f"signal {self.name}"
            case WaitKind.child:
                what = f"child {self.child or self.name}"
            case WaitKind.doubt:
                return f"{self.key or self.name} ({self.cause})"
            case WaitKind.timer | WaitKind.unknown:
                return until or self.name
            case _:
                assert_never(self.kind)
        return f"{what}, {until}" if until else what


@data
class WaitingInfo(Facts):
    """All that a run waits for."""

    waits: tuple[WaitInfo, ...]
    due_at: datetime | None  #: when something is due
    by: str  #: who paused it
    note: str  #: why

    def text(self, now: datetime) -> str:
        """The first ones, and how many more there are; empty if there are none."""
        parts = list(dict.fromkeys(wait.text(now) for wait in self.waits))
        shown = ", ".join(parts[:_TOLD])
        return f"{shown} and {len(parts) - _TOLD} more" if len(parts) > _TOLD else shown


def waiting_of(info: RunInfo) -> WaitingInfo:
    """What the row of a run says that it waits for."""
    reason = reasons.of(info.reason or {})
    due = reasons.due_of(reason)
    by, note = reasons.paused_by(reason)
    return WaitingInfo(tuple(map(_wait, reasons.waits_of(reason))), as_time(due) if due else None, by, note)


def _wait(wait: waits.Wait) -> WaitInfo:
    return WaitInfo(
        kind=wait.kind,
        key=wait.key,
        name=wait.name or wait.key,
        due_at=None if wait.due is None else as_time(wait.due),
        prompt=wait.prompt,
        question=wait.question or None,
        child=wait.child or None,
        cause=str(wait.shown.get("cause", "unknown")),
    )


def now_of(info: RunInfo, *, now: datetime | None = None) -> str:
    """What the run does, or what it waits for and until when."""
    if info.is_lost or info.status not in _WAITING:
        return info.now
    now = now or as_time(now_us())
    waiting = waiting_of(info)
    told = waiting.text(now)
    if info.status is Status.paused:
        who = f"by {waiting.by}" if waiting.by else ""
        said = ": ".join(part for part in (who, waiting.note) if part)
        told = " · ".join(part for part in (said, told) if part)
    elif info.status is Status.sleeping and not told and waiting.due_at is not None:
        told = f"until {due_text(waiting.due_at, now=now)}"
    return told or info.now


def needs_answer(info: RunInfo) -> bool:
    """Does it wait for a person to answer a question?"""
    return info.status is Status.waiting and any(wait.kind is WaitKind.question for wait in waiting_of(info).waits)


def needs_you(info: RunInfo) -> bool:
    """Can the run not go on without a person?"""
    return info.status in _STUCK or needs_answer(info)


def next_steps(info: RunInfo, source: str | None) -> list[str]:
    """The commands with which a person lets it go on; `source` is the file that it was last executed from."""
    run = info.id
    if isinstance(reasons.of(info.reason or {}), Frozen):
        return [hint("fork", run)]
    if info.is_lost:
        return [resume_hint(run, source)]
    match info.status:
        case Status.waiting:
            open_ = waiting_of(info).waits
            asked = [answer_hint(wait.question) for wait in open_ if wait.question is not None]
            return [*asked, *(send_hint(run, wait.name) for wait in open_ if wait.kind is WaitKind.signal)]
        case Status.in_doubt:
            return [hint("in-doubt", run)]
        case Status.paused:
            return [hint("resume", run)]
        case Status.blocked:
            return [hint("show", run), resume_hint(run, source)]
        case Status.failed:
            return [resume_hint(run, source, options=("--retry",))]
        case _:
            return []
