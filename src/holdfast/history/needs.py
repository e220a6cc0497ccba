"""What a parked run needs of somebody: an answer, a signal, a verdict; its own needs, and those of runs it waits for.

A deadline does not make a need go away. Whoever waits for the run is told what it needs in any case; whether to go on
waiting is a matter of when something happens without anybody (`Needs.is_far`).
"""

from __future__ import annotations

from typing import Final, assert_never

from holdfast.base.clock import now_us
from holdfast.base.data import data
from holdfast.base.hints import answer_hint, hint, send_hint
from holdfast.journal.evidence import how_it_ended, how_to_declare, how_verify_failed
from holdfast.model import RunId, RunRow, Status, Wait, WaitKind, reasons
from holdfast.model.diagnoses import OverBudget
from holdfast.model.reasons import Blocked, Reason
from holdfast.store.contract import Store

#: Who waits for a run stays for what is due within so many seconds.
PATIENCE_S: Final = 60

#: Nothing but a person changes these.
STUCK: Final = frozenset({Status.blocked, Status.in_doubt, Status.quarantined})


@data
class Need:
    """One thing that somebody has to do."""

    key: str  #: tells it from others: the question, or the run and its wait
    text: str  #: a sentence about the run that was asked for, and one that tells what to do
    command: str


@data
class Needs:
    """All that a run needs, and what happens if nobody does anything."""

    open: tuple[Need, ...]
    due_us: int | None  #: when something is due
    goes_on: bool  #: a run that it waits for is under way

    @property
    def is_far(self) -> bool:
        """Does nothing happen by itself within a minute, if ever?"""
        if self.goes_on:
            return False
        return self.due_us is None or (bool(self.open) and self._is_due_late)

    @property
    def is_long_sleep(self) -> bool:
        """Does it need nobody, and nothing happens within a minute all the same?"""
        return not self.open and not self.goes_on and self._is_due_late

    @property
    def _is_due_late(self) -> bool:
        return self.due_us is not None and self.due_us - now_us() > PATIENCE_S * 1_000_000


async def needs_of(store: Store, row: RunRow) -> Needs:
    """What a run that waits, or is paused, needs.

    Example: `for need in (await needs_of(store, row)).open: print(need.text, need.command)`
    """
    open_: list[Need] = []
    due: list[int] = []
    goes_on = await _collect(store, row, f"Run {row.id}", open_, due, {row.id})
    return Needs(tuple(open_), min(due, default=None), goes_on)


async def _collect(store: Store, row: RunRow, who: str, open_: list[Need], due: list[int], seen: set[RunId]) -> bool:
    """Add what a run needs to the lists; whether it, or what it waits for, is under way."""
    if row.status is Status.paused:
        open_.append(_need(row, who, "is paused", hint("resume", row.id), "Have it go on with"))
    elif row.status is Status.in_doubt:
        open_ += doubts_needed(row.id, who, row.reason)
    elif isinstance(row.reason, Blocked) and isinstance(row.reason.found, OverBudget):
        over = row.reason.found
        step = hint("resume", over.owner, options=("--budget", f"{over.what}=AMOUNT"))
        open_.append(_need(row, who, f"is blocked: the budget of run {over.owner} is used up", step, "Raise it with"))
    elif row.status in STUCK:
        open_.append(_need(row, who, f"is {row.status}", hint("show", row.id), "See"))
    elif row.status not in (Status.waiting, Status.sleeping):
        return True  # if it has just ended, whoever waits for it is about to hear of it
    else:
        if (due_us := reasons.due_of(row.reason)) is not None:
            due.append(due_us)
        waits = reasons.waits_of(row.reason)
        found = [await _of_wait(store, row, wait, who, open_, due, seen) for wait in waits]
        return any(found)
    return False


async def _of_wait(
    store: Store, row: RunRow, wait: Wait, who: str, open_: list[Need], due: list[int], seen: set[RunId]
) -> bool:
    match wait.kind:
        case WaitKind.question:
            text = _sentence(f"{who} asks: {wait.prompt}")
            step = answer_hint(wait.question)
            open_.append(Need(wait.question, f"{text} Answer with `{step}`.", step))
        case WaitKind.signal:
            step = send_hint(row.id, wait.name)
            text = f"{who} waits for signal {wait.name!r}; send it with `{step}`."
            open_.append(Need(f"{row.id}/{wait.key}", text, step))
        case WaitKind.child:
            child = await store.run(RunId(wait.child)) if wait.child not in seen else None
            if child is not None:
                seen.add(child.id)
                return await _collect(store, child, f"{who} waits for run {child.id}, which", open_, due, seen)
        case WaitKind.timer | WaitKind.doubt | WaitKind.unknown:
            pass
        case _:
            assert_never(wait.kind)
    return False


def _need(row: RunRow, who: str, state: str, step: str, verb: str) -> Need:
    return Need(f"{row.id}/{row.status}", f"{who} {state}. {verb} `{step}`.", step)


def doubts_needed(run_id: str, who: str, reason: Reason | None) -> list[Need]:
    """The verdicts that a run in doubt needs; `who` is what the sentences begin with."""
    step = hint("in-doubt", run_id)
    found = []
    for wait in reasons.doubts_of(reason):
        told = [
            f"{who} is in doubt about {wait.key}: {how_it_ended(wait.shown)}.",
            how_verify_failed(wait.shown),
            f"Look at the evidence with `{step}`, then settle it with `{hint('resolve', run_id, wait.key)}`.",
            how_to_declare(wait.shown),
        ]
        found.append(Need(f"{run_id}/{wait.key}", " ".join(part for part in told if part), step))
    return found


def _sentence(text: str) -> str:
    """The prompt may end as its author likes; what follows it begins a new sentence."""
    return text if text.rstrip().endswith((".", "?", "!", "…", ":")) else f"{text}."
