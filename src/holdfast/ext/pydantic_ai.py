"""Agents of Pydantic AI, unmodified, that go on where they were.

    from holdfast.ext.pydantic_ai import durable

    bot = durable(agent)
    hf.run(bot("go"), id="case-7")

Each request to a model is a step. Each call of a tool is an effect, unless its metadata says otherwise:
`metadata={"holdfast": "step"}` may be repeated; `"inside"` makes durable calls itself (an agent as a tool, `hf.ask`);
a dict is options of an effect: `{"holdfast": {"on_doubt": "fail", "verify": find}}`. Keys are made of the run of the
agent, its step and the id of the call: `bot:1/2/mail/call_7/mail#1`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_ai import Agent, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import CapabilityOrdering
from pydantic_ai.durable_exec import conversation_id_from_run_id
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailedError,
    ToolRetryError,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturn, ToolReturnPart, UserContent
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDefinition, ToolDenied
from pydantic_core import to_jsonable_python

import holdfast as hf
from holdfast import ext

T = TypeVar("T")

_PATHS = "pydantic_ai"
_PROVEN = (ModelRetry, ToolRetryError, ToolFailedError, CallDeferred, ApprovalRequired)


class _Told:
    """What a tool ended with: a value, or what it wants the framework to do instead."""

    def __init__(self, how: str, what: Any) -> None:
        self.how, self.what = how, what

    @classmethod
    def of(cls, error: BaseException) -> _Told:
        match error:
            case ToolRetryError(tool_retry=ToolReturnPart() as part) | ToolFailedError(tool_failed=part):
                return cls("failed" if isinstance(error, ToolFailedError) else "retried", part)
            case CallDeferred(metadata=metadata):
                return cls("deferred", metadata)
            case ApprovalRequired(metadata=metadata):
                return cls("approval", metadata)
            case _:
                return cls("retry", str(error))

    @property
    def value(self) -> Any:
        """The value; else it raises what the tool raised."""
        match self.how:
            case "value" | "return":
                return self.what
            case "failed":
                raise ToolFailedError(self.what)
            case "retried":
                raise ToolRetryError(self.what)
            case "deferred":
                raise CallDeferred(self.what)
            case "approval":
                raise ApprovalRequired(self.what)
            case _:
                raise ModelRetry(self.what)


_RETURN: TypeAdapter[ToolReturn] = TypeAdapter(ToolReturn)
_PART: TypeAdapter[ToolReturnPart] = TypeAdapter(ToolReturnPart)


def _dump(told: _Told) -> Any:
    if isinstance(told.what, ToolReturn):
        return {"return": _RETURN.dump_python(told.what, mode="json")}
    if isinstance(told.what, ToolReturnPart):
        return {told.how: _PART.dump_python(told.what, mode="json")}
    return {told.how: to_jsonable_python(told.what)}


def _load(stored: Any) -> _Told:
    ((how, what),) = stored.items()
    if how == "return":
        what = _RETURN.validate_python(what)
    elif how in ("failed", "retried"):
        what = _PART.validate_python(what)
    return _Told(how, what)


_MODEL = ext.Operation("model", returns=ModelResponse, raises=(AgentRunError, UserError, ModelRetry))
_RESULT: ext.Codec[_Told] = ext.Codec(dump=_dump, load=_load, outside=lambda result: _Told("value", result))


class Durability(AbstractCapability[Any]):
    """What makes one run of an agent durable: `await agent.run(prompt, capabilities=[Durability()])` inside a run.

    `retries` are of requests to the model. Outside of a run it does nothing.

    Example: `result = await agent.run("go", capabilities=[Durability()])`
    """

    def __init__(self, *, retries: int | hf.Retry = 0) -> None:
        self._model = (
            _MODEL
            if retries == 0
            else ext.Operation(
                "model", returns=ModelResponse, raises=(AgentRunError, UserError, ModelRetry), retries=retries
            )
        )
        self._tools: dict[str, ext.Operation] = {}
        self._path = ""
        self._name = "agent"

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    def for_agent(self, agent: Any) -> AbstractCapability[Any]:
        bound = copy.copy(self)
        bound._name = agent.name or "agent"
        return bound

    def get_default_run_id(self) -> str | None:
        # Here the user's own task is still at work: what comes next is called by tasks of the framework.
        if not ext.active():
            return None
        path = ext.occurrence(self._name)
        run_id = f"{hf.this_run().id}/{path}"
        ext.local().setdefault(_PATHS, {})[run_id] = path
        return run_id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if ext.active() else None

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        bound = copy.copy(self)
        if ext.active():
            given = f"{ext.segment(self._name)}:{ext.segment(ctx.run_id or '')}"  # who names a run names it once
            bound._path = ext.local().get(_PATHS, {}).get(ctx.run_id, given)
        return bound

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        if not ext.active():
            response: ModelResponse = await handler(request_context)
            return response
        with ext.place(self._path, sealed=True):
            shown = {"step": ctx.run_step, "messages": len(request_context.messages)}
            return await self._model(lambda: handler(request_context), shown=shown)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        if not ext.active():
            return await handler(args)
        said = (tool_def.metadata or {}).get("holdfast", "effect")
        if said == "inside":
            with ext.place(self._place(ctx, call)):
                return await handler(args)
        with ext.place(self._place(ctx, call), sealed=True):
            told: _Told = await self._operation(call.tool_name, said)(lambda: _told(handler, args), shown=args)
        return told.value

    def _place(self, ctx: RunContext[Any], call: ToolCallPart) -> str:
        return f"{self._path}/{ctx.run_step}/{ext.segment(call.tool_name)}/{ext.segment(call.tool_call_id)}"

    def _operation(self, name: str, said: Any) -> ext.Operation:
        found = self._tools.get(name)
        if found is None:
            options = dict(said) if isinstance(said, Mapping) else {"kind": said}
            found = self._tools[name] = ext.Operation(name, options.pop("kind", "effect"), codec=_RESULT, **options)
        return found

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """A person is asked for each call that needs approval, with its arguments shown; no process waits."""
        if not ext.active() or not requests.approvals:
            return None
        results = DeferredToolResults()
        for call in requests.approvals:
            with ext.place(self._place(ctx, call)):
                answer = await hf.ask(f"May {call.tool_name} be called?", hf.Approval, show=call.args_as_dict())
            results.approvals[call.tool_call_id] = True if answer.ok else ToolDenied(answer.note or "declined")
        return results


async def _told(handler: Any, args: Any) -> _Told:
    try:
        value = await handler(args)
    except _PROVEN as error:
        return _Told.of(error)
    return _Told("value", value)


def durable(
    agent: Agent[Any, T], *, name: str | None = None, deps: Callable[[], Any] | None = None, **options: Any
) -> hf.Agent[..., T]:
    """An agent of Holdfast that runs this one: prompt in, output out, typed by its `output_type`.

    `deps` makes the dependencies, once per execution: they are not stored. A crash repeats at most the request to the
    model that was under way; no call of a tool is repeated blindly. `options` are those of `Durability`.

    Example: `bot = durable(agent); hf.run(bot("go"), id="case-7")`
    """
    if not isinstance(agent, AbstractAgent):
        raise hf.UsageError(f"durable() takes an Agent of Pydantic AI; got {agent!r}.")
    capability = Durability(**options)

    async def run(
        prompt: str | Sequence[UserContent] | None = None, *, message_history: list[ModelMessage] | None = None
    ) -> Any:
        more = {} if deps is None else {"deps": deps()}
        result = await agent.run(prompt, message_history=message_history, capabilities=[capability], **more)
        return result.output

    return ext.made_agent(run, name=name or agent.name or "agent", returns=agent.output_type)
