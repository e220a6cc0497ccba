"""Agents that wait, for worker processes that are killed; what they do to the world is a file in their folder."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import holdfast as hf
from holdfast.testing.ledger import whole_lines


def act(what: str, value: object, *, key: str = "") -> None:
    """Change the world: one line, in one write."""
    path = Path(os.environ["HOLDFAST_TEST_FOLDER"]) / "world.jsonl"
    line = json.dumps({"what": what, "value": value, "key": key or hf.this_step().idempotency_key}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def has_happened(what: str) -> bool:
    lines = whole_lines(Path(os.environ["HOLDFAST_TEST_FOLDER"]) / "world.jsonl")
    return any(
        each["what"] == what and each["key"] == hf.this_step().idempotency_key for each in map(json.loads, lines)
    )


@hf.step
async def look(n: int) -> int:
    act("look", n)
    return n * 10


def gate() -> Path:
    """What is held goes on when this file is there: see `Scene.open_gate`."""
    return Path(os.environ["HOLDFAST_TEST_FOLDER"]) / "gate"


@hf.step
async def dawdle(seconds: float) -> str:
    """Takes so long, or until the gate is open."""
    act("dawdle", seconds)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not gate().exists():  # noqa: ASYNC110 - it is in another process
        await asyncio.sleep(min(left, 0.01))
    act("dawdled", seconds)
    return "dawdled"


@hf.effect(settle=0)
async def post(n: int) -> int:
    """An effect that can be looked up: it happens once, wherever its process dies."""
    act("post", n)
    return n


@post.verify
async def find_post(n: int) -> hf.Verdict[int]:
    return hf.landed(n) if has_happened("post") else hf.not_landed()


@hf.effect(settle=0)
async def book(what: str) -> str:
    act("book", what)
    return what


@book.verify
async def find_booking(what: str) -> hf.Verdict[str]:
    return hf.landed(what) if has_happened("book") else hf.not_landed()


@book.undo
async def unbook(result: str | None, what: str) -> None:
    act("unbook", what)


@hf.effect(on_doubt="ask")
async def risky(n: int) -> str:
    act("risky", n)
    await asyncio.sleep(600)
    return "done"


# timers


@hf.agent
async def nap(seconds: float) -> str:
    await post(1)
    await hf.sleep(seconds)
    await post(2)
    return "awake"


@hf.agent
async def impatient(what: str) -> str:
    """A timeout around each kind of wait."""
    try:
        async with hf.timeout(0.05):
            match what:
                case "receive":
                    await hf.receive(("never", int))
                case "sleep":
                    await hf.sleep(60)
                case "step":
                    await dawdle(60)
                case _:
                    await hf.ask("Well?")
    except TimeoutError:
        await post(1)
        return "late"
    return "in time"


@hf.agent
async def expecting() -> str:
    """As above, by the timeouts that waits have themselves."""
    told = []
    try:
        await hf.receive(("never", int), timeout=0.05)
    except TimeoutError:
        told.append("receive")
    try:
        await hf.ask("Well?", timeout=0.05)
    except TimeoutError:
        told.append("ask")
    await post(len(told))
    return " ".join(told)


# signals

number = hf.Signal("number", int)
word = hf.Signal("word", str)


@hf.agent(signals=[number, word])
async def collect(count: int) -> list[int]:
    got = []
    for _ in range(count):
        got.append(await hf.receive(number))
        await post(got[-1])
    return got


@hf.agent(signals=[number, word])
async def chooses(count: int) -> list[str]:
    """Races two receives: what the loser was about to take must be there the next time."""

    async def a_number() -> str:
        got = await hf.receive(number)
        return f"number {got}"

    async def a_word() -> str:
        got = await hf.receive(word)
        return f"word {got}"

    return [await hf.race(a_number(), a_word()) for _ in range(count)]


@hf.agent(signals=[word])
async def reads(count: int) -> int:
    """Values that are too large to be stored with the record."""
    length = 0
    for n in range(count):
        text = await hf.receive(word)
        length += len(text)
        length += len(await hf.ask("Is this it?", draft=text, show=[text]))
        await post(n)
    return length


@reads.on_interrupt
async def read_aloud(message: str) -> str:
    return message + message


@hf.agent(signals=[number])
async def second_chance() -> list[int]:
    try:
        async with hf.timeout(60):
            return [1, await hf.receive(number)]
    except TimeoutError:
        return [2, await hf.receive(number)]


@hf.agent
async def talks(to: str, count: int) -> list[bool]:
    """Sends signals to another run, one after the other."""
    other = hf.get(to)
    return [await other.send(number, n) for n in range(count)]


@hf.agent(signals=[number])
async def talks_to_itself() -> list[object]:
    me = hf.get(hf.this_run().id)
    sent = await asyncio.gather(me.send(number, 1), me.send(number, 2))
    await me.send(number, 3, dedup="three")
    again = await me.send(number, 3, dedup="three")
    got = [await hf.receive(number) for _ in range(3)]
    try:
        got.append(await hf.receive(number, timeout=0.03))
    except TimeoutError:
        got.append(-1)
    return [sent, again, sorted(got)]


@hf.agent
async def emits() -> bool:
    first = await hf.emit("number", 7)
    second = await hf.emit("number", 8)
    return first != second


@hf.agent
async def cancels(other: str) -> str:
    """Cancels another run, and says what became of it."""
    return str(await hf.get(other).cancel(note="enough"))


@hf.agent
async def answers(other: str) -> str:
    """Answers what another run asks. It looks at all questions: those that are open are not the same on a replay."""
    for question in await hf.get(other).questions(only_open=False):
        try:
            await question.answer(True)
        except hf.AlreadyDecided as decided:
            return f"decided by {decided.by}"
    return "answered"


# questions


@hf.effect(settle=0)
async def ring(asked: hf.Asked) -> None:
    act("ring", asked.id)


@ring.verify
async def find_ring(asked: hf.Asked) -> hf.Verdict[None]:
    return hf.landed(None) if has_happened("ring") else hf.not_landed()


@hf.agent
async def review(rounds: int) -> list[str]:
    """A draft goes back and forth."""
    drafts = []
    text = "draft"
    for n in range(rounds):
        text = await hf.ask(f"Round {n}: is this good?", draft=text, notify=ring)
        await post(n)
        drafts.append(text)
    return drafts


@hf.agent
async def brief(limit: float) -> str:
    try:
        return str(await hf.ask("Now?", timeout=limit))
    except TimeoutError:
        return "late"


@hf.agent
async def several() -> list[str]:
    """Open at once."""

    async def one(n: int) -> str:
        said = await hf.ask(f"Question {n}?", hf.Approval, show={"n": n})
        await post(n)
        return f"{n} {said.ok} {said.by}"

    return await asyncio.gather(*(one(n) for n in range(3)))


@hf.agent
async def shows() -> bool:
    """What it shows is not the same in every process: a mistake of its code."""
    return await hf.ask("Send it?", show=os.environ.get("TEXT", "the text"))


# cancel and pause


@hf.agent
async def trip(stay: float) -> str:
    """Bookings that are taken back when the run is cancelled."""
    async with hf.saga():
        await book("flight")
        await book("hotel")
        await hf.receive(("go", bool))
    return "there"


@hf.agent
async def busy_trip() -> str:
    async with hf.saga():
        await book("flight")
        await dawdle(600)
    return "there"


@hf.agent
async def tidy() -> str:
    """Clean-up that makes durable calls, after some branches."""
    await asyncio.gather(look(1), look(2), look(3))
    try:
        await dawdle(600)
    finally:
        await post(1)
        await look(4)
        await post(2)
    return "never"


@hf.agent
async def stubborn() -> None:
    """Code that cannot be stopped."""
    while True:
        try:
            await look(0)
            await hf.sleep(0.01)
        except BaseException:
            act("swallowed", 1, key="-")


@hf.agent
async def counting(count: int, seconds: float) -> int:
    for _ in range(count):
        await dawdle(seconds)
    await post(count)
    return count


@hf.step
async def linger() -> None:
    act("linger", 1)
    await asyncio.sleep(600)


@hf.agent
async def lingers() -> None:
    """Held at the gate; what comes after it takes too long for any test."""
    await dawdle(600)
    await linger()
    await linger()
    await post(1)


@hf.agent
async def patient_child(seconds: float) -> str:
    await hf.sleep(seconds)
    return "grown"


@hf.agent
async def busy_child(seconds: float) -> str:
    return await dawdle(seconds)


@hf.agent(queue="elsewhere")
async def child_elsewhere(seconds: float) -> str:
    return await dawdle(seconds)


@hf.agent
async def family(seconds: float) -> list[str]:
    await hf.start(busy_child(seconds))
    await hf.start(patient_child(seconds))
    return list(await asyncio.gather(patient_child(seconds), busy_child(seconds), child_elsewhere(seconds)))


@hf.agent
async def blocks() -> str:
    """Its code blocks the loop of its worker until the gate is open, and acts afterwards."""
    await post(1)
    while not gate().exists():
        time.sleep(0.005)
    await post(2)
    return "blocked"


@hf.agent
async def gambles() -> str:
    return await risky(1)


# interrupts


@hf.agent
async def writes(count: int) -> list[int]:
    """Half-way through it is held, until the gate is open: whoever interrupts it comes in time."""
    done = []
    for n in range(count):
        done.append(await look(n))
        await post(n)
        await dawdle(600 if n == count // 2 else 0.02)
    return done


@writes.on_interrupt
async def interrupted(message: str, main: hf.MainLine) -> str:
    if message == "raise":
        raise ValueError("no idea")
    if message == "ask":
        return f"they said {await hf.ask('Really?')}"
    await post(1000)
    if message == "cancel":
        await hf.get(hf.this_run().id).cancel(note="told to")
    return f"{message}: {len(main.calls)} calls, {await look(99)}"


# everything at once


@hf.effect(settle=0)
async def mark(what: str) -> str:
    act("mark", what)
    return what


@mark.verify
async def find_mark(what: str) -> hf.Verdict[str]:
    return hf.landed(what) if has_happened("mark") else hf.not_landed()


@hf.agent
async def medley(lines: int, rounds: int) -> list[list[str]]:
    """Branches that wait for all sorts of things; what they get is known beforehand."""
    name = hf.this_run().id

    async def line(n: int) -> list[str]:
        got = []
        for i in range(rounds):
            match (n + i) % 5:
                case 0:
                    got.append(f"looked {await look(i)}")
                case 1:
                    await hf.sleep(0.02 if i % 2 else 1.05)  # in memory, or parked
                    got.append("slept")
                case 2:
                    got.append(f"got {await hf.receive((f'line{n}', int))}")
                case 3:
                    got.append(f"heard {await hf.ask(f'{n}.{i}?')}")
                case _:
                    try:
                        await hf.receive((f"never{n}", int), timeout=0.05)
                    except TimeoutError:
                        got.append("too late")
            await mark(f"{name} {n}.{i}")
        return got

    return await asyncio.gather(*(line(n) for n in range(lines)))


@medley.on_interrupt
async def medley_interrupted(message: int) -> int:
    await mark(f"{hf.this_run().id} aside {message}")
    return message * 2


def medley_result(lines: int, rounds: int) -> list[list[str]]:
    """What comes of it, however often its workers die."""
    result = []
    for n in range(lines):
        got: list[str] = []
        for i in range(rounds):
            sent = sum(each.startswith("got") for each in got)
            said = [f"looked {i * 10}", "slept", f"got {sent}", f"heard {i % 2 == 0}", "too late"]
            got.append(said[(n + i) % 5])
        result.append(got)
    return result


# reducers


@hf.reducer
def total(state: int, event: int) -> int:
    if event == 0:
        raise hf.Stop(state)
    return state + event
