"""Calls that the code cancels: losers of races, timeouts. A replay comes to the same end without starting them."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.verbs.effect.performing import EffectCall
from tests.concurrency.crashes import RUN, Ended, cut, ended_of, run_again, run_here
from tests.eventually import eventually
from tests.workers import until

ran: list[str] = []

#: By then an effect that was called has begun, on a slow machine too.
SOON_S = 0.25


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@hf.step
async def note(text: str, seconds: float = 0.0) -> str:
    ran.append(text)
    await asyncio.sleep(seconds)
    return text


@hf.effect(settle=0, on_doubt="retry")
async def act(text: str, seconds: float = 0.0) -> str:
    ran.append(text)
    await asyncio.sleep(seconds)
    ran.append(f"{text} ended")
    return text


def position(ended: Ended, kind: str, key: str) -> int:
    return next(r.seq for r in ended.records if r.kind == kind and r.key == key)


# races


@hf.agent
async def racing() -> list[str]:
    async def two_steps(text: str, seconds: float) -> str:
        return await note(f"{text} 1", seconds) + await note(f"{text} 2", seconds)

    first = await hf.race(note("slow", 60), note("quick"))
    second = await hf.race(two_steps("slow branch", 30), two_steps("quick branch", 0.001), note("slow too", 60))
    return [first, second, await note("end")]


def test_the_loser_of_a_race_stays_pending_and_its_body_never_starts_again(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", racing())
    assert ended.result == ["quick", "quick branch 1quick branch 2", "end"]
    assert set(ended.keys("cancelled")) == {"note#1", "two_steps~1/note#1", "note#3"}
    ran.clear()
    assert run_again(ended, racing(), tmp_path).result == ended.result
    assert ran == []
    after_first = position(ended, "cancelled", "note#1")
    again = run_again(ended, racing(), tmp_path, length=after_first)
    assert again.result == ended.result
    assert "slow" not in ran
    assert "quick" not in ran


@hf.agent
async def race_cut_short() -> list[str]:
    try:
        async with hf.timeout(0.02):
            await hf.race(note("a", 60), note("b", 60), note("c", 60))
    except TimeoutError:
        ran.append("timeout")
    return [await hf.race(note("slow", 60), note("quick")), await hf.race(note("quick too"), note("slow too", 60))]


def test_a_race_that_was_cancelled_does_not_hand_its_place_to_the_next(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", race_cut_short())
    assert ended.result == ["quick", "quick too"]
    for length in range(position(ended, "done", "hf.timeout#1"), len(ended.records)):
        ran.clear()
        assert run_again(ended, race_cut_short(), tmp_path, length=length).result == ended.result
        assert "timeout" in ran
        assert not {"a", "b", "c"} & set(ran) or length < position(ended, "cancelled", "note#3")


@hf.agent
async def racing_effects() -> list[str]:
    winner = await hf.race(act("loser", 0.03), note("winner"))
    return [winner, await act("end")]


def test_an_effect_that_loses_a_race_ends_before_its_cancellation_arrives(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", racing_effects())
    assert ran[-3:] == ["loser ended", "end", "end ended"]
    assert position(ended, "done", "act#1") < position(ended, "intent", "act#2")
    ran.clear()
    assert run_again(ended, racing_effects(), tmp_path).result == ended.result == ["winner", "end"]
    assert ran == []


# timeouts


#: What a timeout is given: if it counted anew when it is replayed, nobody would wait for its end.
limit_s = [0.0]


@hf.agent
async def expiring() -> list[str]:
    seen: list[str] = []

    async def aside() -> None:
        for n in range(3):
            seen.append(await note(f"aside {n}"))  # noqa: PERF401 - one by one

    task = asyncio.create_task(aside())
    try:
        async with hf.timeout(limit_s[0]):
            await note("slow", 600)
    except TimeoutError as error:
        seen.append(f"{type(error).__name__}: {error}")
    await task
    return [*seen, await note("end")]


def test_a_timeout_that_expired_is_replayed_at_once(tmp_path: Path) -> None:
    limit_s[0] = 0.1
    ended = run_here(tmp_path / "holdfast.db", expiring())
    assert "TimeoutError: hf.timeout(0.1) expired" in ended.result
    ran.clear()
    limit_s[0] = 3600
    again = run_again(ended, expiring(), tmp_path)
    assert again.result == [each.replace("(0.1)", "(3600)") for each in ended.result]
    assert ran == []


def test_after_a_crash_only_the_remaining_time_is_left(tmp_path: Path) -> None:
    limit_s[0] = 0.1
    ended = run_here(tmp_path / "holdfast.db", expiring())
    before = position(ended, "done", "hf.timeout#1") - 1
    limit_s[0] = 3600
    again = run_again(ended, expiring(), tmp_path, length=before)
    assert again.result == [each.replace("(0.1)", "(3600)") for each in ended.result]


@hf.agent
async def not_expiring() -> list[str]:
    async with hf.timeout(60):
        first = await note("in time")
    async with hf.timeout(0.02):
        second = await note("in time too")
    await note("pause", 0.03)
    return [first, second]


def test_a_timeout_that_did_not_expire_does_not_expire_when_replayed_later(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", not_expiring())
    for length in range(position(ended, "done", "note#2"), len(ended.records)):
        assert run_again(ended, not_expiring(), tmp_path, length=length).result == ["in time", "in time too"]


@hf.agent
async def nested(outer: float, inner: float) -> str:
    try:
        async with hf.timeout(outer):
            try:
                async with hf.timeout(inner):
                    await note("slow", 60)
            except TimeoutError:
                await note("inner")
                return "inner"
    except TimeoutError:
        return "outer"
    return "none"


@pytest.mark.parametrize(("outer", "inner", "who"), [(0.02, 60, "outer"), (60, 0.02, "inner"), (0.0, 0.0, "outer")])
def test_of_nested_timeouts_the_one_that_expired_raises(tmp_path: Path, outer: float, inner: float, who: str) -> None:
    ended = run_here(tmp_path / "holdfast.db", nested(outer, inner))
    assert ended.result == who
    assert run_again(ended, nested(outer, inner), tmp_path).result == who


@hf.agent
async def shielding(how: str) -> list[str]:
    seen: list[str] = []
    try:
        match how:
            case "hf.timeout":
                async with hf.timeout(SOON_S):
                    seen.append(await act("effect", 2 * SOON_S))
            case "asyncio.timeout":
                async with asyncio.timeout(SOON_S):
                    seen.append(await act("effect", 2 * SOON_S))
            case "wait_for":
                seen.append(await asyncio.wait_for(act("effect", 2 * SOON_S), SOON_S))
            case "cancel":
                task = asyncio.create_task(act("effect", 2 * SOON_S))
                await note("meanwhile", SOON_S)
                task.cancel()
                seen.append(await task)
    except (TimeoutError, asyncio.CancelledError) as error:
        seen.append(type(error).__name__)
    return [*seen, *ran[-1:], await act("after")]


@pytest.mark.parametrize("how", ["hf.timeout", "asyncio.timeout", "wait_for", "cancel"])
def test_a_timeout_reaches_an_effect_after_its_outcome_is_recorded(tmp_path: Path, how: str) -> None:
    ended = run_here(tmp_path / "holdfast.db", shielding(how))
    error = "CancelledError" if how == "cancel" else "TimeoutError"
    assert ended.result == [error, "effect ended", "after"]
    assert position(ended, "done", "act#1") < position(ended, "intent", "act#2")
    assert ended.keys("cancelled") == []
    ran.clear()
    again = run_again(ended, shielding(how), tmp_path)
    assert ran == []
    if how in ("hf.timeout", "cancel"):  # a plain timer measures again, and finds that nothing takes long
        assert again.result[0] == error


# undoing


@hf.effect(on_doubt="undo", settle=0)
async def book(city: str) -> str:
    ran.append(f"book {city}")
    return city


@book.undo
async def cancel_booking(booking: str | None, city: str) -> None:
    ran.append(f"cancel {city}")


@hf.agent
async def travelling() -> list[str]:
    try:
        first = await book("Rome")
    except hf.EffectUndone:
        first = "undone"
    return [first, await act("after")]


def test_an_effect_that_was_undone_does_not_stand_in_the_way_of_the_next(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "one" / "holdfast.db", travelling())
    undone = run_again(ended, travelling(), tmp_path / "two", length=position(ended, "intent", "book#1"))
    assert undone.result == ["undone", "after"]
    ran.clear()
    again = run_again(undone, travelling(), tmp_path / "three", length=position(undone, "intent", "act#1") - 1)
    assert again.result == ["undone", "after"]
    assert ran == ["after", "after ended"]


@hf.effect
async def reserve(city: str, seconds: float) -> str:
    ran.append(f"reserve {city}")
    await asyncio.sleep(seconds)
    return city


@reserve.undo
async def release(reservation: str | None, city: str, seconds: float) -> None:
    ran.append(f"release {city}")


@hf.step
async def no_rooms() -> str:
    await asyncio.sleep(SOON_S)
    raise ValueError("no rooms")


@hf.agent
async def touring() -> str:
    try:
        async with hf.saga(), asyncio.TaskGroup() as group:
            group.create_task(reserve("Rome", 2 * SOON_S))
            group.create_task(reserve("Oslo", 0.0))
            group.create_task(no_rooms())
    except* ValueError:
        pass
    return await note("end")


def test_a_saga_undoes_what_was_cancelled_after_it_happened_also_when_replayed(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", touring())
    assert ran[-3:] == ["release Rome", "release Oslo", "end"]
    for length in range(position(ended, "done", "reserve#1"), len(ended.records)):
        ran.clear()
        again = run_again(ended, touring(), tmp_path, length=length)
        undone = [r.key for r in again.records if r.kind == "done" and ".undo" in r.key]
        assert undone == ["reserve.undo#1", "reserve.undo#2"]
        assert not [each for each in ran if each.startswith("reserve")]
        assert again.result == "end"


# timers of the code's own


@act.undo
async def take_back(result: str | None, text: str, seconds: float = 0.0) -> None:
    ran.append(f"{text} taken back")


@hf.effect(settle=0, on_doubt="retry")
async def hold(text: str) -> str:
    ran.append(text)
    await asyncio.sleep(600)
    return text


@hold.undo
async def let_go(result: str | None, text: str) -> None:
    ran.append(f"{text} taken back")


async def outlast() -> None:
    """The effect takes longer than its time, so the code does not come to the sleep; a replay does, for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SOON_S):
            await act("long", 2 * SOON_S)
            await hf.sleep(days=1)


@hf.agent
async def outlasts(is_cut_off: bool) -> None:
    if not is_cut_off:
        await outlast()
    async with hf.saga():
        await act("first")
        if is_cut_off:
            await outlast()
            await hold("second")
        await hf.receive(("never", int))


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_run_that_is_cancelled_while_its_past_waits_for_a_timer_takes_back_all_of_it(
    tmp_path: Path, *, is_cut_off: bool
) -> None:
    url = str(tmp_path / "holdfast.db")

    async def main() -> None:
        async with hf.connect(url, agents=[outlasts], settings=hf.Settings(drain_s=0.05)) as app:
            await app.start(outlasts(is_cut_off), id="r")
            await eventually(lambda: ("second" if is_cut_off else "first ended") in ran)
        ran.clear()
        async with hf.connect(url) as client:
            await client.get("r").cancel(timeout=0)
            async with hf.connect(url, agents=[outlasts]):
                await until(client.get("r"), "cancelled")
        last_first = ["second", "long", "first"] if is_cut_off else ["first"]
        assert ran == [f"{each} taken back" for each in last_first]

    asyncio.run(main())


@hf.effect(settle=0)
async def act_in_doubt() -> str:
    raise ValueError("no answer")


@hf.agent
async def ends_before_it_is_known() -> str:
    async def branch() -> None:
        await act_in_doubt()
        ran.append("went on")

    task = asyncio.create_task(branch())
    with suppress(TimeoutError):
        async with asyncio.timeout(SOON_S):
            await hf.receive(("never", int))
    return "ended" if not task.done() else "too late"


def test_what_is_new_comes_after_what_a_timer_of_the_code_cancelled(tmp_path: Path) -> None:
    """A person says what became of the effect when the agent has ended; a replay waits for the timer first."""

    async def main() -> None:
        async with hf.connect(str(tmp_path / "holdfast.db"), agents=[ends_before_it_is_known]) as app:
            run = await app.start(ends_before_it_is_known())
            await until(run, "in_doubt")
            [doubt] = await run.in_doubt()
            await doubt.resolve(hf.landed("it was"))
            assert await run.result(timeout=60) == "ended"

    asyncio.run(main())
    assert ran == []


@hf.agent
async def undoes() -> int:
    async with hf.saga():
        await act("in the child")
        return await hf.receive(("never", int))


@hf.agent
async def cuts_a_child_off() -> str:
    async def cut_off() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SOON_S):
                await undoes()

    await asyncio.gather(cut_off(), note("meanwhile", 2 * SOON_S))
    return await note("then")


def test_a_timer_that_is_due_is_waited_for_however_slow_the_loop_is(tmp_path: Path) -> None:
    """What it cancels goes on some turns later, and only then asks for what it was told next."""

    async def slow_down() -> None:
        while True:
            time.sleep(0.004)
            await asyncio.sleep(0)

    async def once(store: Path, *, slowly: bool) -> Ended:
        slow = asyncio.create_task(slow_down()) if slowly else None
        async with hf.connect(str(store), agents=[cuts_a_child_off, undoes]) as app:
            run = await app.start(cuts_a_child_off(), id=RUN)
            ended = await ended_of(app, await run.result(timeout=60))
        if slow is not None:
            slow.cancel()
        return ended

    ended = asyncio.run(once(tmp_path / "whole.db", slowly=False))
    assert "cut_off~1/undoes#1.ended" in set(ended.keys())
    for n in range(3):
        store = cut(ended, len(ended.records) - 1, tmp_path / str(n) / "holdfast.db")
        again = asyncio.run(once(store, slowly=True))
        assert [record.key for record in again.records if record.name == "late"] == []
        assert again.keys() == ended.keys()


# what goes wrong meanwhile

heard: list[str] = []


@hf.agent
async def breaking() -> str:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(str(context["message"])))
    call = asyncio.ensure_future(act("broken"))
    await eventually(lambda: "begun" in ran)
    call.cancel("mine")
    ran.append("cancelled")
    try:
        await call
    except asyncio.CancelledError as error:
        ran.append(str(error))
    return ran[-1]


def test_an_error_that_a_cancellation_goes_before_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(call: EffectCall, attempt: int) -> None:
        ran.append("begun")
        await eventually(lambda: "cancelled" in ran)
        raise hf.UsageError("it cannot be begun")

    monkeypatch.setattr(EffectCall, "_attempt", breaks)
    assert run_here(tmp_path / "holdfast.db", breaking()).result == "mine"
    gc.collect()  # a task whose error nobody has heard tells its loop when it goes
    assert heard == []
