"""A logger for agents: silent while the journal answers, and every line says which run and call it is of."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.running.scopes import Scope, current_scope

if TYPE_CHECKING:
    Adapter = logging.LoggerAdapter[logging.Logger]
else:
    Adapter = logging.LoggerAdapter


def logger(name: str) -> RunLogger:
    """A standard logger whose lines are not repeated by a replay, and name run, thread, turn and call.

    They are attributes of the record (`run_id`, `thread_id`, `turn`, `call`) and stand behind the message. Outside of
    runs it is the logger of that name. What was logged just before a crash may be logged again.

    Example:
        log = hf.logger(__name__)
        log.info("found %d pages", len(pages))  # found 3 pages [run=issue-7 thread=t_1 turn=0 call=]
    """
    return RunLogger(logging.getLogger(name), {})


class RunLogger(Adapter):
    """What `hf.logger` returns."""

    def isEnabledFor(self, level: int) -> bool:
        """Is anything to be logged now? Nothing is while the run replays."""
        scope = _scope()
        return not (scope is not None and _is_replaying(scope)) and self.logger.isEnabledFor(level)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log the message with where it comes from."""
        if not self.isEnabledFor(level):
            return
        scope = _scope()
        if scope is not None:
            place = _place(scope)
            told = f"[run={place['run_id']} thread={place['thread_id']} turn={place['turn']} call={place['call']}]"
            msg = f"{msg} {told.replace('%', '%%') if args else told}"
            kwargs["extra"] = {**(kwargs.get("extra") or {}), **place}
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the line that is named is the caller's
        self.logger.log(level, msg, *args, **kwargs)


def _scope() -> Scope | None:
    scope = current_scope()
    return scope if isinstance(scope, Scope) else None


def _place(scope: Scope) -> dict[str, Any]:
    call = scope.body.key if scope.body is not None else ""
    return {"run_id": scope.run.id, "thread_id": scope.run.thread_id, "turn": _turn(scope), "call": call}


def _is_replaying(scope: Scope) -> bool:
    """Do answers still come from the journal? A body is not replayed, nor is a branch that has executed one."""
    return scope.body is None and not scope.executed and scope.run.replay.unclaimed > 0


def _turn(scope: Scope) -> int:
    """The turn of the run that it is in: what is before the loop, or has none, is turn 0."""
    head = scope.path.partition("/")[0]
    return int(head[1:]) if head.startswith("@") and head[1:].isdecimal() else 0
