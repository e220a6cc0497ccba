"""Agents of Pydantic AI with a model that decides from what it hears, and gives random ids to its calls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import (
    Agent,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast as hf
from holdfast.ext.pydantic_ai import Durability, durable
from tests.ext.letters import TURNS, asked, letters, send, told
from tests.ext.living import here, note


def heard(messages: list[Any]) -> list[str]:
    return [str(part.content) for m in messages for part in m.parts if isinstance(part, ToolReturnPart)]


def decide(messages: list[Any], info: AgentInfo) -> ModelResponse:
    turn = sum(isinstance(each, ModelResponse) for each in messages) + 1
    note(f"model {turn}")
    if turn <= 2:
        calls = [ToolCallPart("mail", {"to": f"{turn}{who}"}, tool_call_id=os.urandom(4).hex()) for who in "ab"]
        return ModelResponse(parts=calls)
    return ModelResponse(parts=[TextPart(", ".join(sorted(heard(messages))))])


poster: Agent[None, str] = Agent(FunctionModel(decide), name="poster")


@poster.tool_plain
async def mail(to: str) -> str:
    await asyncio.sleep(0.01)
    note(f"mail {to}")
    return f"sent {to}"


post = durable(poster)


def decide_refund(messages: list[Any], info: AgentInfo) -> ModelResponse:
    done = heard(messages)
    note(f"model {len(done)}")
    if not done:
        return ModelResponse(parts=[ToolCallPart("refund", {"cents": 500}), ToolCallPart("look", {"at": "ledger"})])
    return ModelResponse(parts=[TextPart(", ".join(sorted(done)))])


refunder: Agent[None, str] = Agent(FunctionModel(decide_refund), name="refunder")


@refunder.tool_plain(requires_approval=True)
async def refund(cents: int) -> str:
    note(f"refund {cents}")
    return f"paid {cents}"


@refunder.tool(metadata={"holdfast": "step"})
async def look(ctx: RunContext[None], at: str) -> dict[str, str]:
    return {"at": at}


refunds = durable(refunder)


@hf.agent
async def twice(_: int = 0) -> list[str]:
    """Two runs of one agent, at the same time, called as without Holdfast."""
    results = await asyncio.gather(*(poster.run("go", capabilities=[Durability()]) for _ in range(2)))
    return [each.output for each in results]


def decide_number(messages: list[Any], info: AgentInfo) -> ModelResponse:
    turn = sum(isinstance(each, ModelResponse) for each in messages) + 1
    if turn <= 2:
        return ModelResponse(parts=[ToolCallPart("take", {"number": turn}, tool_call_id="call_0")])  # it repeats
    return ModelResponse(parts=[TextPart(f"{heard(messages)[-1]} after {turn - 1} requests")])


chooser: Agent[None, str] = Agent(FunctionModel(decide_number), name="chooser")


@chooser.tool_plain(retries=3)
async def take(number: int) -> str:
    if number == 1:
        raise ModelRetry("not one")
    return f"took {number}"


@hf.agent
async def picky() -> str:
    result = await chooser.run("go", capabilities=[Durability()])
    await hf.ask("Go on?")
    return result.output


async def stream_words(messages: list[Any], info: AgentInfo) -> AsyncIterator[str]:
    note("model streams")
    for word in ("one ", "two"):
        yield word
        here("part")


@hf.agent
async def streaming() -> str:
    talker: Agent[None, str] = Agent(FunctionModel(stream_function=stream_words), name="talker")
    async with talker.run_stream("go", capabilities=[Durability()]) as result:
        said = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    await hf.ask("Go on?")
    return "".join(said)


def decide_letters(messages: list[Any], info: AgentInfo) -> ModelResponse:
    name = next(str(part.content) for part in messages[0].parts if isinstance(part, UserPromptPart))
    turn = sum(isinstance(each, ModelResponse) for each in messages) + 1
    asked(name, turn)
    if turn > TURNS:
        return ModelResponse(parts=[TextPart(told(heard(messages)))])
    calls = [ToolCallPart("letter", {"to": to}, tool_call_id=os.urandom(4).hex()) for to in letters(name, turn)]
    return ModelResponse(parts=calls)


writer: Agent[None, str] = Agent(FunctionModel(decide_letters), name="writer")


@writer.tool_plain(metadata={"holdfast": {"settle": 0}})
async def letter(to: str) -> str:
    return await send(to)


write = durable(writer)
