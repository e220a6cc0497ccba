"""Graphs of LangGraph and agents of LangChain, with models that decide from what they hear."""

from __future__ import annotations

import asyncio
import operator
import os
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, Send, interrupt

import holdfast as hf
from holdfast.ext.langchain import Durability
from holdfast.ext.langgraph import drive, durable
from tests.ext.letters import TURNS, asked, letters, send, told
from tests.ext.living import note


class State(TypedDict, total=False):
    done: list[str]


@durable
async def mail(to: str) -> str:
    await asyncio.sleep(0.01)
    note(f"mail {to}")
    return f"sent {to}"


@durable
def mail_plainly(to: str) -> str:
    note(f"mail {to}")
    return f"sent {to}"


async def first(state: State) -> State:
    return {"done": [await mail("1a"), await mail("1b")]}


async def second(state: State) -> State:
    sent = await mail("2a")  # before the question: the node runs again from its top
    answer = interrupt({"question": "More?"})
    return {"done": [*state["done"], sent, await mail("2b"), str(answer)]}


def third(state: State) -> State:
    return {"done": [*state["done"], mail_plainly("3a")]}


def compiled() -> Any:
    graph = StateGraph(State)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_node("third", third)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", "third")
    return graph.compile(name="letters")


@hf.agent
async def post(_: str = "go") -> list[str]:
    state = await drive(compiled(), {"done": []}, answers=bool)
    return list(state["done"])


tries: list[int] = []


class Refused(Exception):
    """Nothing happened."""


@durable
async def charge(cents: int) -> str:
    note(f"charge {cents}")
    return f"charged {cents}"


async def refuse_first() -> str:
    note("try")
    if len(tries) < 3:
        raise Refused("not now")
    return "taken"


take = durable(refuse_first, raises=(Refused,))


async def unsteady(state: State) -> State:
    """It fails after its effect, and LangGraph runs it again."""
    tries.append(1)
    done = [await charge(5)]
    done.append(await take())
    if len(tries) < 4:
        raise ConnectionError("after its effect")
    return {"done": done}


@hf.agent
async def retried() -> list[str]:
    graph = StateGraph(State)
    policy = RetryPolicy(max_attempts=6, initial_interval=0.001, jitter=False, retry_on=(ConnectionError, Refused))
    graph.add_node("unsteady", unsteady, retry_policy=policy)
    graph.add_edge(START, "unsteady")
    return list((await drive(graph.compile(name="retried"), {}))["done"])


async def worker(state: Any) -> State:
    await mail(state["to"])
    return {}


@hf.agent
async def fanned_out() -> int:
    graph = StateGraph(State)
    graph.add_node("worker", worker)
    graph.add_conditional_edges(START, lambda state: [Send("worker", {"to": str(n)}) for n in range(5)], ["worker"])
    await drive(graph.compile(name="fan"), {})
    return 5


class Deciding(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "deciding"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        turn = sum(isinstance(each, AIMessage) for each in messages) + 1
        note(f"model {turn}")
        if turn <= 2:
            calls = [
                {"name": "post_mail", "args": {"to": f"{turn}{who}"}, "id": os.urandom(4).hex(), "type": "tool_call"}
                for who in "ab"
            ]
            message = AIMessage(content="", tool_calls=calls)
        else:
            message = AIMessage(", ".join(sorted(str(m.content) for m in messages if isinstance(m, ToolMessage))))
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
async def post_mail(to: str) -> str:
    """Send a mail."""
    await asyncio.sleep(0.01)
    note(f"mail {to}")
    return f"sent {to}"


agent = create_agent(Deciding(), tools=[post_mail], middleware=[Durability()])


@hf.agent
async def chat(text: str) -> str:
    state = await drive(agent, {"messages": [{"role": "user", "content": text}]})
    return str(state["messages"][-1].text)


class Writing(BaseChatModel):
    """Its prompt is the name of its run."""

    @property
    def _llm_type(self) -> str:
        return "writing"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        name, turn = str(messages[0].content), sum(isinstance(each, AIMessage) for each in messages) + 1
        asked(name, turn)
        if turn <= TURNS:
            calls = [
                {"name": "post_letter", "args": {"to": to}, "id": os.urandom(4).hex(), "type": "tool_call"}
                for to in letters(name, turn)
            ]
            message = AIMessage(content="", tool_calls=calls)
        else:
            message = AIMessage(told([str(m.content) for m in messages if isinstance(m, ToolMessage)]))
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
async def post_letter(to: str) -> str:
    """Send a letter."""
    return await send(to)


chatting = create_agent(Writing(), tools=[post_letter], middleware=[Durability(tools={"post_letter": {"settle": 0}})])


@hf.agent
async def write(name: str) -> str:
    state = await drive(chatting, {"messages": [{"role": "user", "content": name}]}, config={"recursion_limit": 50})
    return str(state["messages"][-1].text)


#: A person says whether letters may be sent, as LangChain asks.
asking = create_agent(
    Writing(),
    tools=[post_letter],
    middleware=[
        HumanInTheLoopMiddleware(interrupt_on={"post_letter": True}),
        Durability(tools={"post_letter": {"settle": 0}}),
    ],
)
ALLOWED = {"decisions": [{"type": "approve"}] * 2}


@hf.agent
async def write_if_allowed(name: str) -> str:
    state = await drive(asking, {"messages": [{"role": "user", "content": name}]}, config={"recursion_limit": 50})
    return str(state["messages"][-1].text)


letter = durable(send, name="letter", settle=0)


async def find_letters(name: str, turn: int) -> list[str]:
    asked(name, turn)
    return letters(name, turn)


think = durable(find_letters, kind="step")


class Post(TypedDict, total=False):
    name: str
    turn: int
    to: list[str]
    sent: Annotated[list[str], operator.add]


async def plan(state: Post) -> Post:
    turn = state.get("turn", 0) + 1
    return {"turn": turn, "to": await think(state["name"], turn) if turn <= TURNS else []}


async def post_one(state: Any) -> Post:
    return {"sent": [await letter(state["to"])]}


@hf.agent
async def write_in_nodes(name: str) -> str:
    graph = StateGraph(Post)
    graph.add_node("plan", plan)
    graph.add_node("post_one", post_one)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan", lambda state: [Send("post_one", {"to": to}) for to in state["to"]], ["post_one"]
    )
    graph.add_edge("post_one", "plan")
    state = await drive(graph.compile(name="post"), {"name": name}, config={"recursion_limit": 50})
    return told(state["sent"])
