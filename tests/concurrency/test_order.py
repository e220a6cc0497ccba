"""What happened together, and in which order, is seen the same way again."""

from __future__ import annotations

import asyncio
import selectors
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.journal import ticks
from tests.concurrency.crashes import run_again, run_here

ran: list[str] = []
delays = {"first": 0.0, "second": 0.0, "patience": 0.03}


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()
    delays.update(first=0.0, second=0.0, patience=0.03)


@hf.step
async def note(text: str, turns: int = 0, seconds: float = 0.0) -> str:
    ran.append(text)
    for _ in range(turns):
        await asyncio.sleep(0)
    if seconds:
        await asyncio.sleep(seconds)
    return text


@hf.step
async def forever(text: str) -> str:
    ran.append(text)
    await asyncio.sleep(60)
    return text


@hf.effect(settle=0, on_doubt="retry")
async def act(text: str, turns: int = 0) -> str:
    ran.append(text)
    for _ in range(turns):
        await asyncio.sleep(0)
    return text


@hf.agent
async def together() -> list[str]:
    calls = [note("slowest", 3), note("slower", 2), note("fast", 1)]
    return [await each for each in asyncio.as_completed(calls)]


def test_calls_that_ended_together_are_delivered_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", together())
    assert {r.tick for r in ended.records if r.kind == "done"} == {1}
    assert ended.result == ["fast", "slower", "slowest"]
    assert run_again(ended, together(), tmp_path).result == ended.result


@hf.agent
async def mixed(effect_first: bool) -> list[list[str]]:
    seen: list[list[str]] = []
    for n in range(5):
        calls = [note(f"step {n}", 30), act(f"effect {n}", 0 if effect_first else 60)]
        seen.append([await each for each in asyncio.as_completed(calls)])
        tasks = [asyncio.create_task(act(f"again {n}")), asyncio.create_task(note(f"other {n}", 5))]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        seen.append(sorted(task.result() for task in done))
        await asyncio.gather(*left)
    return seen


@pytest.mark.parametrize("effect_first", [False, True])
def test_steps_and_effects_that_end_together_keep_their_order(tmp_path: Path, effect_first: bool) -> None:
    ended = run_here(tmp_path / "holdfast.db", mixed(effect_first))
    ran.clear()
    assert run_again(ended, mixed(effect_first), tmp_path).result == ended.result
    assert ran == []


@hf.agent
async def spinning() -> str:
    task = asyncio.create_task(note("awaited"))
    while not task.done():  # noqa: ASYNC110 - that is what is tested
        await asyncio.sleep(0)
    return task.result()


def test_a_branch_that_spins_does_not_hold_up_what_it_waits_for(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", spinning())
    assert ended.result == "awaited"
    assert run_again(ended, spinning(), tmp_path).result == "awaited"


@hf.agent
async def timing_out(steps: int, seconds: float) -> list[str]:
    seen: list[str] = []

    async def impatient() -> None:
        try:
            async with asyncio.timeout(delays["patience"]):
                await forever("never")
        except TimeoutError:
            seen.append("timeout")
        seen.append(await note("after"))

    async def steady() -> None:
        for n in range(steps):
            seen.append(await note(f"steady {n}", 0, seconds))  # noqa: PERF401 - one by one

    await asyncio.gather(impatient(), steady())
    return seen


def test_a_call_that_a_plain_timeout_cancelled_holds_up_what_came_after(tmp_path: Path) -> None:
    patience, place, ended = 0.01, 0, None
    while ended is None or not 0 < place < len(ended.result) - 1:  # it takes as long as some of the steps, not as all
        patience *= 3
        assert patience < 10, "the timeout never came between the steps"
        delays.update(patience=patience)
        ended = run_here(tmp_path / f"{patience}.db", timing_out(8, patience / 3))
        place = ended.result.index("timeout")
    ran.clear()
    delays.update(patience=1.0 + patience)  # however slow this machine is now, what came before it comes before it
    assert run_again(ended, timing_out(8, patience / 3), tmp_path).result == ended.result
    assert ran == []


def test_a_timer_that_is_called_while_something_is_about_to_be_delivered_comes_before_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is slow, so that the timer is due in whatever turn."""
    waits = selectors.DefaultSelector.select
    turn_s = 0.0

    def select(self: Any, timeout: float | None = None) -> Any:
        time.sleep(turn_s)
        return waits(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    for n in range(15):
        turn_s = 0.002 + n * 0.00014
        delays.update(patience=0.02)
        ended = run_here(tmp_path / str(n) / "holdfast.db", timing_out(12, 0.0))
        turn_s = 0.0
        delays.update(patience=1.0)  # what came before the timer comes before it, however slow this machine is now
        assert run_again(ended, timing_out(12, 0.0), tmp_path / str(n)).result == ended.result


@hf.agent
async def two_branches() -> list[str]:
    async def first() -> str:
        await asyncio.sleep(delays["first"])
        return await note("first")

    async def second() -> str:
        value = await note("second 1")
        await asyncio.sleep(delays["second"])
        return value + await note("second 2")

    return list(await asyncio.gather(first(), second()))


def test_a_call_that_comes_after_its_turn_has_its_value_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run_here(tmp_path / "holdfast.db", two_branches())
    monkeypatch.setattr(ticks, "_PATIENCE_S", 0.02)
    delays.update(first=0.2)
    ran.clear()
    again = run_again(ended, two_branches(), tmp_path)
    assert again.result == ended.result == ["first", "second 1second 2"]
    assert ran == []
    assert [r.key for r in again.records if r.name == "late"] == ["first~1/note#1"]


def test_a_replay_waits_a_while_for_branches_that_wait_for_their_own_timers(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", two_branches())
    delays.update(first=0.05, second=0.05)
    again = run_again(ended, two_branches(), tmp_path)
    assert again.result == ended.result
    assert [r.key for r in again.records if r.name == "late"] == []


@hf.agent
async def late_branch() -> list[str]:
    async def early() -> str:
        value = await act("early 1")
        while delays["second"] and not delays["over"]:  # noqa: ASYNC110
            await asyncio.sleep(delays["second"])
        return value + await act("early 2")

    async def late() -> str:
        value = await act("late")
        delays["over"] = 1.0
        return value

    task = asyncio.create_task(early())
    await asyncio.sleep(delays["first"])
    return [await asyncio.create_task(late()), await task]


def test_a_new_effect_waits_for_a_branch_that_reappears_late(tmp_path: Path) -> None:
    delays.update(second=0.01, over=0.0)
    ended = run_here(tmp_path / "holdfast.db", late_branch())
    done = ended.keys()
    assert done.index("late~1/act#1") < done.index("early~1/act#2")
    length = next(r.seq for r in ended.records if r.kind == "intent" and r.key == "early~1/act#2") - 1
    delays.update(first=0.2, second=0.0)
    ran.clear()
    again = run_again(ended, late_branch(), tmp_path, length=length)
    assert again.result == ended.result
    assert ran == ["early 2"]


@hf.agent
async def nested_gathers() -> list[str]:
    seen: list[str] = []

    async def deep() -> None:
        call = asyncio.gather(asyncio.gather(asyncio.gather(asyncio.gather(asyncio.gather(note("deep"))))))
        await call
        seen.append("deep")

    async def other() -> None:
        await note("other 1", 0, 0.01)
        await note("other 2", 0, 0.03)
        seen.append("other")

    await asyncio.gather(deep(), other())
    return seen


def test_a_chain_of_gathers_is_given_the_time_to_end(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", nested_gathers())
    assert run_again(ended, nested_gathers(), tmp_path).result == ended.result == ["deep", "other"]


ended_effect: list[asyncio.Event] = []


@hf.effect
async def act_and_tell() -> str:
    ended_effect[-1].set()
    return "effect"


@hf.step
async def hear() -> str:
    await ended_effect[-1].wait()
    return "step"


@hf.agent
async def effect_just_before_step() -> list[str]:
    ended_effect.append(asyncio.Event())
    return [await each for each in asyncio.as_completed([act_and_tell(), hear()])]


def test_an_effect_recorded_just_before_a_step_of_its_tick_is_seen_in_the_same_order_again(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", effect_just_before_step())
    done = [r for r in ended.records if r.kind == "done"]
    assert [r.key for r in done] == ["act_and_tell#1", "hear#1"]
    assert done[0].tick == done[1].tick, "they ended together"
    assert run_again(ended, effect_just_before_step(), tmp_path).result == ended.result


@pytest.mark.parametrize("is_winner_recorded", [False, True])
def test_an_open_effect_is_waited_for_although_its_branch_waits_for_its_own_timer(
    tmp_path: Path, is_winner_recorded: bool
) -> None:
    delays.update(second=0.05)
    ended = run_here(tmp_path / "holdfast.db", race_against_slow_effect())
    assert ended.result == ["winner", "end"]
    last = ("done", "winner~1/note#1") if is_winner_recorded else ("intent", "loser~1/act_slowly#1")
    length = next(r.seq for r in ended.records if (r.kind, r.key) == last)
    delays.update(first=0.2, second=0.0)
    ran.clear()
    again = run_again(ended, race_against_slow_effect(), tmp_path, length=length)
    assert again.result[1] == "end"
    assert ran.count("loser") == 1


@hf.effect(settle=0, on_doubt="retry")
async def act_slowly(text: str) -> str:
    ran.append(text)
    await asyncio.sleep(0.1)
    return text


@hf.agent
async def race_against_slow_effect() -> list[str]:
    async def loser() -> str:
        await asyncio.sleep(delays["first"])
        return await act_slowly("loser")

    async def winner() -> str:
        return await note("winner", 0, delays["second"])

    return [await hf.race(loser(), winner()), await act("end")]


@hf.agent
async def cancelled_effect() -> list[str]:
    seen: list[str] = []

    async def cancelled() -> None:
        try:
            await act_slowly("cancelled")
        finally:
            seen.append("cancelled")

    async def steady() -> None:
        for n in range(6):
            seen.append(await note(f"steady {n}", 0, 0.03))  # noqa: PERF401 - one by one

    task = asyncio.create_task(cancelled())
    other = asyncio.create_task(steady())
    await note("now cancel", 0, 0.01)
    task.cancel()
    await asyncio.wait([task, other])
    return seen


def test_a_cancellation_reaches_a_replayed_effect_when_it_did_then(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", cancelled_effect())
    assert 0 < ended.result.index("cancelled") < len(ended.result) - 1
    assert run_again(ended, cancelled_effect(), tmp_path).result == ended.result
