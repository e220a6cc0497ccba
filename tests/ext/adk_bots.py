"""Agents of Google's ADK with a model that decides from what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from google.adk.agents import LlmAgent, ParallelAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

import holdfast as hf
from holdfast.ext.adk import Durability, drive, durable, durable_tool
from tests.ext.letters import TURNS, asked, letters, send
from tests.ext.letters import told as told_of
from tests.ext.living import here, note, notes

Said = list[types.Part]


class Deciding(BaseLlm):  # type: ignore[misc]  # mypy does not follow google.adk
    """`decide` gets how many calls were made so far, and what tools have answered."""

    model: str = "deciding"
    decide: Callable[[int, list[Any]], Said]
    lingers: bool = False

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        calls = len([part for part in parts if part.function_call])
        answers = [part.function_response.response for part in parts if part.function_response]
        said = self.decide(calls, [answer.get("result", answer) for answer in answers if answer is not None])
        for part in said if stream else []:
            for word in (part.text or "").split():
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=word)]), partial=True)
                here("part")
        yield LlmResponse(content=types.Content(role="model", parts=said), partial=False)
        if self.lingers:
            await asyncio.sleep(0.05)
            note("over")


def text(said: str) -> Said:
    return [types.Part(text=said, thought_signature=b"\xff\x00")]


def call(tool: str, call_id: str | None = None, **arguments: Any) -> types.Part:
    """Without an id, as Gemini makes them: the framework makes one up."""
    return types.Part(function_call=types.FunctionCall(id=call_id, name=tool, args=arguments))


def mails(calls: int, answers: list[Any]) -> Said:
    turn = calls // 2 + 1
    note(f"model {turn}")
    if turn <= 2:
        return [call("mail", to=f"{turn}{who}") for who in "ab"]
    return text(", ".join(sorted(answers)))


async def mail(to: str, tool_context: ToolContext) -> str:
    """Send a mail."""
    await asyncio.sleep(0.01)
    note(f"mail {to}")
    tool_context.state[to] = "sent"
    return f"sent {to}"


poster = LlmAgent(name="poster", model=Deciding(decide=mails, lingers=True), tools=[mail])
post = durable(poster)


def runner_of(agent: Any, service: Any = None) -> Runner:
    app = App(name="tests", root_agent=agent, plugins=[Durability()])
    return Runner(app=app, session_service=service or InMemorySessionService(), auto_create_session=True)


async def told(events: Callable[..., AsyncGenerator[Any, None]], **options: Any) -> list[str]:
    """What the events of an invocation say."""
    message = types.Content(role="user", parts=[types.Part(text="go")])
    found = events(user_id="ada", session_id="s", new_message=message, **options)
    return [f"{event.author}: {_shown(event)}" async for event in found]


def _shown(event: Any) -> str:
    parts = event.content.parts if event.content else []
    said = [part.text or (part.function_call or part.function_response).name for part in parts]
    return f"{' '.join(said)}{'…' if event.partial else ''}"


SSE = RunConfig(streaming_mode=StreamingMode.SSE)


@hf.agent
async def streams() -> list[str]:
    """Events, then the state that tools have left, with a wait between."""
    runner = runner_of(poster)
    events = await told(partial(drive, runner), run_config=SSE)
    await hf.ask("Go on?")
    session = await runner.session_service.get_session(app_name="tests", user_id="ada", session_id="s")
    assert session is not None
    return [*events, str(sorted(session.state.items()))]


@hf.agent
async def speaks() -> list[str]:
    """Events alone: of a call that a person settles, nobody knows what it did to the state."""
    return await told(partial(drive, runner_of(poster)), run_config=SSE)


@hf.agent
async def stored(path: str) -> list[str]:
    return await told(runner_of(poster, SqliteSessionService(path)).run_async)


@hf.agent
async def twice() -> list[str]:
    async def one() -> str:
        return (await told(runner_of(poster).run_async))[-1]

    return list(await asyncio.gather(one(), one()))


def refunding(calls: int, answers: list[Any]) -> Said:
    note(f"model {calls}")
    return text(str(answers[-1])) if answers else [call("refund", "call_0", cents=500)]


async def refund(cents: int) -> str:
    """Pay back."""
    note(f"refund {cents}")
    return f"paid {cents}"


def refunder(tool: Any) -> hf.Agent[..., Any]:
    return durable(LlmAgent(name="refunder", model=Deciding(decide=refunding), tools=[tool]))


refunds = refunder(FunctionTool(refund, require_confirmation=True))


async def apply(cents: int) -> None:
    """Ask those who decide, elsewhere."""
    note(f"refund {cents}")


apply.__name__ = "refund"
applies = refunder(LongRunningFunctionTool(apply))


class Refused(Exception):
    """Nothing happened."""


def stubborn(calls: int, answers: list[Any]) -> Said:
    """It tries again whenever it hears of an error, with the same id."""
    return text(str(answers[-1])) if answers and "error" not in str(answers[-1]) else [call("act", "call_0")]


async def forgive(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, str]:
    return {"error": f"error: {error}"}


def acting(how: str, **options: Any) -> hf.Agent[..., Any]:
    async def act() -> Any:
        """Act."""
        note("act")
        if how == "refused":
            if notes().count("act") < 3:
                raise Refused("not now")
            return "done"
        if how == "lost":
            raise ConnectionError("no answer")
        return object()

    model, tool = Deciding(decide=stubborn), durable_tool(act, **options)
    return durable(LlmAgent(name=how, model=model, tools=[tool], on_tool_error_callback=forgive))


def outer(calls: int, answers: list[Any]) -> Said:
    if not answers:
        return [call("poster", each, request="x") for each in "ab"]
    return text(" | ".join(str(each) for each in answers))


def outer_of(tool: AgentTool) -> hf.Agent[..., Any]:
    return durable(LlmAgent(name="editor", model=Deciding(decide=outer), tools=[tool]))


def handing_over(calls: int, answers: list[Any]) -> Said:
    return [call("transfer_to_agent", agent_name="inner")]


def colleague(name: str) -> LlmAgent:
    return LlmAgent(name=name, model=Deciding(decide=mails), tools=[mail])


front = durable(LlmAgent(name="front", model=Deciding(decide=handing_over), sub_agents=[colleague("inner")]))


def side_by_side() -> hf.Agent[..., Any]:
    return durable(ParallelAgent(name="both", sub_agents=[colleague("left"), colleague("right")]))


class Writing(BaseLlm):  # type: ignore[misc]
    """Its prompt is the name of its run."""

    model: str = "writing"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        answers = [part.function_response.response["result"] for part in parts if part.function_response]
        name, turn = str(parts[0].text), len(answers) // 2 + 1
        asked(name, turn)
        said = [call("letter", to=to) for to in letters(name, turn)] if turn <= TURNS else text(told_of(answers))
        yield LlmResponse(content=types.Content(role="model", parts=said), partial=False)


async def letter(to: str) -> str:
    """Send a letter."""
    return await send(to)


write = durable(LlmAgent(name="writer", model=Writing(), tools=[durable_tool(letter, settle=0)]))
