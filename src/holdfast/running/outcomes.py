"""How the code hears of an outcome: of a recorded one as it once did, of a new one when it is its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.base.shields import Shield
from holdfast.codec import Coder, decode_error
from holdfast.errors import ResultNotStored, Undecodable
from holdfast.model import Kind, NoteKind
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.cleaning import raise_kept
from holdfast.running.scopes import Scope, StepInfo

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry


def drop(info: StepInfo) -> None:
    """An attempt has failed: what it has put out is not recorded."""
    outputs = info.end()
    if outputs is not None:
        outputs.drop()


def remember_key(error: BaseException, key: str) -> BaseException:
    """Mark an exception with the call it came from, so that a retry of the run knows what to do again."""
    error.__dict__["_holdfast_key"] = key
    return error


def key_of(error: BaseException) -> str:
    """The call that an exception came from, if it is marked; else nothing."""
    return str(error.__dict__.get("_holdfast_key", ""))


async def answer(
    scope: Scope,
    entry: Entry,
    coder: Coder[Any],
    raises: tuple[type[BaseException], ...],
    *,
    on_turn: Callable[[], None] | None = None,
) -> Any:
    """What the journal knows of a call, delivered as it once was.

    `on_turn` is called at its tick, whether or not the call is cancelled then.
    """
    run = scope.run
    outcome = entry.outcome
    assert outcome is not None
    if run.activity.lines == 1:
        run.ticks.at_once(entry)
        if on_turn is not None:
            on_turn()
    else:
        await _wait_turn(scope, entry, on_turn)
    run.receipt.answered(entry, run.replay.usage)
    match outcome.kind:
        case Kind.done:
            try:
                return coder.loads(run.text(outcome.payload), what=f"the recorded result of {entry.key}")
            except Undecodable as error:
                await run.block(Blocked(Trouble(Cause.result, entry.key, outcome.seq, str(error))))
        case Kind.failed:
            raise remember_key(decode_error(run.text(outcome.payload), raises), entry.key)
        case Kind.unstored:
            raise not_stored(entry.key, run.id)
        case _:
            raise AssertionError(outcome.kind)


def not_stored(key: str, run_id: str) -> ResultNotStored:
    return ResultNotStored(
        f"Run {run_id}: {key} happened, but its result could not be stored; it is not repeated. "
        "Return something that can be stored (annotate the return type), and see `holdfast show` for what it was."
    )


async def _wait_turn(scope: Scope, entry: Entry, on_turn: Callable[[], None] | None) -> None:
    """Return when the recorded outcome is to be delivered, as many turns of the loop after its tick as it was live.

    An effect is shielded, as it was: a cancellation arrives after its outcome, and that takes one turn more.
    """
    run = scope.run
    is_shielded = entry.is_effect and entry.child is None
    turn: asyncio.Future[None] = run.life.loop.create_future()

    def come() -> None:
        if on_turn is not None:
            on_turn()
        if not turn.done():
            turn.set_result(None)

    if entry.delivered:
        run.journal.add(Kind.noted, entry.key, NoteKind.late)
    scope.enter_call()
    run.ticks.await_recorded(entry, come)
    try:
        if not is_shielded:
            await turn
            return
        shield = Shield(run.life.is_dead)
        try:
            await shield.wait(turn)
            await shield.drive(asyncio.sleep(0))
        finally:
            shield.close()
    finally:
        scope.leave_call()
    raise_kept(scope, shield)


async def deliver(scope: Scope, record: Callable[[int], None], *, shielded: bool = False) -> None:
    """Have the outcome of a live call recorded, and return when it is the call's turn.

    `shielded`: the outcome is recorded even if the code cancels the call now.
    """
    run = scope.run
    if run.activity.lines == 1:
        record(run.ticks.next_tick())
        if run.journal.is_backlogged:
            await run.journal.wait_backlog()
        return
    if run.journal.is_backlogged:
        await (
            run.journal.wait_backlog()
        )  # before its turn: what comes after that happens in a fixed number of loop turns
    turn: asyncio.Future[None] = run.life.loop.create_future()

    def complete(tick: int) -> None:
        record(tick)
        if not turn.done():
            turn.set_result(None)

    run.ticks.complete(complete)
    try:
        await turn
    except asyncio.CancelledError:
        if not shielded:
            run.ticks.withdraw(complete)
        raise
