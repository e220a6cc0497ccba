"""Agents of the OpenAI Agents SDK with a model that decides from what it hears, and gives random ids to its calls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Usage, function_tool
from agents.mcp import MCPServer
from agents.models.interface import Model
from agents.testing import ScriptedModel, assistant_message, function_call
from mcp.types import CallToolResult, TextContent, Tool

import holdfast as hf
from holdfast.ext.openai_agents import durable, durable_tool, run, run_streamed
from tests.ext.letters import TURNS, asked, letters, send, told
from tests.ext.living import here, note

QUIET = RunConfig(tracing_disabled=True)


def heard(given: Any) -> list[str]:
    return (
        [str(each["output"]) for each in given if each.get("type") == "function_call_output"]
        if type(given) is list
        else []
    )


class Deciding(Model):
    """`decide` gets what was heard so far: how many turns, and the outputs of tools."""

    def __init__(self, decide: Callable[[int, list[str]], list[Any]]) -> None:
        self.decide = decide

    def _said(self, given: Any) -> list[Any]:
        calls = [each for each in given if each.get("type") == "function_call"] if type(given) is list else []
        return self.decide(len(calls), heard(given))

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        return ModelResponse(output=self._said(input), usage=Usage(requests=1), response_id=None)

    async def stream_response(
        self, system_instructions: Any, input: Any, *rest: Any, **more: Any
    ) -> AsyncIterator[Any]:
        async for event in ScriptedModel([self._said(input)]).stream_response(
            system_instructions, input, *rest, **more
        ):
            yield event
            here("part")


def call(name: str, call_id: str = "", **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id or os.urandom(4).hex())


def mails(calls: int, outputs: list[str]) -> list[Any]:
    turn = calls // 2 + 1
    note(f"model {turn}")
    if turn <= 2:
        return [call("mail", to=f"{turn}{who}") for who in "ab"]
    return [assistant_message(", ".join(sorted(outputs)))]


@function_tool
async def mail(to: str) -> str:
    """Send a mail."""
    await asyncio.sleep(0.01)
    note(f"mail {to}")
    return f"sent {to}"


poster: Agent[None] = Agent(name="poster", model=Deciding(mails), tools=[mail])
post = durable(poster, run_config=QUIET)


def refunding(calls: int, outputs: list[str]) -> list[Any]:
    return [assistant_message(outputs[0])] if outputs else [call("refund", "call_0", cents=500)]


@function_tool(needs_approval=True)
async def refund(cents: int) -> str:
    """Pay back."""
    note(f"refund {cents}")
    return f"paid {cents}"


refunds = durable(Agent(name="refunder", model=Deciding(refunding), tools=[refund]), run_config=QUIET)


class Refused(Exception):
    """Nothing happened."""


def stubborn(calls: int, outputs: list[str]) -> list[Any]:
    """It tries again whenever it hears of an error."""
    if outputs and "error" not in outputs[-1]:
        return [assistant_message(outputs[-1])]
    return [call("act", f"call_{calls}")]


def acting(how: str, **options: Any) -> hf.Agent[..., Any]:
    @function_tool
    async def act() -> Any:
        """Act."""
        note("act")
        if how == "refused":
            if len([line for line in _notes() if line == "act"]) < 3:
                raise Refused("not now")
            return "done"
        if how == "lost":
            raise ConnectionError("no answer")
        return object()

    bot: Agent[None] = Agent(name=how, model=Deciding(stubborn), tools=[durable_tool(act, **options)])
    return durable(bot, run_config=QUIET)


def _notes() -> list[str]:
    from tests.ext.living import notes

    return notes()


def outer(calls: int, outputs: list[str]) -> list[Any]:
    if not outputs:
        return [call("write", "a", input="x"), call("write", "b", input="y")]
    return [assistant_message(" | ".join(outputs))]


nested: Agent[None] = Agent(name="editor", model=Deciding(outer), tools=[poster.as_tool("write", "Write mails.")])
edit = durable(nested, run_config=QUIET)


def handing_over(calls: int, outputs: list[str]) -> list[Any]:
    return [call("transfer_to_poster", "h")]


front: Agent[None] = Agent(name="front", model=Deciding(handing_over), handoffs=[poster])


@hf.agent
async def streams() -> list[str]:
    result = run_streamed(poster, "go", run_config=QUIET)
    kinds = [event.type async for event in result.stream_events()]
    await hf.ask("Go on?")
    return [*kinds, str(result.final_output)]


@hf.agent
async def twice() -> list[str]:
    results = await asyncio.gather(*(run(poster, "go", run_config=QUIET) for _ in range(2)))
    return [each.final_output for each in results]


class Server(MCPServer):
    """An MCP server in this process."""

    @property
    def name(self) -> str:
        return "post"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Any]:
        return [Tool.model_validate({"name": "mail", "inputSchema": {"type": "object", "properties": {}}})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
        note(f"{tool_name} {arguments['to']}")
        return CallToolResult(content=[TextContent(type="text", text=f"sent {arguments['to']}")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


def mails_by_server(calls: int, outputs: list[str]) -> list[Any]:
    if calls == 0:
        return [call("mail", f"c{n}", to="1a") for n in range(2)]
    return [assistant_message(f"{len(outputs)} sent")]


@hf.agent
async def served() -> str:
    bot: Agent[None] = Agent(name="served", model=Deciding(mails_by_server), mcp_servers=[Server()])
    result = await run(bot, "go", run_config=QUIET)
    await hf.ask("Go on?")
    return str(result.final_output)


class Writing(Deciding):
    """Its prompt is the name of its run."""

    def __init__(self) -> None:
        super().__init__(lambda calls, outputs: [])

    def _said(self, given: Any) -> list[Any]:
        name = (
            given if isinstance(given, str) else next(each["content"] for each in given if each.get("role") == "user")
        )
        outputs = heard(given)
        turn = len(outputs) // 2 + 1
        asked(name, turn)
        if turn > TURNS:
            return [assistant_message(told(outputs))]
        return [call("letter", to=to) for to in letters(name, turn)]


@function_tool
async def letter(to: str) -> str:
    """Send a letter."""
    return await send(to)


writer: Agent[None] = Agent(name="writer", model=Writing(), tools=[durable_tool(letter, settle=0)])
write = durable(writer, run_config=QUIET)
