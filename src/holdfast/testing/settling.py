"""Settling effects in doubt from a test, as a person would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.app import connect
from holdfast.handle.decisions import InDoubt
from holdfast.testing.reading import in_own_loop
from holdfast.verbs.effect.settling import Verdict


def resolve(
    url: str, run_id: str, decide: Callable[[InDoubt], Verdict[Any] | Exception], *, by: str = "test"
) -> list[str]:
    """Settle every effect in doubt of a run and of the runs it started, as a person would; the keys that were settled.

    The verdicts are stored when this returns; the run acts on them when it is taken up again. For `drive=` of
    `assert_survives`.

    Example: `resolve(url, "issue-7", lambda doubt: hf.landed(sent[doubt.idempotency_key]))`
    """

    async def settle() -> list[str]:
        async with connect(url) as app:
            doubts = [d for d in await app.in_doubt() if d.run_id == run_id or d.run_id.startswith(f"{run_id}.")]
            for doubt in doubts:
                await doubt.resolve(decide(doubt), by=by)
            return [doubt.key for doubt in doubts]

    return in_own_loop(settle)
