"""Runs that a run starts and goes on without, and the handles of others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.base.clock import due_us
from holdfast.codec import coder_for, encode_error
from holdfast.durations import Duration
from holdfast.model import Kind, RunId, ThreadId, token_parts
from holdfast.running.call import DurableCall
from holdfast.running.children import REFUSALS, ChildStart, child_of, start_once
from holdfast.running.outcomes import answer, deliver, key_of
from holdfast.running.scopes import Scope, in_branch
from holdfast.verbs.agent import Agent, Call, check_call

if TYPE_CHECKING:
    from holdfast.handle.run import Run
    from holdfast.journal.replay import Entry

R = TypeVar("R")


async def start(
    call: Call[R],
    *,
    id: str | None = None,
    thread_id: str | None = None,
    queue: str | None = None,
    queue_key: str = "",
    priority: int = 0,
    delay: Duration | None = None,
    tags: Mapping[str, str] | None = None,
) -> Run[R]:
    """Inside a run: start another run and go on without waiting for it. A replay does not start it twice.

    The options are those of `app.start`. Without an `id` the run is known by its place in this one; with one, a run
    that exists is returned if agent and arguments are the same, else ConflictingStart is raised.

    Example: `side = await hf.start(summarise(page), queue="slow"); ...; text = await side.result()`
    """
    check_call(call, "hf.start()")
    due = due_us(delay, "delay=")
    how = ChildStart(id, thread_id, queue, queue_key, priority, due or 0, tags or {})
    scope = in_branch("hf.start()")
    child = await StartCall(scope, call, how).make()
    handle: Run[R] = scope.run.host.handle(child, ThreadId(thread_id or scope.run.thread_id))
    return handle


class StartCall(DurableCall[RunId]):
    """One start of another run."""

    __slots__ = ("call", "how")

    is_outward = True

    def __init__(self, scope: Scope, call: Call[Any], how: ChildStart) -> None:
        super().__init__(scope, call.agent.name, call.input.given)
        self.call = call
        self.how = how

    async def answer(self, entry: Entry) -> RunId:
        child = child_of(self.run, entry.key, entry)
        await answer(self.scope, entry, coder_for(str), REFUSALS)
        self.run.host.adopt_child(self.call, child)
        return child

    async def execute(self) -> RunId:
        scope, run = self.scope, self.run
        scope.enter_call()
        try:
            try:
                with run.activity.busy():
                    child, cancelled = await start_once(self, self.call, self.how)
            except REFUSALS as error:
                if key_of(error):  # nothing was started: that is how the call ended, at each replay too
                    await self._record(Kind.failed, encode_error(error))
                raise
            await self._record(Kind.done, json.dumps(child))
            if cancelled is not None:
                raise cancelled
            return child
        finally:
            scope.leave_call()

    async def _record(self, kind: Kind, payload: str) -> None:
        def record(tick: int) -> None:
            self.run.journal.add(kind, self.key, self.name, tick=tick, payload=payload)

        await deliver(self.scope, record, shielded=True)


@overload
def get(token: str) -> Run[Any]: ...
@overload
def get(token: str, agent: Agent[..., R]) -> Run[R]: ...
def get(token: str, agent: Agent[..., Any] | None = None) -> Run[Any]:
    """Inside a run: the handle of another run, by its token or id. It has no side effect.

    With its agent the result has the type that the agent returns.

    Example: `status = await hf.get(token).status()`
    """
    run = in_branch("hf.get()").run
    run_id, thread_id = token_parts(token, "hf.get()")
    handle: Run[Any] = run.host.handle(run_id, thread_id or run.thread_id)  # type: ignore[arg-type]
    return handle._of(agent)


async def resume(token: str) -> Run[Any]:
    """Inside a run: have another run go on, if it is paused, blocked or left over.

    Example: `await hf.resume(token)`
    """
    run = get(token)
    await run.resume()
    return run
