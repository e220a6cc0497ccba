"""How an app starts runs: at once, by a schedule, by what a trigger heard, or once a transaction is committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.automation.outbox import start_later
from holdfast.automation.schedules.schedules import ScheduledStart
from holdfast.automation.triggers import TriggeredStart
from holdfast.codec import Input, input_of, schema
from holdfast.control import lifecycle, signals
from holdfast.errors import RunFinished, RunMoved, RunNotFound, Undecodable, UsageError
from holdfast.handle.run import Run
from holdfast.model import Act, RunId, ThreadId
from holdfast.running.scopes import scope_or_none
from holdfast.verbs.agent import Call, check_call
from holdfast.worker.executor import Executor
from holdfast.worker.starting import ANYWHERE, NewRun, QueuePlace

R = TypeVar("R")


class Starts:
    """Starts the runs that an app was asked for."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._store = executor.store

    async def start(
        self,
        call: Call[R],
        place: QueuePlace,
        *,
        run_id: str | None,
        thread_id: str | None,
        tags: Mapping[str, str] | None,
        transaction: Any,
    ) -> Run[R]:
        """A person's start: executed here if that may be, else stored for a worker."""
        check_call(call, "app.start()")
        if scope_or_none() is not None:
            raise UsageError("app.start() was called in the body of a step or effect; use `hf.start` in the agent.")
        here = self._executor
        if here.executes and call.agent.name not in here.declared:
            raise UsageError(_unknown(call.agent.name, here.declared))
        if here.executes and transaction is None:
            scene = None if place == ANYWHERE else place
            return await here.start(call, run_id=run_id, thread_id=thread_id, tags=tags, place=scene)
        new = NewRun.of(call, run_id=run_id, thread_id=thread_id, parent_id=None, tags=tags or {}, place=place)
        if transaction is None:
            run, _ = await here.put(new)
        else:
            later = await start_later(self._store, transaction, new)
            run = here.handle(RunId(later[0]), ThreadId(later[1]))
        return run._of(call.agent)

    async def scheduled(self, start: ScheduledStart, act: Act | None = None) -> None:
        """A time of a schedule has come; or somebody starts it by hand, which is their `act`."""
        given = Input.read(start.args_text, start.defaults)
        new = _new_run(start, given, place=QueuePlace(start.queue))
        await self._executor.put(replace(new, scheduled_at=start.scheduled_at), act=act)

    async def triggered(self, start: TriggeredStart) -> bool:
        """A trigger has heard of something; whether the run is new."""
        known = await signals.definition(self._store, start.agent)
        if not known.get("first"):
            raise UsageError(f"No worker has declared agent {start.agent!r} with an argument to take the event.")
        if problems := schema.problems_outside(known.get("takes"), start.text):
            found = "; ".join(problems[:5])
            raise Undecodable(f"The value does not fit {known['first']}= of agent {start.agent!r}: {found}.")
        given = input_of(known["first"], start.text, known.get("defaults", {}))
        new = _new_run(start, given, place=QueuePlace(start.queue or known.get("queue"), start.queue_key))
        _, is_new = await self._executor.put(replace(new, outside=known["first"]))
        return is_new

    async def signal(self, run_id: str, name: str, text: str, dedup: str) -> bool:
        """A run waits for the event that was emitted."""
        return await signals.send(self._store, RunId(run_id), name, text, dedup=dedup, by="event")

    async def cancel(self, run_id: RunId) -> None:
        """The run before, where a schedule has them replaced; one that is over by now is over."""
        with suppress(RunNotFound, RunFinished, RunMoved):
            await lifecycle.cancel(self._store, run_id, by="schedule", note="")


def _unknown(agent: str, declared: Collection[str]) -> str:
    return (
        f"This app executes {', '.join(sorted(declared))}, and not {agent}: nobody would go on with the run after a "
        f"crash. Pass {agent} to hf.connect(agents=[…]) too, or start it in an app without agents=, for a worker that "
        "has it."
    )


def _new_run(start: ScheduledStart | TriggeredStart, given: Input, *, place: QueuePlace) -> NewRun:
    return NewRun(
        start.agent,
        given.text,
        given.digest,
        start.run_id,
        tags=start.tags,
        place=place,
        args_given=given.given,
        defaults=given.defaults,
    )
