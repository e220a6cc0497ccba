"""Agents with turns, for the tests that kill them. What they do outside is in the world of `tests.crash.agents`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import holdfast as hf
from holdfast.history.facts import note_of
from holdfast.model import Kind, MailKind, RunId
from holdfast.testing.survival import FOLDER
from tests.crash.agents import act, ledger, look, post
from tests.eventually import eventually

word = hf.Signal("word", str)
other = hf.Signal("other", int)


@dataclass
class State:
    """Of the loops here."""

    n: int = 0
    seen: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    child: str = ""


@hf.step
async def greet(n: int) -> str:
    with ledger.step():
        return f"hello {n}"


@hf.step(raises=(ValueError, ZeroDivisionError))
async def stumble(n: int) -> int:
    with ledger.step():
        if n == 2:
            raise ValueError("two")
        return n


@hf.effect(settle=0, on_doubt="retry")
async def book(n: int) -> int:
    act("book", n)
    return n


@book.undo
async def unbook(booked: int | None, n: int) -> None:
    act("unbook", n)


def note(state: State, what: object) -> None:
    state.seen.append(str(what))


@hf.agent
async def effects_at_both_ends(n: int) -> State:
    """An effect first and last in a turn; `continue`, `break`; what comes after the loop is part of the last turn."""
    await post(100)
    async for state in hf.turns(State(n)):
        await post(state.n)
        note(state, hf.this_run().turn)
        state.ids = sorted({*state.ids, str(hf.uuid4())})
        if state.n == 1:
            state.n += 1
            continue
        note(state, await look(state.n))
        state.n += 1
        if state.n == 4:
            break
        await post(state.n + 50)
    await post(200)
    state.ids = [str(len(state.ids))]
    return state


@hf.agent
async def caught(n: int) -> str:
    """An exception is caught around the loop; one of the same name was before it."""
    with contextlib.suppress(ValueError):
        await stumble(2)
    try:
        async for state in hf.turns(State(n)):
            await post(await stumble(state.n))
            state.n += 1
    except ValueError as error:
        await post(7)
        return f"{error} in turn {hf.this_run().turn}"
    return "never"


async def branch(n: int) -> int:
    return await look(n) + await look(n + 1)


@hf.agent
async def gathers(n: int) -> State:
    """Branches in a turn, under a timeout that is around the loop and does not expire."""
    async with hf.timeout(days=1):
        async for state in hf.turns(State(n)):
            found = await asyncio.gather(branch(state.n), branch(5), post(state.n), look(state.n))
            note(state, found)
            done, _ = await asyncio.wait([asyncio.create_task(branch(k)) for k in range(3)])
            note(state, len(done))
            state.n += 1
            if state.n == 3:
                return state
    raise AssertionError


@hf.agent
async def runs_out(n: int) -> str:
    """A timeout around the loop that expires in turn 3; a slow one may not come so far."""
    try:
        async with hf.timeout(1.5):
            async for state in hf.turns(State(n)):
                await post(state.n)
                state.n += 1
                if state.n == 3:
                    await hf.receive(other)
    except TimeoutError:
        await post(9)
        return "out of time"
    return "never"


@hf.agent(timeout=1.5)
async def is_cut_off(n: int) -> str:
    """As a whole it may not take longer."""
    async for state in hf.turns(State(n)):
        await post(state.n)
        state.n += 1
        if state.n == 3:
            await hf.receive(other)
    return "never"


@hf.agent
async def child(n: int) -> int:
    await post(n)
    return n * 2


@hf.agent
async def awaits_later(n: int) -> State:
    """A child that is started in turn 2 and awaited in turn 5 by its token; one that is awaited at once."""
    async for state in hf.turns(State(n)):
        turn = hf.this_run().turn
        if turn == 2:
            state.child = (await hf.start(child(20))).token
        if turn == 3:
            note(state, await child(30))
        if turn == 5:
            note(state, await hf.get(state.child).result())
            state.child = ""
            return state
        state.n += 1
    raise AssertionError


@hf.agent(signals=[word, other])
async def listens(n: int) -> State:
    """Signals that are received later, or never."""
    async for state in hf.turns(State(n)):
        said = await hf.receive(word)
        note(state, said)
        await book(len(state.seen))
        if said == "last":
            note(state, await hf.receive(other))
            return state
    raise AssertionError


@hf.agent
async def asks(n: int) -> State:
    async for state in hf.turns(State(n)):
        note(state, await hf.ask(f"Turn {state.n}?"))
        await post(state.n)
        state.n += 1
        if state.n == 3:
            return state
    raise AssertionError


@hf.agent
async def takes_back(n: int) -> State:
    """A saga in each turn; one of them fails and is undone."""
    async for numbers in hf.turns([n]):
        try:
            async with hf.saga():
                await book(numbers[-1])
                await stumble(numbers[-1])
        except ValueError:
            numbers.append(0)
        numbers.append(max(numbers) + 1)
        if len(numbers) == 5:
            return State(seen=[str(each) for each in numbers])
    raise AssertionError


@hf.step(raises=ValueError)
async def mended(n: int) -> int:
    """What does not work before somebody has mended it."""
    with ledger.step():
        if n < 0 or (n == 3 and not Path(os.environ[FOLDER], "mended").exists()):
            raise ValueError(f"no {n}")
        return n


@hf.agent
async def is_retried(n: int) -> State:
    """It fails in turn 4; one of the same name failed before the loop, and was caught."""
    try:
        await mended(-1)
    except ValueError as error:
        await post(len(str(error)))
    async for state in hf.turns(State(n)):
        note(state, await mended(state.n))
        await post(state.n + 10)
        state.n += 1
        if state.n == 5:
            return state
    raise AssertionError


@hf.agent
async def is_told(n: int) -> State:
    """People interrupt it, pause it or cancel it wherever it is; then it cleans up."""
    try:
        async for state in hf.turns(State(n)):
            await post(state.n)
            state.n += 1
            if state.n == 4:
                return state
    except asyncio.CancelledError:
        await post(99)
        raise
    raise AssertionError


@is_told.on_interrupt
async def reply(message: str, line: hf.MainLine) -> str:
    await look(7)
    return f"{message} {line.state is None or 0 <= line.state.n <= 4}"


async def is_cancelled(app: hf.Holdfast, run_id: str) -> bool:
    """Its code is told so at the next durable call."""
    row = await app._store.run(RunId(run_id))
    return row is not None and "cancelling" in row.summary


async def is_pause_heard(app: hf.Holdfast, run_id: str) -> bool:
    """Has the run taken it? Then it pauses at the head of the next turn, and no later."""
    records = await app._store.records(RunId(run_id))
    heard = {note_of(each).get("mail") for each in records if each.kind == Kind.noted}
    sent = await app._store.mail(RunId(run_id), after=0)
    return all(each.number in heard for each in sent if each.kind == MailKind.pause)


#: In the environment: the store, unless it is that of the life.
STORE = "HOLDFAST_TEST_STORE"


@hf.effect(settle=0, on_doubt="retry")
async def tell(what: str) -> None:
    """People interrupt, pause or cancel the run from outside; it hears of that at its next durable call."""
    async with hf.connect(os.environ.get(STORE) or f"{os.environ[FOLDER]}/store.db") as app:
        run = app.get(hf.this_step().run_id)
        if what == "interrupt":
            await run.interrupt("well?")
        elif what == "pause":
            await run.pause()
            await eventually(lambda: is_pause_heard(app, run.id))
        else:
            await run.cancel(timeout=0)
            await eventually(lambda: is_cancelled(app, run.id))


@hf.agent
async def is_told_at_the_head(n: int) -> State:
    """Whoever pauses it or cancels it is heard when the next turn is to begin; an interrupt is handled by then."""
    try:
        async for state in hf.turns(State(n)):
            await post(state.n)
            state.n += 1
            await tell(("interrupt", "pause", "cancel")[state.n - 1])
    except asyncio.CancelledError:
        await post(99)
        raise
    raise AssertionError


@is_told_at_the_head.on_interrupt
async def answer(message: str, line: hf.MainLine) -> str:
    return f"{message} {await look(7)}"


@hf.step
async def write(place: hf.Workspace, n: int) -> int:
    (place.path / f"{n}").write_text(f"{n}")
    return len(list(place.path.iterdir()))


@hf.agent(budget=hf.Budget(steps=100))
async def keeps_files(n: int) -> State:
    """A workspace that the prologue and some turns change, and that the code asks for its version."""
    place = await hf.workspace("place")
    if place.version == 0:
        await write(place, 0)
    async for state in hf.turns(State(n)):
        note(state, place.version)
        if hf.this_run().turn in (1, 4):
            note(state, await write(place, hf.this_run().turn))
            note(state, place.version)
        await post(state.n)
        state.n += 1
        if state.n == 5:
            return state
    raise AssertionError


@hf.agent(signals=[word])
async def changes(n: int) -> list[str]:
    """It goes on with the code of `later`."""
    await post(900)
    await look(1)
    async for state in hf.turns(State(n)):
        state.seen.append(await hf.receive(word))
        await post(len(state.seen))
    raise AssertionError


@hf.reducer
def total(state: int, event: int) -> int:
    if event == 0:
        raise hf.Stop(state)
    return state + event
