"""Graphs that keep a thread of their own, and a process that talks in one until it is killed.

python -m tests.ext.saver_bots URL TURNS
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.pregel import Pregel

import holdfast as hf
from holdfast.ext.langgraph_saver import Saver

THREAD: Any = {"configurable": {"thread_id": "talk"}}


def both(old: list[str], new: list[str]) -> list[str]:
    return old + new


class Talk(TypedDict):
    said: Annotated[list[str], both]


async def answer(state: Talk) -> dict[str, list[str]]:
    return {"said": [f"answer to {state['said'][-1]}" + "." * 100]}


async def nod(state: Talk) -> dict[str, list[str]]:
    return {"said": [f"nod {len(state['said'])}"]}


def talk(saver: Any, first: Any = answer) -> Pregel[Any, Any, Any, Any]:
    graph = StateGraph(Talk)
    graph.add_node("answer", first)
    graph.add_node("nod", nod)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "nod")
    return graph.compile(checkpointer=saver)


async def main(url: str, turns: int) -> None:
    async with hf.connect(url) as app:
        graph = talk(Saver(app))
        for number in range(turns):
            await graph.ainvoke({"said": [f"say {number}"]}, THREAD)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
