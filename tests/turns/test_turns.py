"""Turns: what a loop promises, and what it refuses."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic
import pytest

import holdfast as hf
from tests.turns import loops
from tests.turns.stage import RUN, Stage, word

log: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "store.db")


@dataclass
class Chat:
    """A state."""

    words: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    """No state."""

    n: int = 0


class FrozenModel(pydantic.BaseModel, frozen=True):
    """No state either."""

    n: int = 0


@hf.step
async def think(text: str) -> str:
    log.append(f"think {text}")
    return text.upper()


@hf.effect(settle=0, on_doubt="retry")
async def send(text: str) -> str:
    log.append(f"send {text} {hf.this_step().key}")
    return text


@hf.agent(signals=[word])
async def chat(greeting: str) -> list[str]:
    await think(greeting)
    async for state in hf.turns(Chat()):
        said = await hf.receive(word)
        if said == "bye":
            break
        state.words.append(await think(said))
        await send(said)
    return state.words


# what it promises


def test_a_turn_begins_with_the_state_as_stored_and_a_resume_with_the_last_turn(stage: Stage) -> None:
    assert stage.go(chat("hi"), "a", "b").status is hf.Status.waiting
    assert log == ["think hi", "think a", "send a @1/send#1", "think b", "send b @2/send#1"]
    log.clear()
    assert stage.go(chat("hi"), "c", "bye") == ["A", "B", "C"]
    assert log == ["think c", "send c @3/send#1"]


def test_what_a_resume_reads_does_not_grow(stage: Stage) -> None:
    sizes = []
    for n in range(1, 5):
        stage.go(chat("hi"), *(f"{n}-{k}" for k in range(3 * n)))
        row, records, mail = stage.resumable()
        sizes.append((len(records), len(mail)))
        assert row.turn == 1 + sum(3 * k for k in range(1, n + 1))
    assert len(set(sizes)) == 1, sizes


def test_mail_that_nobody_received_is_kept_over_turns_and_no_other_is_read(stage: Stage) -> None:
    other = hf.Signal("other", int)

    @hf.agent(signals=[word, other], name="listens")
    async def listens() -> list[int]:
        async for state in hf.turns(Chat()):
            state.words.append(await hf.receive(word))
            if state.words[-1] == "last":
                return [await hf.receive(other) for _ in range(3)]
        raise AssertionError

    stage.go(listens(), "a")
    stage.look(lambda run: asyncio.wait([asyncio.ensure_future(run.send(other, n)) for n in (7,)]))
    stage.look(lambda run: run.send(other, 8))
    stage.look(lambda run: run.send(other, 9))
    stage.go(listens(), "b", "c", "d")
    assert [each.unread for each in stage.look(lambda run: run.checkpoints())][-1] == 3
    assert stage.resumable().mail == []
    assert stage.go(listens(), "last") == [7, 8, 9]


def test_what_is_kept_of_a_state_is_not_what_a_turn_has(stage: Stage) -> None:
    kept: list[list[str]] = []

    @hf.agent(name="keeps")
    async def keeps() -> list[str]:
        async for state in hf.turns(Chat()):
            kept.append(state.words)
            kept[0].append("outside")  # that of the first turn, whichever it is now
            if hf.this_run().turn == 3:
                return state.words
        raise AssertionError

    assert stage.go(keeps()) == ["outside"]


def test_a_key_is_once_per_turn(stage: Stage) -> None:
    @hf.agent(name="keyed")
    async def keyed(times: int) -> list[str]:
        async for state in hf.turns(Chat()):
            for _ in range(times if len(state.words) == 1 else 1):
                state.words.append(await send.with_options(key="once/a")(f"{len(state.words)}"))
            if len(state.words) == 3:
                return state.words
        raise AssertionError

    assert stage.go(keyed(1)) == ["0", "1", "2"]
    assert log == [f"send {n} @{n + 1}/key:once/a" for n in range(3)]
    again = Stage(stage.url + "2")
    assert "a second time" in again.look_failed(keyed(2))


def test_the_turn_is_known_inside(stage: Stage) -> None:
    @hf.agent(name="knows")
    async def knows() -> list[int]:
        turns = [hf.this_run().turn]
        async for state in hf.turns({"n": 0}):
            state["n"] += 1
            if state["n"] == 3:
                break
        return [*turns, hf.this_run().turn]

    assert stage.go(knows()) == [0, 3]


def test_a_run_that_failed_in_its_fourth_turn_is_retried_in_that_turn(stage: Stage) -> None:
    broken = True

    @hf.step(raises=ValueError)
    async def stumble(n: int) -> int:
        log.append(f"stumble {n}")
        if n < 0 or (n == 3 and broken):
            raise ValueError(f"no {n}")
        return n

    @hf.agent(name="stumbles")
    async def stumbles() -> list[str]:
        try:
            await stumble(-1)
        except ValueError as error:
            await think(str(error))
        async for state in hf.turns(Chat()):
            state.words.append(str(await stumble(len(state.words))))
            if len(state.words) == 4:
                return state.words
        raise AssertionError

    assert stage.go(stumbles()).status is hf.Status.failed
    assert log == ["stumble -1", "think no -1", "stumble 0", "stumble 1", "stumble 2", "stumble 3"]
    broken = False
    log.clear()

    async def retried() -> list[str]:
        async with hf.connect(stage.url, agents=[stumbles]) as app:
            await app.get(RUN).retry()
            return await app.get(RUN, stumbles).result()

    assert asyncio.run(retried()) == ["0", "1", "2", "3"]
    assert log == ["stumble 3"]


def test_an_interrupt_is_told_the_state_and_a_pause_holds_at_the_head(stage: Stage) -> None:
    @hf.agent(signals=[word], name="interrupted")
    async def interrupted() -> list[str]:
        async for state in hf.turns(Chat()):
            state.words.append(await hf.receive(word))
            if state.words[-1] == "last":
                return state.words
        raise AssertionError

    @interrupted.on_interrupt
    async def reply(message: str, line: hf.MainLine) -> str:
        await think(message)
        return f"{message}: {line.state.words}"

    async def interrupts() -> list[str]:
        async with hf.connect(stage.url, agents=[interrupted]) as app:
            run = await app.start(interrupted(), id=RUN)
            replies = []
            for each in ("a", "b"):
                await run.send(word, each)
                replies.append(await run.interrupt("state?"))
            await run.pause()
            await run.send(word, "last")
            await run.resume()
            return [*replies, *await run.result()]

    *replies, a, b, last = asyncio.run(interrupts())
    assert (a, b, last) == ("a", "b", "last")
    assert {reply.partition(":")[0] for reply in replies} == {"state?"}
    assert replies[1] in ("state?: ['a']", "state?: ['a', 'b']")


def test_a_cancelled_loop_cleans_up_and_ends(stage: Stage) -> None:
    @hf.agent(name="cancelled")
    async def cancelled() -> None:
        try:
            async for state in hf.turns({"n": 0}):
                state["n"] += 1
                await hf.sleep(0.001)
        finally:
            await send("gone")

    async def cancel() -> hf.Status:
        async with hf.connect(stage.url, agents=[cancelled]) as app:
            run = await app.start(cancelled(), id=RUN)
            return await run.cancel()

    assert asyncio.run(cancel()) is hf.Status.cancelled
    assert [line.rpartition(" ")[0] for line in log] == ["send gone"]


# what it refuses


async def in_a_task() -> None:
    async def loop() -> None:
        async for _ in hf.turns(Chat()):
            return

    await asyncio.create_task(loop())


async def with_a_task_alive() -> None:
    task = asyncio.create_task(hf.sleep(1000))
    async for _ in hf.turns(Chat()):
        assert task is not None


async def in_a_saga() -> None:
    async with hf.saga():
        async for _ in hf.turns(Chat()):
            return


async def twice() -> None:
    async for _ in hf.turns(Chat()):
        break
    async for _ in hf.turns(Chat()):
        break


async def frozen() -> None:
    async for _ in hf.turns(Frozen()):
        return


async def a_frozen_model() -> None:
    async for _ in hf.turns(FrozenModel()):
        return


async def plain() -> None:
    async for _ in hf.turns(0):
        return


async def not_storable() -> None:
    async for _ in hf.turns({"client": object()}):
        return


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (in_a_task, "used in a task"),
        (with_a_task_alive, "is under way"),
        (in_a_saga, "inside a saga"),
        (twice, "a second time"),
        (frozen, "Frozen is frozen"),
        (a_frozen_model, "FrozenModel is frozen"),
        (plain, "int cannot be changed in place"),
        (not_storable, "the state.client cannot be stored"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_loop_where_none_can_be_is_refused_with_its_place(stage: Stage, body: Any, said: str) -> None:
    refused = stage.look_failed(hf.agent(name="refused")(body)())
    assert said in refused
    assert f"{Path(__file__).name}:" in refused


def test_the_code_of_a_reducer_is_the_file_that_it_is_written_in() -> None:
    assert loops.total._source == loops.child._source == str(Path(loops.__file__).resolve())
    assert loops.total._code == loops.child._code


def test_outside_of_a_run_there_are_no_turns() -> None:
    async def loop() -> None:
        async for _ in hf.turns(Chat()):
            return

    with pytest.raises(hf.NotInRun):
        asyncio.run(loop())


def test_a_local_that_a_turn_changes_is_told_once(stage: Stage) -> None:
    @hf.agent(name="carries")
    async def carries() -> int:
        total, other, seen = 0, "same", [1]
        async for state in hf.turns({"n": 0}):
            state["n"] += 1
            total += 1
            seen.append(2)
            if state["n"] == 5:
                break
        return total + len(other) + len(seen)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stage.go(carries())
    told = [str(each.message) for each in caught if each.category is hf.CarriedLocal]
    assert len(told) == 1
    assert told[0].startswith("total: changed in a turn")
    assert f"{Path(__file__).name}:" in told[0]
