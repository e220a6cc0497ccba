"""Agents that wait: for time, signals, people, children, each other. What they do to the world is in `agents.World`."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast as hf
from tests.crash.agents import book, look, post, world

number = hf.Signal("number", int)
go = hf.Signal("go", bool)
never = hf.Signal("never", bool)


@hf.step
async def dawdle(seconds: float) -> float:
    """A step that is seen under way: it takes a while."""
    await asyncio.sleep(seconds)
    return seconds


# time


@hf.agent
async def sleeper(n: int) -> list[Any]:
    """One sleep without a process, one that is not worth leaving memory for."""
    seen: list[Any] = [await post(n)]
    await hf.sleep(1.1)
    seen.append(await post(n + 1))
    await hf.sleep(0.03)
    return [*seen, await look(n)]


@hf.agent(signals=[number, never])
async def impatient(n: int) -> list[Any]:
    """Timeouts that expire, and timeouts that do not."""
    seen: list[Any] = []
    try:
        async with hf.timeout(0.05):
            await hf.receive(never)
    except TimeoutError:
        seen.append(await post(n))
    try:
        await hf.receive(never, timeout=0.05)
    except TimeoutError:
        seen.append("too late")
    async with hf.timeout(300):
        seen.append(await hf.receive(number))
        seen.append(await post(n + 1))
    return seen


@hf.agent(signals=[number, never])
async def racer(n: int) -> list[Any]:
    """A race that the message wins, and one that the time wins."""
    first = await hf.race(hf.receive(number), hf.sleep(300))
    second = await hf.race(hf.receive(never), hf.sleep(0.03))
    return [first, second, await post(n), await hf.receive(number)]


# messages


@hf.agent(signals=[number, go])
async def collector(count: int) -> list[Any]:
    """Messages in the order they were sent, whenever they came."""
    seen: list[Any] = []
    for _ in range(count):
        seen.append(await hf.receive(number))
        seen.append(await post(len(seen)))
    return [*seen, await hf.receive(go)]


@hf.agent(signals=[number])
async def gatherer(count: int) -> list[Any]:
    """Branches that wait side by side."""

    async def branch(n: int) -> object:
        return [await post(n), await hf.ask(f"Branch {n}?")]

    branches = [branch(n) for n in range(count)]
    return [*await asyncio.gather(*branches), await hf.receive(number)]


@hf.reducer
def counter(total: int, event: int) -> int:
    if event == 0:
        raise hf.Stop(total)
    return total + event


# people


@hf.agent
async def asker(n: int) -> list[Any]:
    colour = await hf.ask("Which colour?", options=["red", "blue"])
    approval = await hf.ask("Post it?", hf.Approval, show={"colour": colour})
    seen: list[Any] = [colour, approval.ok, approval.by, approval.note, await post(n)]
    try:
        seen.append(await hf.ask("Really?"))
    except hf.Declined:
        seen.append("declined")
    return [*seen, await hf.ask("What to write?", draft="Dear all")]


@hf.agent(signals=[go])
async def hesitant(n: int) -> list[Any]:
    """Questions that nobody answers: one expires, one is withdrawn because something else came first."""
    seen: list[Any] = []
    try:
        await hf.ask("Well?", timeout=0.05)
    except TimeoutError:
        seen.append(await post(n))
    return [*seen, await hf.race(hf.ask("Now?"), hf.receive(go)), await post(n + 1)]


# families


@hf.agent(signals=[number, go])
async def helper(n: int) -> list[Any]:
    got = await hf.receive(number)
    return [got, await post(got), await hf.ask("Help?")]


@hf.agent(signals=[go])
async def boss(n: int) -> list[Any]:
    """Waits for a child that itself waits."""
    before = await post(n)
    return [before, await helper(n), await post(n + 1)]


@hf.agent(signals=[go])
async def household(n: int) -> list[Any]:
    """Two children that wait, and a question of its own; it is cancelled."""
    mine = asyncio.create_task(hf.ask("Anybody home?"))
    children = [asyncio.create_task(helper(each)) for each in range(2)]
    await post(n)
    return [await mine, *await asyncio.gather(*children)]


# cancelled


@hf.agent(signals=[never])
async def traveller(city: str) -> str:
    """A saga that waits in the middle, for what never comes."""
    async with hf.saga():
        await book(f"flight to {city}")
        await book(f"car in {city}")
        await hf.receive(never)
    return "booked"


@hf.agent
async def busy_traveller(city: str) -> str:
    """The same, cancelled while a step is under way; its last words are an effect as well."""
    try:
        async with hf.saga():
            await book(f"flight to {city}")
            await book(f"car in {city}")
            await dawdle(60)
    finally:
        await post(9)
    return "booked"


# interrupted, paused


@hf.agent(signals=[go])
async def attentive(n: int) -> list[Any]:
    seen: list[Any] = [await post(n)]
    seen.append(await hf.receive(go))
    return [*seen, await post(n + 1)]


@attentive.on_interrupt
async def interrupted(message: int, main: hf.MainLine) -> list[Any]:
    return [main.calls[-1], await post(message)]


@hf.agent(signals=[number, go])
async def talkative(n: int) -> list[Any]:
    """Interrupted while it works, by messages whose handler waits itself."""
    seen: list[Any] = []
    while not seen or seen[-1] != n:
        seen.append(await hf.race(hf.receive(number), dawdle(0.05)))
    return [seen[-1], await post(n)]


@talkative.on_interrupt
async def talked_to(message: int) -> list[Any]:
    return [await post(message), await hf.ask(f"About {message}?"), await post(message + 1)]


@hf.agent(signals=[number])
async def pausable(n: int, seconds: float = 0.05) -> list[Any]:
    """Paused once while it waits, and once while it works."""
    seen: list[Any] = [await post(n), await hf.receive(number)]
    for each in range(3):
        seen.append(await dawdle(seconds))
        seen.append(await post(n + 1 + each))
    return seen


# what runs do to each other


@hf.step
async def toil(n: int) -> None:
    """Until somebody ends it."""
    world.act("toil", n, key="")
    await asyncio.sleep(600)


@hf.step
async def see_toil(n: int) -> None:
    while n not in world.values("toil"):  # noqa: ASYNC110 - it is a file
        await asyncio.sleep(0.005)


@hf.agent
async def victim(n: int) -> None:
    await toil(n)


@hf.agent
async def reports(event: dict[str, Any]) -> object:
    """Started by an event."""
    return await post(event["n"])


@hf.agent
async def sender(n: int) -> list[Any]:
    """Starts runs, sends to one, cancels the other, tells the world."""
    other, doomed = await hf.start(collector(1)), await hf.start(victim(n))
    sent = [await other.send(number, 5), await other.send(go, True)]
    await see_toil(n)  # in memory, for sure: whoever is parked is cancelled in another way
    cancelled = await doomed.cancel()
    await hf.emit("crash.reported", {"n": n + 1})
    return [*sent, str(cancelled), await other.result()]


@hf.agent(signals=[go])
async def heedful(n: int) -> list[Any]:
    seen: list[Any] = [await post(n)]
    return [*seen, await hf.receive(go), await post(n + 1)]


@heedful.on_interrupt
async def heeds(message: int) -> object:
    return await post(message)


@hf.agent
async def wonders() -> str:
    return f"told {await hf.ask('Is it so?')}"


@hf.effect(settle=0)
async def uncertain(n: int) -> int:
    raise ConnectionResetError("the line is dead")


@hf.agent
async def doubter(n: int) -> int:
    return await uncertain(n)


@hf.agent
async def meddler(n: int) -> list[Any]:
    """Interrupts, pauses and resumes a run, answers another one, settles what a third one is in doubt about."""
    other, asking, unsure = [await hf.start(each) for each in (heedful(n), wonders(), doubter(n))]
    reply = await other.interrupt(n + 100)
    await other.pause()
    await other.resume()
    while not (questions := await asking.questions()):
        await hf.sleep(0.05)
    for question in questions:
        await question.answer(True)
    while not (doubts := await unsure.in_doubt()):
        await hf.sleep(0.05)
    for doubt in doubts:
        await doubt.resolve(hf.landed(n + 5))
    await other.send(go, True)
    return [reply, await asking.result(), await unsure.result(), await other.result()]


@hf.agent
async def look_once(n: int) -> int:
    """Started by a schedule."""
    return await look(n)
