"""A chat that remembers, and whose answers are read while the model writes them.

python examples/chat_with_memory.py

Kill it in the middle of an answer (`kill -9`) and run it again: the answer goes on where it was, and nothing is said
twice. Each question is a run of its own, in one thread. The queue has one run of a thread at a time.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import holdfast as hf

QUESTIONS = ["What makes the tides?", "And why are there two a day?"]


@dataclass
class Message:
    role: str
    text: str


async def model(context: list[Message], begun: str) -> AsyncIterator[str]:
    """Your model: it gets the conversation, and the beginning of its answer if there is one."""
    words = f"You ask: {context[-1].text} I have heard {len(context) - 1} things before that.".split()
    for word in words[len(begun.split()) :]:
        await asyncio.sleep(0.01)
        yield f"{word} "


@hf.step(retries=3)
async def answer(context: list[Message]) -> str:
    out = hf.stream()
    text = out.partial.text if out.partial is not None else ""
    out.write(text)  # what an attempt had that was cut off: readers were told to forget it
    async for word in model(context, text):
        out.write(word)
        text += word
    return text


@hf.agent
async def reply(question: str) -> str:
    memory = hf.thread(Message)
    await memory.append(Message("user", question))
    text = await answer(await memory.recent(tokens=4000))
    await memory.append(Message("assistant", text))
    return text


async def main() -> str:
    async with hf.connect(agents=[reply]) as app:
        await app.queue("chat", per_key=1)
        for number, question in enumerate(QUESTIONS, 1):
            run = await app.start(
                reply(question), id=f"tides-{number}", thread_id="tides", queue="chat", queue_key="tides"
            )
            async for event in run.stream():
                print("\n(once more)" if event.kind == "reset" else event.text, end="", flush=True)
            print()
            await run.result()
        memory = app.thread("tides", Message)
        return f"{len(await memory.recent())} messages, the last of {len((await memory.recent(1))[0].text)} letters"


if __name__ == "__main__":
    print(asyncio.run(main()))
