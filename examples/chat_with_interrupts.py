"""A chat that can be asked, and told something, while it works: messages are turns, interrupts come in between.

python examples/chat_with_interrupts.py

The answer to a message takes five steps. Meanwhile somebody asks how far it is, and then tells it to be brief. Kill it
anywhere and run it again: what was said is in the state of the turn, and each answer is posted once.
"""

import asyncio
from dataclasses import dataclass, field

import holdfast as hf

said = hf.Signal("said", str)
MESSAGES = ["Tell me of the tides.", "And of the moon."]
PARTS = 5


@dataclass
class Chat:
    answers: list[str] = field(default_factory=list)


@hf.step(retries=3)
async def think(message: str, part: int) -> str:
    await asyncio.sleep(0.05)  # your model
    return f"part {part} of the answer to {message!r}"


@hf.effect
def post(number: int, text: str) -> None:
    with hf.transaction() as connection:  # with the result, in one commit: a message is there once
        connection.execute("CREATE TABLE IF NOT EXISTS messages (number INTEGER, text TEXT)")
        connection.execute("INSERT INTO messages VALUES (?, ?)", (number, text))


@hf.agent(signals=[said])
async def chat() -> str:
    told = hf.thread(str)
    async for state in hf.turns(Chat()):
        message = await hf.receive(said)
        if message == "bye":
            break
        parts: list[str] = []
        while len(parts) < PARTS and not (parts and "be brief" in await told.recent()):
            hf.progress(len(parts), PARTS, message)
            parts.append(await think(message, len(parts) + 1))
        state.answers.append(parts[-1])
        await post(len(state.answers), f"{len(parts)} of {PARTS} parts, up to {parts[-1]}")
    return f"{len(state.answers)} answers"


@chat.on_interrupt
async def interrupted(message: str, main: hf.MainLine) -> str:
    """A branch of its own, between two calls of the main line, which goes on when this has returned."""
    if message.endswith("?"):
        return f"{main.progress['done']} of {PARTS} parts" if main.progress else "not begun"
    await hf.thread(str).append(message)  # the main line looks there
    return "I will."


async def main() -> str:
    async with hf.connect(agents=[chat]) as app:
        run = await app.start(chat(), id="chat-1")
        try:
            for number, message in enumerate(MESSAGES):
                await run.send(said, message, dedup=f"m{number}")  # sent again after a crash it counts once
            for message in ("how far?", "be brief"):
                print(message, "-", await run.interrupt(message, timeout=60))
            await run.send(said, "bye", dedup="bye")
        except hf.RunFinished:
            print("It is over.")
        return await run.result()


if __name__ == "__main__":
    print(asyncio.run(main()))
