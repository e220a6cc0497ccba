"""What a recorded call of an effect was begun with: that counts, whatever the code calls it with now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from holdfast.codec import decode_input, with_defaults_of
from holdfast.errors import Undecodable, UsageError
from holdfast.journal.mismatches import mismatch
from holdfast.running.scopes import Scope, where
from holdfast.verbs.effect.rules import RuledEffect

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class BegunCall(Protocol):
    """One call of an effect, as the code makes it."""

    scope: Scope
    run: RunContext
    definition: RuledEffect
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    args_text: str
    digest: str


async def begun_with(call: BegunCall, entry: Entry) -> Arguments | None:
    """What a call was begun with, if the code calls it with something else now; None if that does not matter."""
    is_same = entry.digest == call.digest
    if not _is_open(call, entry) or (is_same and call.run.text(entry.args) == call.args_text):
        return None
    return await _recorded(call, entry, is_same=is_same)


def _is_open(call: BegunCall, entry: Entry) -> bool:
    """May something be done with the arguments of a recorded call: settling, another attempt, an undo?"""
    if entry.args is None:
        return False  # it was cancelled before it began
    return entry.outcome is None or (call.definition.rules.undo is not None and call.scope.saga is not None)


async def _recorded(call: BegunCall, entry: Entry, *, is_same: bool) -> Arguments | None:
    """It is settled, tried again and undone with that. If it cannot be read, nobody may act on the call.

    `is_same`: it is called with the same, and only a default may be another.
    """
    run, fn = call.run, call.definition.body.fn
    if not call.definition.rules.is_closure:
        try:
            if is_same:
                return with_defaults_of(fn, call.args, call.kwargs, run.text(entry.args))
            return decode_input(fn, run.text(entry.args))
        except (Undecodable, UsageError):
            pass
    if entry.outcome is not None:
        return None  # its answer stands; only its undo gets other arguments
    if entry.given is not None or run.inbox.has_verdict(entry.key):
        return None  # a person has said what became of it
    await run.block(
        mismatch(
            asked=f"{entry.key} with other arguments",
            where=where(call.scope),
            recorded=[entry],
            attempted=run.replay.attempted.get(entry.branch, []),
        )
    )
    raise AssertionError("a blocked run goes on")
