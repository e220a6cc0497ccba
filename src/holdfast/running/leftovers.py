"""Recorded effects that the code does not make any more: before a new one runs, none may be left that it might be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.journal.mismatches import mismatch
from holdfast.model import Kind
from holdfast.running.scopes import Scope, where

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext


async def refuse_left_over(scope: Scope, name: str, args_digest: str) -> None:
    """Before a new effect runs: block the run if a recorded one is left over that it might be."""
    run = scope.run
    if not run.may_have_left_over:
        return
    replay = run.replay
    await run.ticks.wait_replayed(lambda: not replay.has_left_over(scope.path, name, args_digest))
    left = without_settled(run, replay.left_over_effects(scope.path, name, args_digest))
    if left:
        attempted = replay.attempted.get(scope.path, [])
        detail = None
        if (other := replay.mistaken.get((name, args_digest))) is not None:
            detail = (
                f"An effect with these arguments is recorded as {other.key}, and a call with other arguments was "
                "taken for it: the same code makes its calls in another order, or with other values, than it did. "
                "Made again, it would happen twice. Give the code what it had (settings, data), or fork the run."
            )
        await run.block(
            mismatch(
                asked=f"{scope.prefix()}{name}", where=where(scope), recorded=left, attempted=attempted, detail=detail
            )
        )


def without_settled(run: RunContext, entries: list[Entry]) -> list[Entry]:
    """Those of the recorded calls, which the code no longer makes, that no person has settled."""
    left = []
    for entry in entries:
        given = run.inbox.take_verdict(entry.key)
        if given is None:
            left.append(entry)
        else:
            verdict, evidence = given["verdict"], {"cause": "code change"}
            record_verdict(
                run,
                entry.key,
                entry.name,
                attempt=entry.attempt,
                verdict=verdict,
                by="person",
                evidence=evidence,
                given=given,
            )
            entry.given = given
    return left


def record_verdict(
    run: RunContext,
    key: str,
    name: str,
    *,
    attempt: int,
    verdict: str,
    by: str,
    evidence: dict[str, Any],
    given: dict[str, Any] | None = None,
) -> None:
    """How an effect in doubt was settled, with the evidence; `given` is what a person said."""
    payload = {"verdict": verdict, "by": by, "evidence": evidence, "attempt": attempt, "given": given}
    run.journal.add(Kind.settled, key, name, attempt=attempt, payload=json.dumps(payload))
