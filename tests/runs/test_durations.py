"""A time is seconds or a timedelta, wherever one is taken; what is neither is refused with one sentence."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf

LONGEST_S = 100 * 365 * 86_400
A_MOMENT = timedelta(milliseconds=1)
MONTH = timedelta(days=30)


@hf.step(retries=hf.Retry(3, first=A_MOMENT, most=timedelta(milliseconds=2)), timeout=timedelta(minutes=1))
async def search(query: str) -> str:
    if hf.this_step().attempt < 3:
        raise OSError("the line is dead")
    return query


@hf.effect(settle=timedelta(0), timeout=timedelta(minutes=1))
async def send() -> str:
    if hf.this_step().attempt == 1:
        raise hf.RetryLater(A_MOMENT)
    return "sent"


@hf.agent(timeout=timedelta(hours=1))
async def patient() -> list[str]:
    done = [await search("tides"), await send()]
    await hf.sleep(A_MOMENT)
    await hf.sleep(A_MOMENT, minutes=0.00001)
    try:
        async with hf.timeout(A_MOMENT):
            await hf.sleep(MONTH)
    except TimeoutError as error:
        done.append(str(error))
    async with hf.timeout(minutes=1, hours=2, days=3):
        done.append("in time")
    try:
        await hf.receive(("news", str), timeout=A_MOMENT)
    except TimeoutError:
        done.append("no news")
    try:
        await hf.ask("Sure?", timeout=A_MOMENT)
    except TimeoutError:
        done.append("no answer")
    return done


@hf.agent
async def waits() -> str:
    return await hf.receive(("go", str))


def test_a_timedelta_is_taken_wherever_seconds_are(tmp_path: Path) -> None:
    done = hf.run(patient(), url=tmp_path / "d.db")
    assert done == ["tides", "sent", "hf.timeout(0.001) expired", "in time", "no news", "no answer"]


def test_apps_and_handles_take_timedeltas_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "d.db", agents=waits) as app:
            await app.queue("slow", rate=(10, timedelta(minutes=1)))
            await app.schedule("nightly", waits(), cron="0 2 * * *", jitter=timedelta(minutes=5))
            assert [queue.rate for queue in await app.queues()] == [(10, 60.0)]
            assert [schedule.jitter_s for schedule in await app.schedules()] == [300.0]
            await app.retain("waits", keep=86_400)
            assert [rule.keep for rule in await app.retention()] == [timedelta(days=1)]
            later = await app.start(waits(), id="later", delay=MONTH)
            assert await later.status() is hf.Status.queued
            run = await app.start(waits(), id="now")
            with pytest.raises(TimeoutError):
                await run.result(timeout=A_MOMENT)
            assert await run.cancel(timeout=timedelta(seconds=30)) is hf.Status.cancelled
            assert [each.id for each in await app.runs(since=MONTH)] == ["now", "later"]
            assert [each.id for each in await app.runs(since=datetime.now(UTC) + MONTH)] == []
            assert await app.cancel_all(timeout=timedelta(seconds=30), since=60) == ["later"]
            assert (await app.prune(older_than=60)).runs == 0

    asyncio.run(main())


def test_a_wait_that_is_over_already_takes_no_time(tmp_path: Path) -> None:
    @hf.agent
    async def late() -> str:
        await hf.sleep(timedelta(seconds=-1))
        try:
            async with hf.timeout(-5):
                await hf.sleep(days=1)
        except TimeoutError as error:
            return str(error)
        return "it waited"

    assert hf.run(late(), url=tmp_path / "d.db") == "hf.timeout(0) expired"


def run_in(tmp_path: Path, code: Callable[[], Awaitable[Any]]) -> None:
    """Execute something as the code of a run."""

    @hf.agent
    async def agent() -> None:
        await code()

    try:
        hf.run(agent(), url=tmp_path / "d.db")
    except hf.RunFailed as failed:
        raise failed.__cause__ or failed from None


async def block(**given: Any) -> None:
    async with hf.timeout(**given):
        pass


NEITHER: list[Any] = ["5", math.nan, math.inf, True, None, LONGEST_S + 1, timedelta.max]
DECLARED: dict[str, Callable[[Any], Any]] = {
    "timeout=": lambda time: hf.step(timeout=time, name="s")(lambda: 1),
    "settle=": lambda time: hf.effect(settle=time, name="e")(lambda: 1),
    "hf.Retry(first=)": lambda time: hf.Retry(first=time),
    "hf.Retry(most=)": lambda time: hf.Retry(most=time),
    "hf.RetryLater()": lambda time: hf.RetryLater(time),
}


def refusal(what: str, given: object) -> str:
    return f"{what} takes seconds or a timedelta, from 0 to a hundred years; got {given!r}."


@pytest.mark.parametrize("what", DECLARED)
@pytest.mark.parametrize("given", NEITHER, ids=repr)
def test_what_is_no_time_is_refused_where_it_is_declared(what: str, given: Any) -> None:
    if what == "timeout=" and given is None:
        return  # no limit
    with pytest.raises(hf.UsageError) as caught:
        DECLARED[what](given)
    assert str(caught.value) == refusal(what, given)


@pytest.mark.parametrize("what", ["timeout=", "settle=", "hf.Retry(first=)"])
def test_a_negative_time_is_refused_where_it_can_only_be_a_mistake(what: str) -> None:
    with pytest.raises(hf.UsageError, match=f"^{re.escape(refusal(what, -1))}$"):
        DECLARED[what](-1)


@pytest.mark.parametrize(
    ("what", "given", "code"),
    [
        ("hf.sleep()", "5", lambda: hf.sleep("5")),  # type: ignore[arg-type]
        ("hf.sleep()", {"days": "5"}, lambda: hf.sleep(days="5")),  # type: ignore[arg-type]
        ("hf.timeout()", "5", lambda: block(duration="5")),
        ("hf.timeout()", {"hours": math.inf}, lambda: block(hours=math.inf)),
        ("hf.receive(timeout=)", "5", lambda: hf.receive(("go", str), timeout="5")),  # type: ignore[call-overload]
        ("hf.ask(timeout=)", "5", lambda: hf.ask("Sure?", timeout="5")),  # type: ignore[call-overload]
        ("Run.result(timeout=)", "5", lambda: hf.get("r").result(timeout="5")),  # type: ignore[arg-type]
        ("Run.interrupt(timeout=)", "5", lambda: hf.get("r").interrupt("?", timeout="5")),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_time_is_refused_inside_a_run(
    tmp_path: Path, what: str, given: object, code: Callable[[], Awaitable[Any]]
) -> None:
    with pytest.raises(hf.UsageError) as caught:
        run_in(tmp_path, code)
    assert str(caught.value) == refusal(what, given)


def test_a_timeout_without_a_time_says_what_it_takes() -> None:
    with pytest.raises(hf.UsageError) as caught:
        hf.timeout()
    assert str(caught.value) == "hf.timeout() takes a time, like hf.timeout(30) or hf.timeout(days=1)."


@pytest.mark.parametrize(
    ("what", "act"),
    [
        ("delay=", lambda app: app.start(waits(), delay="5")),
        ("Schedule 'nightly': jitter=", lambda app: app.schedule("nightly", waits(), cron="0 2 * * *", jitter="5")),
        ("older_than=", lambda app: app.prune(older_than="5")),
        ("keep=", lambda app: app.retain("waits", keep="5")),
        ("since=", lambda app: app.runs(since="5")),
        ("Run.result(timeout=)", lambda app: app.get("r").result(timeout="5")),
        ("Run.cancel(timeout=)", lambda app: app.get("r").cancel(timeout="5")),
        ("Run.cancel(timeout=)", lambda app: app.cancel_all(timeout="5")),
        ("Run.interrupt(timeout=)", lambda app: app.get("r").interrupt("?", timeout="5")),
    ],
)
def test_what_is_no_time_is_refused_by_apps_and_handles(
    tmp_path: Path, what: str, act: Callable[[hf.Holdfast], Awaitable[Any]]
) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "d.db") as app:
            await app.start(waits(), id="r")
            await act(app)

    with pytest.raises(hf.UsageError) as caught:
        asyncio.run(main())
    assert str(caught.value) == refusal(what, "5")
