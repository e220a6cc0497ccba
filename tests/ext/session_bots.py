"""An agent of the OpenAI Agents SDK that remembers what was said in a session."""

from __future__ import annotations

from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.models.interface import Model
from agents.testing import assistant_message, function_call

import holdfast as hf
from holdfast.ext.openai_agents import run
from holdfast.ext.openai_agents_session import Session
from tests.ext.living import note

QUIET = RunConfig(tracing_disabled=True)


class Counting(Model):
    """It looks something up, and says how much it has heard."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        note(f"model {len(input)}")
        is_asked = input[-1].get("role") == "user"
        call = function_call("look", {"at": len(input)}, call_id=f"call_{len(input)}")
        said = call if is_asked else assistant_message(f"heard {len(input)}", item_id=f"m{len(input)}")
        return ModelResponse(output=[said], usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


@function_tool
async def look(at: int) -> str:
    """Look."""
    return f"seen {at}"


counter: Agent[None] = Agent(name="counter", model=Counting(), tools=[look])


async def talked(session: Any, runner: Any = Runner.run) -> list[Any]:
    """What a conversation comes to in which the last word is taken back."""

    async def say(text: str) -> Any:
        return (await runner(counter, text, session=session, run_config=QUIET)).final_output

    first, second = await say("one"), await say("two")
    taken = await session.pop_item()
    third = await say("three")
    return [first, second, taken, third, await session.get_items(limit=3), await session.get_items()]


@hf.agent
async def talk(text: str) -> list[Any]:
    return await talked(Session("ada"), run)
