"""Values that a run must see the same way every time: the time, ids, randomness, code changes; and what it reports."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from math import isfinite

from holdfast.base.clock import now_us
from holdfast.base.data import data
from holdfast.base.ids import new_uuid
from holdfast.errors import NotInRun, UsageError
from holdfast.model import SCHEDULED_AT, TAGS, Kind, NoteKind
from holdfast.model.notes import OWN_USAGE
from holdfast.running.call import place
from holdfast.running.scopes import Scope, StepInfo, in_branch, scope_or_none

_NOW = "hf.now"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> datetime:
    """The time, in UTC, as it was when the run first asked.

    Recorded: a resumed run gets the same answer. Outside of a run it is the clock's time.

    Example: `deadline = hf.now() + timedelta(days=2)`
    """
    scope = scope_or_none()
    if scope is None or scope.body is not None:
        return _EPOCH + timedelta(microseconds=now_us())
    scope = in_branch("hf.now()")
    run = scope.run
    key, entry = place(scope, _NOW)
    if entry is not None and entry.outcome is not None:
        run.ticks.at_once(entry)
        return _EPOCH + timedelta(microseconds=int(entry.outcome.payload or 0))
    at = now_us()
    run.journal.add(Kind.done, key, _NOW, payload=str(at))
    return _EPOCH + timedelta(microseconds=at)


def uuid4() -> uuid.UUID:
    """A random id that is the same every time this place of the run is reached.

    Nothing is recorded: it follows from the run's secret nonce and the place.

    Example: `order = str(hf.uuid4())`
    """
    scope = scope_or_none()
    if scope is None or scope.body is not None:
        return new_uuid()
    return uuid.UUID(bytes=_derived(in_branch("hf.uuid4()"), "uuid4")[:16], version=4)


def rng() -> random.Random:
    """A random number generator that gives the same numbers every time this place of the run is reached.

    Example: `choice = hf.rng().choice(options)`
    """
    scope = scope_or_none()
    if scope is None or scope.body is not None:
        return random.Random()  # noqa: S311
    return random.Random(_derived(in_branch("hf.rng()"), "rng"))  # noqa: S311


def _derived(scope: Scope, what: str) -> bytes:
    name = f"hf.{what}"
    scope.count(name)
    place = scope.run.random_place(scope.path, f"{scope.prefix()}{name}#{scope.calls[name]}")
    return blake2b(place.encode(), digest_size=32).digest()


def patched(patch_id: str) -> bool:
    """Is this run to take the new code path? True for runs that reach this place anew, False for those past it.

    Guard changed code with it: a run that was recorded with the old code goes on with the old code, for ever.

    Example:
        if hf.patched("ask-legal-first"):
            await ask_legal(draft)
    """
    scope = in_branch("hf.patched()")
    if not isinstance(patch_id, str) or not patch_id:
        raise UsageError(f"hf.patched() takes the id of the change, a non-empty string; got {patch_id!r}.")
    run = scope.run
    replay = run.replay
    if replay.patches.has(patch_id):
        return True
    if not replay.patches.may_take(patch_id) or replay.has_left_calls:
        replay.patches.go_past(patch_id)
        return False
    replay.patches.take([patch_id], in_loop=run.turning.turn > 0)
    run.journal.add(Kind.patched, "", patch_id)
    return True


def progress(done: float, total: float | None = None, note: str = "") -> None:
    """Say how far the run is; shown in `holdfast runs` and `show`. It answers nothing and is not replayed.

    Example: `hf.progress(3, 10, "reading pages")`
    """
    scope = scope_or_none()
    if scope is None:
        return
    _check_numbers("hf.progress()", done=done, total=0 if total is None else total)
    state = {"done": done, "total": total, "note": note}
    scope.run.report(NoteKind.progress, state)


def usage(*, model: str, input_tokens: int = 0, output_tokens: int = 0, cost: float = 0.0) -> None:
    """Say what a model call used. Inside a step it is charged to that step; what a resume did not use again is saved.

    Example: `hf.usage(model=reply.model, input_tokens=812, output_tokens=190, cost=0.004)`
    """
    scope = scope_or_none()
    if scope is None:
        return
    _check_numbers("hf.usage()", input_tokens=input_tokens, output_tokens=output_tokens, cost=cost)
    used = {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens, "cost": cost}
    if scope.body is not None:
        scope.run.report(NoteKind.usage, used, key=scope.body.key)
        return
    # Between calls it has a place among them: what a replay says again is not counted again.
    replay = scope.run.replay
    scope.count(OWN_USAGE)
    key = f"{scope.prefix()}{OWN_USAGE}#{scope.calls[OWN_USAGE]}"
    if unplaced := replay.usage.get(""):
        unplaced.pop()  # it was told before, by a version that did not note where
    elif key not in replay.usage:
        scope.run.report(NoteKind.usage, used, key=key)


def _check_numbers(verb: str, **given: float) -> None:
    for name, value in given.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
            raise UsageError(f"{verb} takes numbers; {name}= is {value!r}.")


@data
class ThisRun:
    """The run that the code is part of."""

    id: str
    thread_id: str
    token: str
    tags: Mapping[str, str]  #: that it was started with
    scheduled_at: datetime | None  #: the time of its schedule that it is for, in UTC, however late it is
    is_replaying: bool  #: answers still come from the journal
    turn: int  #: of its loop (`hf.turns`); 0 before it, and without one
    parking: bool  #: this execution is being torn down; a `finally` may want to know


def this_run() -> ThisRun:
    """The current run: who it is, its tags, and when it was scheduled for.

    Example: `day = hf.this_run().scheduled_at or hf.now()`
    """
    scope = scope_or_none()
    if scope is None:
        raise NotInRun("hf.this_run() works inside a run only.")
    run = scope.run
    summary = run.journal.summary
    due = summary.get(SCHEDULED_AT)
    return ThisRun(
        id=run.id,
        thread_id=run.thread_id,
        token=f"{run.id}@{run.thread_id}",
        tags=dict(summary.get(TAGS, {})),
        scheduled_at=None if due is None else _EPOCH + timedelta(microseconds=due),
        is_replaying=run.replay.unclaimed > 0,
        turn=run.turning.turn,
        parking=run.life.parking,
    )


def this_step() -> StepInfo:
    """The current step or effect: name, key, attempt, idempotency key.

    Example: `await mailer.send(to, body, key=hf.this_step().idempotency_key)`
    """
    scope = scope_or_none()
    if scope is None or scope.body is None:
        raise NotInRun("hf.this_step() works inside the body of a step or effect that is part of a run.")
    return scope.body
