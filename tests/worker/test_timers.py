"""Timers on a wall clock that jumps: none is lost, none fires twice or early, and the loop stays free."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.base import clock
from holdfast.worker.timers import Timer, Timers
from tests.eventually import eventually

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def _clock_is_put_back() -> Iterator[None]:
    yield
    clock.reset()


def with_timers(test: Callable[[Timers], Coroutine[Any, Any, None]]) -> None:
    async def go() -> None:
        timers = Timers()
        try:
            await test(timers)
        finally:
            timers.close()

    asyncio.run(go(), debug=False)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# the clock


def test_the_clock_is_the_real_one_until_somebody_moves_it() -> None:
    assert abs(clock.now_us() - time.time_ns() // 1000) < SECOND
    clock.shift_us(-HOUR)
    clock.shift_us(3 * HOUR)
    assert abs(clock.now_us() - time.time_ns() // 1000 - 2 * HOUR) < SECOND
    assert not clock.is_frozen()
    clock.reset()
    assert abs(clock.now_us() - time.time_ns() // 1000) < SECOND


def test_a_frozen_clock_stands_still_and_can_be_moved() -> None:
    clock.freeze(5 * SECOND + 7)
    assert clock.is_frozen()
    assert [clock.now_us(), clock.now_us()] == [5 * SECOND + 7] * 2
    clock.shift_us(-SECOND)
    assert clock.now_us() == 4 * SECOND + 7
    clock.reset()
    assert clock.now_us() > 4 * SECOND + 7


def test_whoever_asked_for_it_hears_of_each_move() -> None:
    heard: list[int] = []

    def hear() -> None:
        heard.append(clock.now_us())

    clock.on_shift(hear)
    try:
        clock.freeze(1)
        clock.shift_us(1)
        clock.off_shift(hear)
        clock.off_shift(hear)
        clock.shift_us(1)
    finally:
        clock.off_shift(hear)
    assert heard == [1, 2]


def test_a_variable_moves_the_clock_of_a_whole_process() -> None:
    code = (
        "import time\n"
        "from holdfast.base import clock\n"
        "def ahead(): return round((clock.now_us() - time.time_ns() // 1000) / 1e6)\n"
        "print(ahead()); clock.shift_us(5_000_000); print(ahead()); clock.reset(); print(ahead())\n"
    )

    def ran(value: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOLDFAST_TEST_CLOCK_SHIFT_S": value}
        return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)

    assert ran("-86400.25").stdout.split() == ["-86400", "-86395", "-86400"]
    assert "HOLDFAST_TEST_CLOCK_SHIFT_S takes a number of seconds; got 'soon'" in ran("soon").stderr


# timers


def test_timers_fire_in_the_order_of_their_times_and_then_as_they_were_set() -> None:
    async def test(timers: Timers) -> None:
        fired: list[str] = []
        clock.freeze(0)
        for name, due in (("c", 30), ("a", 10), ("b", 20), ("a2", 10), ("d", 40)):
            timers.at(due, lambda name=name: fired.append(name))  # type: ignore[misc]
        await turns()
        assert (fired, timers.next_due(), len(timers)) == ([], 10, 5)
        clock.shift_us(30)
        assert fired == []
        await turns()
        assert (fired, timers.next_due(), len(timers)) == (["a", "a2", "b", "c"], 40, 1)

    with_timers(test)


def test_a_timer_that_is_due_fires_soon_but_not_at_once() -> None:
    async def test(timers: Timers) -> None:
        fired: list[int] = []
        timers.at(0, lambda: fired.append(1))
        assert fired == []
        await turns()
        assert fired == [1]

    with_timers(test)


def test_timers_fire_in_real_time_and_never_early() -> None:
    async def test(timers: Timers) -> None:
        done = asyncio.Event()
        late: list[int] = []
        for ms in (30, 5, 80, 5, 1):
            due = clock.now_us() + ms * 1000
            timers.at(due, lambda due=due: late.append(clock.now_us() - due))  # type: ignore[misc]
        timers.at(clock.now_us() + 100_000, done.set)
        await asyncio.wait_for(done.wait(), 60)
        assert len(late) == 5
        assert min(late) >= 0, late

    with_timers(test)


def test_a_cancelled_timer_does_not_fire_even_from_a_callback_of_the_same_time() -> None:
    async def test(timers: Timers) -> None:
        clock.freeze(0)
        fired: list[str] = []
        second: list[Timer] = []
        first = timers.at(10, lambda: (fired.append("first"), second[0].cancel()))  # type: ignore[func-returns-value,arg-type]
        second.append(timers.at(10, lambda: fired.append("second")))
        third = timers.at(20, lambda: fired.append("third"))
        third.cancel()
        third.cancel()
        assert len(timers) == 2
        clock.shift_us(100)
        await turns()
        assert fired == ["first"]
        first.cancel()  # has happened
        assert (len(timers), timers.next_due()) == (0, None)

    with_timers(test)


def test_an_error_is_reported_and_stops_no_other_timer() -> None:
    async def test(timers: Timers) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        fired: list[int] = []

        def fail() -> None:
            raise ValueError("mine")

        for due in range(4):
            timers.at(due, fail if due % 2 else lambda due=due: fired.append(due))  # type: ignore[misc]
        await turns()
        assert fired == [0, 2]
        assert [str(context["exception"]) for context in reported] == ["mine", "mine"]

    with_timers(test)


def test_a_callback_that_sets_a_due_timer_again_and_again_leaves_turns_to_others() -> None:
    async def test(timers: Timers) -> None:
        fired: list[int] = []

        def again() -> None:
            fired.append(1)
            timers.at(0, again)

        timers.at(0, again)
        await turns(50)
        assert 10 < len(fired) <= 50

    with_timers(test)


def test_callbacks_see_nothing_of_the_context_that_they_were_set_in() -> None:
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")

    async def test(timers: Timers) -> None:
        seen: list[str] = []
        where.set("in a run")
        timers.at(0, lambda: seen.append(where.get()))
        await turns()
        assert seen == ["nowhere"]

    with_timers(test)


def test_the_clock_going_forward_fires_what_is_due_at_once_and_once() -> None:
    async def test(timers: Timers) -> None:
        fired: list[int] = []
        now = clock.now_us()
        for day in range(1, 41):
            timers.at(now + day * DAY, lambda day=day: fired.append(day))  # type: ignore[misc]
        clock.shift_us(30 * DAY)
        await turns()
        assert fired == list(range(1, 31))
        await turns()
        assert len(fired) == 30

    with_timers(test)


def test_the_clock_going_back_makes_timers_wait_longer_without_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(timers: Timers) -> None:
        looks = 0
        look = timers._look

        def counted() -> None:
            nonlocal looks
            looks += 1
            look()

        monkeypatch.setattr(timers, "_look", counted)
        fired: list[int] = []
        due = clock.now_us() + 20_000
        timers.at(due, lambda: fired.append(clock.now_us()))
        before = asyncio.get_running_loop().time()
        clock.shift_us(-HOUR)
        assert timers._handle is not None
        assert timers._handle.when() - before > 0.9, "it looks once a second"
        await turns()
        assert fired == []
        clock.shift_us(HOUR)
        await eventually(lambda: fired)
        assert len(fired) == 1
        assert fired[0] >= due
        assert looks <= 3

    with_timers(test)


def test_a_jump_that_nobody_announces_is_noticed_within_a_second() -> None:
    async def test(timers: Timers) -> None:
        fired = asyncio.Event()
        timers.at(clock.now_us() + 30 * DAY, fired.set)
        clock.off_shift(timers._shifted)  # as if somebody had set the clock of the machine
        clock.shift_us(31 * DAY)
        await turns()
        assert not fired.is_set()
        assert timers._handle is not None
        assert timers._handle.when() - asyncio.get_running_loop().time() <= 1
        await asyncio.wait_for(fired.wait(), 60)

    with_timers(test)


def test_timers_on_a_frozen_clock_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(timers: Timers) -> None:
        clock.freeze(0)
        timers.at(1, lambda: None)
        assert timers._handle is None
        clock.shift_us(1)
        assert timers._handle is not None

    with_timers(test)


def test_another_thread_may_move_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.timers._LOOK_S", 3600)  # nobody looks by himself

    async def test(timers: Timers) -> None:
        fired = asyncio.Event()
        timers.at(clock.now_us() + DAY, fired.set)
        thread = threading.Thread(target=clock.shift_us, args=(2 * DAY,))
        thread.start()
        thread.join()
        await asyncio.wait_for(fired.wait(), 60)

    with_timers(test)


def test_after_closing_nothing_fires() -> None:
    async def test(timers: Timers) -> None:
        fired: list[int] = []
        timers.at(0, lambda: fired.append(1))
        timers.close()
        timer = timers.at(0, lambda: fired.append(2))
        assert not timer.is_live
        timer.cancel()
        clock.shift_us(DAY)
        await turns()
        assert (fired, len(timers), timers.next_due()) == ([], 0, None)

    with_timers(test)


def test_a_callback_may_close_the_timers() -> None:
    async def test(timers: Timers) -> None:
        fired: list[int] = []
        timers.at(0, timers.close)
        timers.at(1, lambda: fired.append(1))
        await turns()
        assert (fired, len(timers)) == ([], 0)

    with_timers(test)


def test_a_hundred_thousand_timers_take_little_time_and_leave_turns_to_others() -> None:
    async def test(timers: Timers) -> None:
        clock.freeze(0)
        fired = 0

        def fire() -> None:
            nonlocal fired
            fired += 1

        began = time.thread_time()
        made = [timers.at(1 + (number * 7919) % 100_000, fire) for number in range(100_000)]
        for timer in made[::2]:
            timer.cancel()
        assert len(timers) == 50_000
        for timer in made[1::4]:
            timer.cancel()
        assert len(timers) == 25_000
        assert len(timers._heap) < 80_000  # those that were cancelled are not kept
        clock.shift_us(200_000)
        passed = 0
        while len(timers):
            await asyncio.sleep(0)
            passed += 1
        assert fired == 25_000
        assert passed > 10
        assert time.thread_time() - began < 20

    with_timers(test)


_acts = st.lists(
    st.one_of(
        st.tuples(st.just("at"), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("shift"), st.integers(-20, 20)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(acts=_acts)
def test_whatever_is_done_each_timer_fires_when_it_is_due_unless_cancelled(acts: list[tuple[str, int]]) -> None:
    async def test(timers: Timers) -> None:
        clock.freeze(20)
        made: list[tuple[Timer, int]] = []
        fired: list[int] = []
        expected: list[int] = []
        waiting: dict[int, int] = {}
        for act, number in acts:
            if act == "at":
                index = len(made)
                made.append((timers.at(number, lambda index=index: fired.append(index)), number))  # type: ignore[misc]
                waiting[index] = number
            elif act == "cancel" and number < len(made):
                made[number][0].cancel()
                waiting.pop(number, None)
            elif act == "shift":
                clock.shift_us(number)
            await turns(4)
            due = sorted((due, index) for index, due in waiting.items() if due <= clock.now_us())
            expected += [index for _, index in due]
            for _, index in due:
                del waiting[index]
            assert fired == expected
            assert timers.next_due() == min(waiting.values(), default=None)
            assert len(timers) == len(waiting)

    with_timers(test)
    clock.reset()
