"""Agents of Google's Agent Development Kit that go on where they were.

    from holdfast.ext.adk import durable

    bot = durable(agent)
    hf.run(bot("go"), id="case-7")

`Durability` is a plugin: each request to a model is a step, each call of a tool an effect, unless `durable_tool` says
otherwise. Models and tools are wrapped in place, just before they are used, so that callbacks and other plugins are
asked as ever. With the result of a tool is stored what it did to its context: state, artifacts, escalation. Keys:
`bot:1/model#2`, `bot:1/2/mail/call_7/mail#1`; an agent other than the first, or a branch, has a part of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.flows.llm_flows import functions as names
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool
from google.adk.workflow import Workflow  # noqa: F401  the runner needs it: loaded in a run, it would hold up the loop
from google.genai import types
from pydantic import TypeAdapter

import holdfast as hf
from holdfast import ext
from holdfast.ext.adk_values import ANSWER, RESULT, Told

_MARK: Final = "_holdfast"
_BOTS: Final = "adk"
_USER: Final = "user"
_MODEL: Final = ext.Operation("model", codec=ANSWER, raises=(Exception,))


@dataclasses.dataclass
class _Bot:
    """One invocation: where its calls are named, and how many requests were sent from each place."""

    path: str
    name: str
    turns: dict[str, int] = dataclasses.field(default_factory=dict[str, int])

    @classmethod
    def of(cls, invocation_id: str) -> _Bot | None:
        found: _Bot | None = ext.local().get(_BOTS, {}).get(invocation_id) if ext.active() else None
        return found

    def place(self, context: CallbackContext) -> str:
        """Of the agent that is at work: several may be, each in a branch of its own."""
        branch, agent = context.get_invocation_context().branch or "", context.agent_name
        last = branch.rpartition(".")[2].partition("@")[0]
        parts = [part for part in (branch, agent if agent not in (self.name, last) else "") if part]
        return "/".join([self.path, *map(ext.segment, parts)])


@dataclasses.dataclass
class _Request:
    """One that is about to be sent: from where, and whether a model of ours was given it."""

    path: str
    is_taken: bool = False


_asking: ContextVar[_Request | None] = ContextVar("holdfast_adk", default=None)


def _wrap_model(model: BaseLlm) -> None:
    inner = model.generate_content_async
    if hasattr(inner, _MARK):
        return

    async def generate_content_async(
        llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        async def named() -> AsyncIterator[LlmResponse]:
            async for response in inner(llm_request, stream):
                for part in (response.content and response.content.parts) or ():
                    if part.function_call and not part.function_call.id:  # the framework's would be new on each replay
                        part.function_call.id = f"{names.AF_FUNCTION_CALL_ID_PREFIX}{hf.uuid4().hex[:12]}"
                yield response

        if ext.active():
            asked = _asking.get() or _Request(ext.occurrence("model"))  # a request of no agent: a summary
            asked.is_taken = True
            # Tools are called before an answer has ended: but for parts of it, it is recorded before it is handed on.
            shown, is_part = {"messages": len(llm_request.contents)}, lambda response: bool(response.partial)
            answer = ext.streamed(_MODEL, named, path=asked.path, shown=shown, is_live=is_part)
        else:
            answer = inner(llm_request, stream)
        async with aclosing(answer) as responses:
            async for response in responses:
                yield response

    setattr(generate_content_async, _MARK, True)
    object.__setattr__(model, "generate_content_async", generate_content_async)  # it is no field of the model


def durable_tool(tool: BaseTool | Callable[..., Any], *, kind: str = "effect", **options: Any) -> BaseTool:
    """Say how calls of a tool are recorded: "effect", "step", or "inside", for one that makes durable calls itself.

    `options` are those of `ext.Operation`: `raises`, `retries`, `on_doubt`, `verify`. A tool is changed in place, of a
    function one is made.

    Example: `mail = durable_tool(mail, raises=(Refused,), verify=find_sent)`
    """
    made = tool if isinstance(tool, BaseTool) else FunctionTool(tool)
    if hasattr(made.run_async, _MARK):
        raise hf.UsageError(f"The tool {made.name} is durable already: say how before its agent runs, and once.")
    _wrap_tool(made, kind, options)
    return made


def _wrap_tool(tool: BaseTool, kind: str, options: Mapping[str, Any]) -> None:
    inner = tool.run_async
    operation = None if kind == "inside" else ext.Operation(tool.name, kind, codec=RESULT, **options)  # type: ignore[arg-type]

    async def run_async(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        bot = _Bot.of(tool_context.invocation_id)
        if bot is None:
            return await inner(args=args, tool_context=tool_context)

        async def call() -> Told:
            return Told(await inner(args=args, tool_context=tool_context), tool_context.actions)

        agent = bot.place(tool_context)
        path = f"{agent}/{bot.turns.get(agent, 0)}/{ext.segment(tool.name)}"
        with ext.place(f"{path}/{ext.segment(tool_context.function_call_id or '')}", sealed=operation is not None):
            if operation is None:
                return await inner(args=args, tool_context=tool_context)
            return (await operation(call, shown=args)).apply(tool_context)

    setattr(run_async, _MARK, True)
    tool.run_async = run_async


def _kind(tool: BaseTool) -> str:
    if isinstance(tool, AgentTool):  # without plugins, its agent is not seen: it is a call like any other
        return "inside" if tool.include_plugins else "effect"
    # What tells the framework what to do next is done again on replay; so is what it makes of nodes, tasks, questions.
    is_telling = (
        isinstance(tool, SetModelResponseTool | TransferToAgentTool) or getattr(tool, "func", None) is exit_loop
    )
    is_own = type(tool).__module__.startswith("google.adk.") and "._" in type(tool).__module__
    return "inside" if is_telling or is_own or tool.name == names.REQUEST_INPUT_FUNCTION_CALL_NAME else "effect"


class Durability(BasePlugin):  # type: ignore[misc]  # its types are not followed
    """What makes the invocations of a runner durable: `App(name=…, root_agent=agent, plugins=[Durability()])`.

    The runner belongs into the run: its sessions are made again by the replay. Outside of a run it does nothing.

    Example: `runner = Runner(app=app, session_service=InMemorySessionService())`
    """

    def __init__(self, name: str = "holdfast") -> None:
        super().__init__(name)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        # The user's own task is still at work here: what comes next is called by tasks of the framework.
        if not ext.active():
            return
        if not isinstance(invocation_context.session_service, InMemorySessionService):
            kind = type(invocation_context.session_service).__name__
            raise hf.UsageError(
                f"In a run of Holdfast sessions are kept by an InMemorySessionService made in the run, not by {kind}: "
                "a replay makes them again, and one that stores them would have each event twice."
            )
        bots = ext.local().setdefault(_BOTS, {})
        if invocation_context.invocation_id not in bots:  # an answer goes on with what was asked
            agent: Any = invocation_context.agent
            name = getattr(agent, "root_agent", agent).name
            bots[invocation_context.invocation_id] = _Bot(ext.occurrence(name), name)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        bot = _Bot.of(callback_context.invocation_id)
        if bot is None:
            return
        path = bot.place(callback_context)
        bot.turns[path] = bot.turns.get(path, 0) + 1
        agent: Any = callback_context.get_invocation_context().agent
        _wrap_model(await agent.canonical_model_async(callback_context))
        _asking.set(_Request(path))

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        asked = _asking.get() if _Bot.of(callback_context.invocation_id) is not None else None
        if asked is not None and not asked.is_taken:
            raise hf.UsageError(
                f"The model of {callback_context.agent_name} is another one each time it is asked for, or a live one: "
                "its answers cannot be recorded. Give the agent a model."
            )

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        if ext.active() and not hasattr(tool.run_async, _MARK):
            _wrap_tool(tool, _kind(tool), {})


async def drive(
    runner: Runner, *, user_id: str, session_id: str, new_message: types.Content, **options: Any
) -> AsyncGenerator[Event, None]:
    """As `Runner.run_async`, until nothing is waited for: confirmations, and what is to be answered, are questions.

    Example: `async for event in drive(runner, user_id="ada", session_id="s", new_message=message): ...`
    """
    message: types.Content | None = new_message
    while message is not None:
        waiting: dict[str, tuple[types.FunctionCall, str]] = {}
        events = runner.run_async(user_id=user_id, session_id=session_id, new_message=message, **options)
        async with aclosing(events) as told:
            async for event in told:
                if not event.partial:
                    asked = event.long_running_tool_ids or ()
                    calls = {call.id: call for call in event.get_function_calls() if call.id in asked}
                    waiting |= {key or "": (call, event.invocation_id) for key, call in calls.items()}
                    for answered in event.get_function_responses():
                        waiting.pop(answered.id or "", None)
                yield event
        parts = [await _answer(call, _Bot.of(given)) for call, given in waiting.values()] if ext.active() else []
        message = types.Content(role="user", parts=parts) if parts else None


async def _answer(call: types.FunctionCall, bot: _Bot | None) -> types.Part:
    if call.name == names.REQUEST_EUC_FUNCTION_CALL_NAME:
        raise hf.UsageError("A tool asks for credentials: give them to its agent before the run, they are not stored.")
    args: dict[str, Any] = call.args or {}
    about: dict[str, Any] = args.get("originalFunctionCall", {"name": call.name, "id": call.id, "args": args})
    path = f"{bot.path if bot else 'adk'}/{ext.segment(about['name'])}/{ext.segment(about.get('id') or '')}"
    prompt = f"What has {call.name} come to?"
    if call.name == names.REQUEST_INPUT_FUNCTION_CALL_NAME:
        prompt = str(args.get("message") or "What is the answer?")
    answer: Any
    with ext.place(path):
        if call.name == names.REQUEST_CONFIRMATION_FUNCTION_CALL_NAME:
            said = await hf.ask(f"May {about['name']} be called?", hf.Approval, show=about.get("args", {}))
            answer = {"confirmed": said.ok, "payload": args.get("toolConfirmation", {}).get("payload")}
        else:
            answer = await hf.ask(prompt, Any, show=args)
    response = answer if isinstance(answer, dict) else {"result": answer}
    return types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=response))


def durable(agent: Any, *, name: str | None = None, **options: Any) -> hf.Agent[..., Any]:
    """An agent of Holdfast that runs this agent, or app: a text in, the final text out, or what `output_schema` says.

    Each run has a session of its own. `options` are those of `Runner.run_async`: `run_config`, `state_delta`.

    Example: `bot = durable(agent); hf.run(bot("go"), id="case-7")`
    """
    app = agent if isinstance(agent, App) else App(name=agent.name, root_agent=agent)
    if not any(isinstance(plugin, Durability) for plugin in app.plugins):
        app = app.model_copy(update={"plugins": [*app.plugins, Durability()]})
    schema = getattr(app.root_agent, "output_schema", None)

    async def run(text: str) -> Any:
        runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
        message, final = types.Content(role="user", parts=[types.Part(text=text)]), ""
        async for event in drive(runner, user_id=_USER, session_id=app.name, new_message=message, **options):
            if event.is_final_response() and event.content:
                final = "".join(part.text or "" for part in event.content.parts or [] if not part.thought) or final
        return final if schema is None else TypeAdapter(schema).validate_json(final)

    return ext.made_agent(run, name=name or app.name, returns=schema or str)
