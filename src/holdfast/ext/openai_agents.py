"""Agents of the OpenAI Agents SDK that go on where they were: `run` and `run_streamed` in place of Runner's.

    from holdfast.ext.openai_agents import durable, run

    bot = durable(agent)                 # or, inside an agent of your own: result = await run(agent, "go")
    hf.run(bot("go"), id="case-7")

Each request to a model is a step, each call of a tool an effect, unless `durable_tool` says otherwise. Models and tools
are wrapped in place, so that agents stay the objects they are. The effect lies inside the SDK's handler of failures,
which hears of proven ones only. Keys: `bot:1/model#2`, `bot:1/2/mail/call_7/mail#1`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final

from agents import Agent, FunctionTool, ModelResponse, RunConfig, Runner, RunResult, RunResultStreaming
from agents.exceptions import ModelBehaviorError, UserError
from agents.items import TResponseStreamEvent
from agents.models.interface import Model, ModelProvider
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

import holdfast as hf
from holdfast import ext
from holdfast.ext.mcp import RESULT

_MARK: Final = "_holdfast"
_RESPONSE: Final[TypeAdapter[ModelResponse]] = TypeAdapter(ModelResponse)
_EVENTS: Final[TypeAdapter[list[TResponseStreamEvent]]] = TypeAdapter(list[TResponseStreamEvent])
#: What the SDK raises about arguments that a model made up, before a tool is called.
_PROVEN: Final = (ModelBehaviorError, UserError)
_OUTPUT: Final[ext.Codec[Any]] = ext.Codec(dump=to_jsonable_python, load=lambda got: got, outside=lambda got: got)


def _stored(kind: TypeAdapter[Any]) -> ext.Codec[Any]:
    def dump(value: Any) -> Any:
        return kind.dump_python(value, mode="json", exclude_unset=True, by_alias=True)

    return ext.Codec(dump=dump, load=kind.validate_python, outside=kind.validate_python)


_MODEL: Final = ext.Operation("model", codec=_stored(_RESPONSE), raises=(Exception,))
_STREAM: Final = ext.Operation("model", codec=_stored(_EVENTS), raises=(Exception,))


@dataclasses.dataclass
class _Bot:
    """One run of an agent: where its calls are named, and how many requests its model was sent."""

    path: str
    turn: int = 0


_bot: ContextVar[_Bot | None] = ContextVar("holdfast_openai_agents", default=None)


def place_of_bot() -> str | None:
    """Where the calls of the current run of an agent are named, if there is one."""
    bot = _bot.get()
    return bot.path if bot is not None else None


class _DurableModel(Model):
    """A model whose requests are steps."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        bot = _bot.get()
        if bot is None or not ext.active():
            return await self._inner.get_response(*args, **kwargs)
        bot.turn += 1
        with ext.place(bot.path, sealed=True):
            return await _MODEL(lambda: self._inner.get_response(*args, **kwargs), shown={"turn": bot.turn})

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        bot = _bot.get()
        if bot is None or not ext.active():
            async for event in self._inner.stream_response(*args, **kwargs):
                yield event
            return
        bot.turn += 1
        request = functools.partial(self._inner.stream_response, *args, **kwargs)
        answer = ext.streamed(_STREAM, request, path=bot.path, shown={"turn": bot.turn})
        async with aclosing(answer) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        await self._inner.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self._inner.get_retry_advice(request)


class _DurableProvider(ModelProvider):
    """A provider of such models."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    def get_model(self, model_name: str | None) -> Model:
        return _durable_model(self._inner.get_model(model_name))


def _durable_model(model: Model) -> Model:
    return model if isinstance(model, _DurableModel) else _DurableModel(model)


def durable_tool(tool: FunctionTool, *, kind: str = "effect", **options: Any) -> FunctionTool:
    """Say how calls of a tool are recorded: "effect", "step", or "inside", for one that makes durable calls itself.

    `options` are those of `ext.Operation`: `raises`, `retries`, `on_doubt`, `verify`. The tool is changed in place.

    Example: `mail = durable_tool(mail, raises=(Refused,), verify=find_sent)`
    """
    if not isinstance(tool, FunctionTool):
        raise hf.UsageError(f"durable_tool() takes what @function_tool made of a function; got {tool!r}.")
    found = getattr(tool.on_invoke_tool, _MARK, None)
    if found is not None:
        raise hf.UsageError(f"The tool {tool.name} is durable already: say how before its agent runs, and once.")
    _wrap_tool(tool, kind, options)
    return tool


def _wrap_tool(tool: FunctionTool, kind: str, options: Mapping[str, Any]) -> None:
    timeout_s, tool.timeout_seconds = (
        tool.timeout_seconds,
        None,
    )  # a timer of the SDK's would tell another story on replay
    raises = options.get("raises", ())
    more = {**options, "raises": (*_PROVEN, *(raises if isinstance(raises, tuple) else (raises,)))}
    operation = None if kind == "inside" else ext.Operation(tool.name, kind, codec=_OUTPUT, timeout=timeout_s, **more)  # type: ignore[arg-type]

    def around(invoke: Callable[[Any, str], Awaitable[Any]]) -> Callable[[Any, str], Awaitable[Any]]:
        @functools.wraps(invoke)
        async def durable(ctx: Any, arguments: str) -> Any:
            bot = _bot.get()
            if bot is None or not ext.active():
                return await invoke(ctx, arguments)
            path = f"{bot.path}/{bot.turn}/{ext.segment(tool.name)}/{ext.segment(ctx.tool_call_id)}"
            token = _bot.set(_Bot(path))  # an agent that is called as a tool counts by itself
            try:
                with ext.place(path, sealed=operation is not None):
                    if operation is None:
                        return await invoke(ctx, arguments)
                    return await operation(lambda: invoke(ctx, arguments), shown=_shown(arguments))
            finally:
                _bot.reset(token)

        return durable

    invoker: Any = tool.on_invoke_tool
    if hasattr(invoker, "_invoke_tool_impl"):  # inside the handler of failures, which is a part of this
        invoker._invoke_tool_impl = around(invoker._invoke_tool_impl)
    else:
        tool.on_invoke_tool = invoker = around(invoker)
    setattr(invoker, _MARK, True)


def _wrap_server(server: Any) -> None:
    """Tools of an MCP server: effects, known by their arguments and their count among the same ones in a turn."""
    inner, operations = server.call_tool, dict[str, ext.Operation]()

    async def call_tool(tool_name: str, arguments: dict[str, Any] | None, *args: Any, **more: Any) -> Any:
        bot = _bot.get()
        if bot is None or not ext.active():
            return await inner(tool_name, arguments, *args, **more)
        if tool_name not in operations:
            operations[tool_name] = ext.Operation(tool_name, "effect", codec=RESULT)
        path = f"{bot.path}/{bot.turn}/{ext.segment(tool_name)}"
        mark = hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()[:12]
        counts: dict[str, int] = ext.local().setdefault(f"{_MARK}{ext.turn()}{path}", {})
        counts[mark] = counts.get(mark, 0) + 1
        with ext.place(path, sealed=True):
            call = operations[tool_name]
            return await call(
                lambda: inner(tool_name, arguments, *args, **more), key=f"{mark}.{counts[mark]}", shown=arguments or {}
            )

    setattr(call_tool, _MARK, True)
    server.call_tool = call_tool


def _shown(arguments: str) -> Mapping[str, Any]:
    try:
        found = TypeAdapter(dict[str, Any]).validate_json(arguments or "{}")
    except ValueError:
        return {"arguments": arguments}
    return found


def _prepare(agent: Any, known: set[int]) -> None:
    """Wrap what an agent uses, and what those use that it hands over to."""
    if not isinstance(agent, Agent) or id(agent) in known:
        return
    known.add(id(agent))
    if isinstance(agent.model, Model):
        agent.model = _durable_model(agent.model)
    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            inner = getattr(tool, "_agent_instance", None)
            if not getattr(tool.on_invoke_tool, _MARK, False):
                _wrap_tool(tool, "inside" if inner is not None else "effect", {})
            _prepare(inner, known)
    for server in agent.mcp_servers:
        if not getattr(server.call_tool, _MARK, False):
            _wrap_server(server)
    for handoff in agent.handoffs:
        reference = getattr(handoff, "_agent_ref", None)
        _prepare(handoff if isinstance(handoff, Agent) else reference() if reference is not None else None, known)


def _prepared(agent: Agent[Any], run_config: RunConfig | None) -> RunConfig:
    _prepare(agent, set())
    config = run_config or RunConfig()
    model = _durable_model(config.model) if isinstance(config.model, Model) else config.model
    return dataclasses.replace(config, model=model, model_provider=_DurableProvider(config.model_provider))


async def run(agent: Agent[Any], input: Any, *, run_config: RunConfig | None = None, **options: Any) -> RunResult:
    """As `Runner.run`, inside a run of Holdfast; a call that needs approval is a question. Outside of one it is that.

    Example: `result = await run(agent, "go")`
    """
    config = _prepared(agent, run_config)
    if not ext.active():
        return await Runner.run(agent, input, run_config=config, **options)
    bot = _Bot(ext.occurrence(agent.name))
    token = _bot.set(bot)
    try:
        result = await Runner.run(agent, input, run_config=config, **options)
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                arguments = _shown(str(getattr(item.raw_item, "arguments", "") or ""))
                with ext.place(
                    f"{bot.path}/{bot.turn}/{ext.segment(item.name or 'tool')}/{ext.segment(item.call_id or '')}"
                ):
                    answer = await hf.ask(f"May {item.name} be called?", hf.Approval, show=arguments)
                if answer.ok:
                    state.approve(item)
                else:
                    state.reject(item)
            result = await Runner.run(agent, state, run_config=config, **options)
        return result
    finally:
        _bot.reset(token)


def run_streamed(
    agent: Agent[Any], input: Any, *, run_config: RunConfig | None = None, **options: Any
) -> RunResultStreaming:
    """As `Runner.run_streamed`: events arrive live, and on replay as they were recorded.

    Example: `async for event in run_streamed(agent, "go").stream_events(): ...`
    """
    config = _prepared(agent, run_config)
    token = _bot.set(_Bot(ext.occurrence(agent.name)) if ext.active() else None)
    try:
        return Runner.run_streamed(agent, input, run_config=config, **options)
    finally:
        _bot.reset(token)


def durable(agent: Agent[Any], *, name: str | None = None, **options: Any) -> hf.Agent[..., Any]:
    """An agent of Holdfast that runs this one: input in, `final_output` out. `options` are those of `run`.

    Example: `bot = durable(agent); hf.run(bot("go"), id="case-7")`
    """
    if not isinstance(agent, Agent):
        raise hf.UsageError(f"durable() takes an Agent of the OpenAI Agents SDK; got {agent!r}.")

    async def drive(input: str) -> Any:
        return (await run(agent, input, **options)).final_output

    return ext.made_agent(drive, name=name or ext.segment(agent.name), returns=agent.output_type or str)
