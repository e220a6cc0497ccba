"""A graph whose node asks a person after it has acted. LangGraph runs the node again; the mail goes out once.

python examples/langgraph_bot.py

The run is answered by the example itself, as a person would with `holdfast answer`.
"""

import asyncio
from pathlib import Path
from typing import TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

import holdfast as hf
from holdfast.ext.langgraph import drive, durable

OUTBOX = Path("outbox.txt")


class State(TypedDict, total=False):
    to: str
    said: str


@durable
async def mail(to: str) -> str:
    with OUTBOX.open("a") as outbox:
        outbox.write(f"{to}\n")
    return f"mail to {to} is out"


async def notify(state: State) -> State:
    sent = await mail(state["to"])
    is_happy = interrupt({"question": f"{sent}. All right?"})
    return {"said": f"{sent}, and that is {'right' if is_happy else 'wrong'}"}


graph = StateGraph(State)
graph.add_node("notify", notify)
graph.add_edge(START, "notify")
notifier = graph.compile(name="notifier")


@hf.agent
async def bot(to: str) -> str:
    state = await drive(notifier, {"to": to}, answers=bool)
    return str(state["said"])


async def main() -> None:
    async with hf.connect(agents=[bot]) as app:
        run = await app.start(bot("ada"), id="notify-ada")
        while not (await run.status()).is_final:
            for question in await app.questions():
                print(question.prompt)
                await question.answer(True)
            await asyncio.sleep(0.05)
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
