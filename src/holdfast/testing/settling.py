"""Settling effects in doubt from a test, and running what is asynchronous from code that is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.app import connect
from holdfast.handle import InDoubt
from holdfast.verbs.effect import Verdict

T = TypeVar("T")


def in_own_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine, run on a loop and a thread of its own: the caller may have a loop running."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(asyncio.run(make()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="holdfast-testing")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def resolve(
    url: str, run_id: str, decide: Callable[[InDoubt], Verdict[Any] | Exception], *, by: str = "test"
) -> list[str]:
    """Settle every effect of a run that is in doubt, as a person would; the keys that were settled.

    The verdicts are stored when this returns; the run acts on them when it is taken up again. For `drive=` of
    `assert_survives`.

    Example: `resolve(url, "issue-7", lambda doubt: hf.landed(sent[doubt.idempotency_key]))`
    """

    async def settle() -> list[str]:
        async with connect(url) as app:
            doubts = await app.get(run_id).in_doubt()
            for doubt in doubts:
                await doubt.resolve(decide(doubt), by=by)
            return [doubt.key for doubt in doubts]

    return in_own_loop(settle)
