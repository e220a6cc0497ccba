"""What durability costs an agent of each framework: turns of a fake model and a tool, against the bare framework.

    python bench/frameworks.py [--turns 200] [--repeat 5] [--profile] [NAME ...]

Processor time, the least of some repetitions; the store is a SQLite file. Of what is more than with the bare framework,
an effect and a step of an agent that does nothing else are a part, which is told beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import itertools
import json
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import holdfast as hf

#: Runs so many turns: with the bare framework, and as it is called in an agent of Holdfast.
Turns = Callable[[int], Awaitable[Any]]


async def mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


def nothing() -> tuple[Turns, Turns]:
    step, effect = hf.step(name="model")(mail), hf.effect(name="mail")(mail)

    async def bare(turns: int) -> None:
        for number in range(turns):
            await mail(await mail(str(number)))

    async def durable(turns: int) -> None:
        for number in range(turns):
            await effect(await step(str(number)))

    return bare, durable


def pydantic_ai() -> tuple[Turns, Turns]:
    from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, UsageLimits
    from pydantic_ai.models.function import FunctionModel

    from holdfast.ext.pydantic_ai import Durability

    left = itertools.count()

    def decide(messages: list[Any], info: Any) -> ModelResponse:
        done = len(messages) // 2
        if done >= wanted[0]:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("mail", {"to": "ada"}, tool_call_id=f"c{next(left)}")])

    wanted = [0]
    agent: Any = Agent(FunctionModel(decide), name="bot", tools=[mail])

    async def run(turns: int, **options: Any) -> None:
        wanted[0] = turns
        await agent.run("go", usage_limits=UsageLimits(request_limit=None), **options)

    return run, lambda turns: run(turns, capabilities=[Durability()])


def openai_agents() -> tuple[Turns, Turns]:
    from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool
    from agents.models.interface import Model
    from agents.testing import assistant_message, function_call

    from holdfast.ext.openai_agents import run

    class Deciding(Model):
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
            done = len(input) // 2 if isinstance(input, list) else 0
            said: Any = assistant_message("done")
            if done < wanted[0]:
                said = function_call("mail", {"to": "ada"}, call_id=f"c{done}")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    wanted, quiet = [0], RunConfig(tracing_disabled=True)

    def agent() -> Any:
        return Agent(name="bot", model=Deciding(), tools=[function_tool(mail)])

    async def turn(runner: Any, bot: Any, turns: int) -> None:
        wanted[0] = turns
        await runner(bot, "go", run_config=quiet, max_turns=turns + 2)

    plain, wrapped = agent(), agent()
    return lambda turns: turn(Runner.run, plain, turns), lambda turns: turn(run, wrapped, turns)


def langgraph() -> tuple[Turns, Turns]:
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph

    from holdfast.ext.langgraph import drive, durable

    class State(TypedDict, total=False):
        left: int
        said: str

    def graph(think: Any, act: Any) -> Any:
        async def model(state: State) -> State:
            return {"left": state["left"] - 1, "said": await think("ada")}

        async def tool(state: State) -> State:
            return {"said": await act(state["said"])}

        made: Any = StateGraph(State)
        made.add_node("model", model)
        made.add_node("tool", tool)
        made.add_edge(START, "model")
        made.add_edge("model", "tool")
        made.add_conditional_edges("tool", lambda state: "model" if state["left"] else END)
        return made.compile(name="bot")

    plain, wrapped = graph(mail, mail), graph(durable(mail, kind="step"), durable(mail))

    def config(turns: int) -> Any:
        return {"recursion_limit": 2 * turns + 5}

    return (
        lambda turns: plain.ainvoke({"left": turns}, config(turns)),
        lambda turns: drive(wrapped, {"left": turns}, config=config(turns)),
    )


def langchain() -> tuple[Turns, Turns]:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    from holdfast.ext.langchain import Durability
    from holdfast.ext.langgraph import drive

    wanted = [0]

    class Deciding(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "deciding"

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

        def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
            done = len(messages) // 2
            calls = [{"name": "mail", "args": {"to": "ada"}, "id": f"c{done}", "type": "tool_call"}]
            message = AIMessage("", tool_calls=calls) if done < wanted[0] else AIMessage("done")
            return ChatResult(generations=[ChatGeneration(message=message)])

    def agent(*middleware: Any) -> Any:
        return create_agent(Deciding(), tools=[tool(mail)], middleware=middleware)

    plain, wrapped = agent(), agent(Durability())

    async def run(driver: Any, turns: int) -> None:
        wanted[0] = turns
        messages = {"messages": [{"role": "user", "content": "go"}]}
        await driver(messages, config={"recursion_limit": 4 * turns + 10})

    return lambda turns: run(plain.ainvoke, turns), lambda turns: run(lambda *a, **o: drive(wrapped, *a, **o), turns)


def http() -> tuple[Turns, Turns]:
    import httpx2
    import openai

    from holdfast.ext.http import async_transport

    wanted = [0]

    def answer(request: Any) -> Any:
        done = len(json.loads(request.content)["messages"]) // 2
        call = {"id": f"c{done}", "type": "function", "function": {"name": "mail", "arguments": '{"to": "ada"}'}}
        said = {"content": None, "tool_calls": [call]} if done < wanted[0] else {"content": "done"}
        choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}
        more = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return httpx2.Response(200, json={**more, "choices": [choice]})

    async def run(transport: Any, act: Any, turns: int) -> None:
        wanted[0] = turns
        client, messages = httpx2.AsyncClient(transport=transport), [{"role": "user", "content": "go"}]
        async with openai.AsyncOpenAI(base_url="http://m/v1", api_key="-", max_retries=0, http_client=client) as model:
            while True:
                request: Any = messages
                said = (await model.chat.completions.create(model="m", messages=request)).choices[0].message
                messages.append(said.model_dump(exclude_none=True))
                if not said.tool_calls:
                    return
                done = await act("ada")
                messages.append({"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": done})

    effect = hf.effect(name="mail")(mail)
    return (
        lambda turns: run(httpx2.MockTransport(answer), mail, turns),
        lambda turns: run(async_transport(httpx2, httpx2.MockTransport(answer)), effect, turns),
    )


def mcp() -> tuple[Turns, Turns]:
    from mcp import Client
    from mcp.server.mcpserver import MCPServer
    from mcp.types import ToolAnnotations

    from holdfast.ext.mcp import Tools

    server = MCPServer("post")
    server.tool(name="look", annotations=ToolAnnotations(read_only_hint=True))(mail)
    server.tool(name="mail")(mail)

    async def bare(turns: int) -> None:
        async with Client(server) as client:
            for _ in range(turns):
                await client.call_tool("look", {"to": "ada"})
                await client.call_tool("mail", {"to": "ada"})

    async def durable(turns: int) -> None:
        async with Tools(lambda: Client(server)) as tools:
            for _ in range(turns):
                await tools.call("look", {"to": "ada"})
                await tools.call("mail", {"to": "ada"})

    return bare, durable


def adk() -> tuple[Turns, Turns]:
    from google.adk.agents import LlmAgent, RunConfig
    from google.adk.apps import App
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.genai import types

    from holdfast.ext.adk import Durability

    wanted = [0]

    class Deciding(BaseLlm):  # type: ignore[misc]
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            done = len(llm_request.contents) // 2
            call = types.FunctionCall(id=f"c{done}", name="mail", args={"to": "ada"})
            part = types.Part(function_call=call) if done < wanted[0] else types.Part(text="done")
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    async def run(plugins: Any, turns: int) -> None:
        wanted[0] = turns
        agent = LlmAgent(name="bot", model=Deciding(model="deciding"), tools=[mail])
        app = App(name="bot", root_agent=agent, plugins=plugins)
        runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
        message = types.Content(role="user", parts=[types.Part(text="go")])
        more = {"user_id": "ada", "session_id": "s", "run_config": RunConfig(max_llm_calls=0)}
        async for _ in runner.run_async(new_message=message, **more):
            pass

    return lambda turns: run([], turns), lambda turns: run([Durability()], turns)


FRAMEWORKS = {
    each.__name__: each for each in (nothing, pydantic_ai, openai_agents, langgraph, langchain, http, mcp, adk)
}


async def measured(name: str, sort: str, *, turns: int, repeat: int, profile: bool) -> float:
    """The least processor time of some repetitions, in seconds."""
    bare, durable = FRAMEWORKS[name]()

    @hf.agent
    async def bot(turns: int) -> float:
        began = time.process_time()
        await durable(turns)
        return time.process_time() - began

    profiler, took = cProfile.Profile(), []
    with tempfile.TemporaryDirectory() as folder:
        async with hf.connect(str(Path(folder) / "runs.db"), agents=[bot]) as app:
            for number in range(repeat + 1):
                if profile and number == 1:
                    profiler.enable()
                count = turns if number else 5  # the first one warms up
                began = time.process_time()
                if sort == "bare":
                    await bare(count)
                else:
                    await (await app.start(bot(count), id=f"r{number}")).result()
                took.append(time.process_time() - began)
    if profile:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    return min(took[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sort", choices=["bare", "durable"])
    given = parser.parse_args()
    sys.path.remove(str(Path(__file__).parent))  # its neighbour is named as the package of a framework is
    if given.sort:
        (name,) = given.names
        options: Any = {"turns": given.turns, "repeat": given.repeat, "profile": given.profile}
        print(asyncio.run(measured(name, given.sort, **options)))
        return
    print(f"{given.turns} turns of a model and a tool; milliseconds of processor time a turn")
    for name in given.names or FRAMEWORKS:
        found = {}
        for sort in ("bare", "durable"):
            command = [sys.executable, __file__, name, "--sort", sort]
            command += ["--turns", str(given.turns), "--repeat", str(given.repeat), *["--profile"][: given.profile]]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[sort] = float(said.split()[-1]) * 1000 / given.turns
        more = found["durable"] - found["bare"]
        ratio = f"{found['durable'] / found['bare']:6.2f} x" if found["bare"] > 0.01 else ""
        print(f"{name:14} bare {found['bare']:7.3f}  durable {found['durable']:7.3f}  {more:+.3f}  {ratio}", flush=True)


if __name__ == "__main__":
    main()
