"""A research agent: a plan, tools that a model calls, a memory, a budget, and a person who has the last word.

python examples/research_agent.py

The loop is plain code over the OpenAI SDK: its requests are steps, because its transport is durable. Kill it anywhere
(`kill -9`) and run it again: no answer of the model is paid twice once it is on disk, and the report goes out once.
`MODEL_URL`, `MODEL` and `MODEL_KEY` name a model of your own; without them it is the scripted server of
`holdfast.testing`, which is too busy at first.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import httpx2
import openai

import holdfast as hf
from holdfast.ext.http import async_transport
from holdfast.ext.tools import Tools, tool
from holdfast.testing.model_server import ModelServer, Turn

PUBLISHED = Path("published.txt")  # the world of this example
SCRIPT = [
    Turn(say="the tides\nthe moon", error=429, retry_after=0.1),
    Turn(calls=[("search", {"query": "tides today"}), ("search", {"query": "tides long ago"})]),
    Turn(say="There are two tides a day."),
    Turn(calls=[("search", {"query": "moon"})]),
    Turn(say="The moon makes them."),
    Turn(say="There are two tides a day, and the moon makes them."),
]


@tool(kind="step", retries=3)
async def search(query: str) -> list[str]:
    """Search the web."""
    return [f"a page about {query}", f"another one about {query}"]


tools = Tools(search)


@hf.effect(settle=0)  # 0: a local file cannot act late; leave the default for a server
async def publish(report: str) -> str:
    key = hf.this_step().idempotency_key
    with PUBLISHED.open("a") as published:
        published.write(f"{key} {report}\n")
    return key


@publish.verify
async def find_published(report: str) -> hf.Verdict[str]:
    key = hf.this_step().idempotency_key
    return hf.landed(key) if PUBLISHED.exists() and key in PUBLISHED.read_text() else hf.not_landed()


@hf.agent(budget=hf.Budget(tokens=100_000, steps=200))  # at the limit it is blocked, until somebody raises it
async def research(question: str) -> str:
    memory = hf.thread(str)  # it outlives the run: the next one in this thread begins with what this one found
    known = "\n".join(await memory.recent(20))
    http = httpx2.AsyncClient(transport=async_transport(httpx2))
    async with openai.AsyncOpenAI(
        base_url=f"{os.environ['MODEL_URL']}/v1",
        api_key=os.environ.get("MODEL_KEY", "-"),
        max_retries=0,
        http_client=http,
    ) as model:
        messages: list[Any] = [{"role": "system", "content": f"You are a researcher. You know:\n{known}"}]
        lines = await talk(model, messages, f"{question} Say what to look into, on a line each.")
        todo = await hf.plan(lines.splitlines())
        while item := todo.next():
            finding = await talk(model, messages, f"{todo.prompt()}\nLook into {item.text}, and say what you found.")
            await memory.append(finding)
            await todo.tick(item, finding)
        report = await talk(model, messages, "Write the report.")
    await hf.artifact("report.txt", report)
    if not await hf.ask("Publish this report?", show=report):
        return "kept back"
    await publish(report)
    return f"published: {report}"


async def talk(model: openai.AsyncOpenAI, messages: list[Any], text: str) -> str:
    """Say something, and do what the model wants done until it has an answer."""
    messages.append({"role": "user", "content": text})
    while True:
        said = await model.chat.completions.create(
            model=os.environ.get("MODEL", "any"), messages=messages, tools=tools.openai()
        )
        answer = said.choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        if not answer.tool_calls:
            return answer.content or ""
        wanted = [(call.function.name, call.function.arguments) for call in answer.tool_calls]
        results = await asyncio.gather(*(tools.call(name, arguments) for name, arguments in wanted))
        for call, result in zip(answer.tool_calls, results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def main() -> str:
    async with hf.connect(agents=[research]) as app:
        run = await app.start(research("Why are there tides?"), id="tides", thread_id="sea")
        with contextlib.suppress(hf.RunFinished):
            question = await run.question(timeout=600)
            print(f"{question.prompt} {question.show}")  # in real life: `holdfast answer`, or the console
            await question.answer(True, by="eva")
        return await run.result()


if __name__ == "__main__":
    with ModelServer(SCRIPT) as server:
        os.environ.setdefault("MODEL_URL", server.url)
        print(asyncio.run(main()))
