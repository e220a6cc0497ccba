"""What a run does to other runs: durable calls that the other side knows by a derived id, so none happens twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.calls import Body, Options, Retry
from holdfast.errors import (
    AlreadyDecided,
    AlreadySettled,
    ConflictingSend,
    CorruptJournal,
    QuestionChanged,
    RunFinished,
    RunMoved,
    RunNotFound,
    RunPruned,
    StoreError,
    UsageError,
)
from holdfast.scopes import in_branch
from holdfast.verbs.effect import EffectDefinition, Rules
from holdfast.verbs.values import this_step

_REFUSALS = (
    UsageError,
    RunFinished,
    RunNotFound,
    RunPruned,
    RunMoved,
    AlreadyDecided,
    AlreadySettled,
    QuestionChanged,
    ConflictingSend,
    CorruptJournal,
)


async def outward(name: str, body: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call `body` as an effect that may be repeated after a crash: whoever it reaches knows the second one."""
    options = Options(f"hf.{name}", Retry(100, most=5.0), None, (StoreError,), _REFUSALS)
    return await EffectDefinition(Body(body), options, Rules("retry", 0, is_closure=True)).call(args, {})


async def emit(event: str, value: Any = None, *, dedup: str | None = None) -> str:
    """Inside a run: emit an event, as `app.emit` does outside. A replay does not emit it again. Its id.

    Example: `await hf.emit("report.ready", {"id": 7})`
    """
    run = in_branch("hf.emit()").run

    async def emit(event: str, value: Any) -> str:
        try:
            return await run.host.emit(event, value, dedup=dedup or this_step().idempotency_key)
        except ConflictingSend as conflict:
            if dedup is not None:
                raise
            return conflict.known  # its own id: it was emitted just before a crash, whatever the code says now

    return str(await outward("emit", emit, (event, value)))
