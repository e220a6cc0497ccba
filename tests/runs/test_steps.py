"""Steps inside runs: recorded, answered, retried, cancelled."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel

import holdfast as hf
from holdfast.app import arun
from holdfast.base.config import Settings
from holdfast.model import Kind
from tests.runs.journal import records_of

CALLS: list[str] = []


@dataclass
class Point:
    x: int
    y: int


class Page(BaseModel):
    title: str
    tags: set[str]


@hf.step
async def typed() -> Page:
    return Page(title="tides", tags={"sea", "moon"})


@hf.step
async def point() -> Point:
    return Point(1, 2)


@hf.step
async def untyped():  # type: ignore[no-untyped-def]
    return {1: (2, b"\xff"), "s": {3}}


@hf.step
def in_thread(n: int) -> str:
    CALLS.append("in_thread")
    return f"{threading.current_thread().name.partition('_')[0]} {n}"


@hf.step
async def nested(n: int) -> str:
    return await in_thread(n)


@hf.agent
async def values() -> str:
    page = await typed()
    raw = await untyped()
    assert isinstance(page, Page)
    assert raw == {1: (2, b"\xff"), "s": {3}}
    assert await point() == Point(1, 2)
    return f"{sorted(page.tags)} {await in_thread(3)}"


def test_values_come_back_with_their_types_and_def_steps_run_in_threads(tmp_path: Path) -> None:
    assert hf.run(values(), url=str(tmp_path / "s.db")) == "['moon', 'sea'] holdfast 3"


@hf.agent
async def calls_a_step_in_a_step() -> str:
    return await nested(4)


def test_a_step_inside_a_step_is_a_plain_call(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    hf.run(calls_a_step_in_a_step(), id="r", url=url)
    assert [r.key for r in records_of(url, "r") if r.kind == Kind.done] == ["nested#1"]


def test_outside_of_a_run_steps_and_effects_are_plain_functions() -> None:
    assert asyncio.run(point()) == Point(1, 2)
    assert asyncio.run(in_thread(1)).endswith(" 1")


class Custom(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


@hf.step(raises=(Custom,))
async def raises_custom() -> None:
    raise Custom(7)


@hf.step
async def raises_undeclared() -> None:
    raise Custom(8)


@hf.step
async def raises_builtin() -> None:
    raise KeyError("k")


@hf.agent
async def sees_exceptions() -> list[str]:
    seen = []
    for step in (raises_custom, raises_undeclared, raises_builtin):
        try:
            await step()
        except Exception as error:
            seen.append(f"{type(error).__name__} {getattr(error, 'code', '')}")
    return seen


def test_declared_and_builtin_exceptions_come_back_as_themselves_and_others_as_step_error(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    first = hf.run(sees_exceptions(), id="r", url=url)
    assert first == ["Custom 7", "StepError ", "KeyError "]


@hf.step(retries=hf.Retry(2, first=0.001))
async def flaky(name: str) -> int:
    CALLS.append(name)
    attempt = hf.this_step().attempt
    if attempt < 3:
        raise ConnectionError(f"attempt {attempt}")
    return attempt


@hf.agent
async def retries() -> int:
    return await flaky("flaky")


def test_a_failed_step_is_retried_and_each_attempt_is_recorded(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    assert hf.run(retries(), id="r", url=url) == 3
    assert [(r.kind, r.attempt) for r in records_of(url, "r") if r.key == "flaky#1" and r.kind != Kind.started] == [
        (Kind.attempt, 1),
        (Kind.attempt, 2),
        (Kind.done, 3),
    ]


@hf.step(retries=1)
async def later() -> int:
    attempt = hf.this_step().attempt
    if attempt <= 3:
        raise hf.RetryLater(0.001)
    return attempt


@hf.agent
async def postpones() -> int:
    return await later()


def test_retry_later_does_not_use_up_the_retries(tmp_path: Path) -> None:
    assert hf.run(postpones(), url=str(tmp_path / "s.db")) == 4


@hf.step(timeout=0.02)
async def too_slow() -> None:
    await asyncio.sleep(30)


@hf.step(timeout=0.02)
def too_slow_in_a_thread(gate: threading.Event) -> None:
    gate.wait(0.2)


@hf.agent
async def times_out() -> list[str]:
    seen = []
    for call in (too_slow(), too_slow_in_a_thread(threading.Event())):
        try:
            await call
        except TimeoutError as error:
            seen.append(type(error).__name__)
    return seen


def test_a_step_that_takes_too_long_raises_timeout_error(tmp_path: Path) -> None:
    assert hf.run(times_out(), url=str(tmp_path / "s.db")) == ["TimeoutError", "TimeoutError"]


@hf.step
async def returns_a_lock():  # type: ignore[no-untyped-def]
    return {"a": [threading.Lock()]}


@hf.agent
async def stores_what_cannot_be_stored() -> str:
    try:
        await returns_a_lock()
    except hf.Unserialisable as error:
        return f"{error.path} | {error}"
    return "stored"


def test_a_result_that_cannot_be_stored_is_refused_with_its_path(tmp_path: Path) -> None:
    message = hf.run(stores_what_cannot_be_stored(), url=str(tmp_path / "s.db"))
    assert "lock" in message
    assert "[0]" in message
    assert "returns_a_lock#1" in message


@hf.step
async def big(size: int) -> str:
    return "x" * size


@hf.agent
async def returns_big() -> int:
    return len(await big(3_000_000)) + len(await big(3_000_000))


def test_large_values_live_in_blobs_once_and_come_back(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    assert hf.run(returns_big(), id="r", url=url) == 6_000_000
    stored = [r.payload for r in records_of(url, "r") if r.kind == Kind.done]
    assert stored[0] == stored[1]
    assert stored[0] is not None
    assert stored[0].startswith("@")


@hf.agent
async def too_big() -> str:
    try:
        await big(20_000)
    except hf.Unserialisable as error:
        return str(error)
    return "stored"


def test_a_value_over_the_limit_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    async def go() -> str:
        settings = Settings(inline_limit=100, value_limit=10_000)
        async with hf.connect(str(tmp_path / "s.db"), agents=[too_big], settings=settings) as app:
            return await (await app.start(too_big())).result()

    assert "the limit is 10,000" in asyncio.run(go())


@hf.step
async def keyed(n: int) -> int:
    return n


@hf.agent
async def explicit_keys(twice: bool) -> list[int]:
    first = await keyed.with_options(key="a")(1)
    return [first, await keyed.with_options(key="a" if twice else "b")(2)]


def test_an_explicit_key_names_one_call_of_a_run(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    assert hf.run(explicit_keys(False), id="r", url=url) == [1, 2]
    assert [r.key for r in records_of(url, "r") if r.kind == Kind.done] == ["key:a", "key:b"]
    with pytest.raises(hf.RunFailed, match="a second time"):
        hf.run(explicit_keys(True), url=url)


@hf.agent
async def counts(n: int) -> int:
    total = 0
    for i in range(n):
        total += await keyed(i)
    return total


def test_a_long_run_waits_for_the_disk_when_too_much_is_not_durable(tmp_path: Path) -> None:
    async def go() -> int:
        settings = Settings(backlog_records=50)
        async with hf.connect(str(tmp_path / "s.db"), agents=[counts], settings=settings) as app:
            return await (await app.start(counts(1000))).result()

    assert asyncio.run(go()) == sum(range(1000))


def test_usage_and_progress_are_noted_and_summed(tmp_path: Path) -> None:
    @hf.step
    async def model() -> str:
        hf.usage(model="m", input_tokens=10, output_tokens=5, cost=0.5)
        return "text"

    @hf.agent
    async def chats() -> str:
        hf.progress(1, 2, "half")
        await model()
        return await model()

    async def go() -> hf.RunInfo:
        async with hf.connect(str(tmp_path / "s.db"), agents=[chats]) as app:
            run = await app.start(chats())
            await run.result()
            return await run.info()

    info = asyncio.run(go())
    assert (info.input_tokens, info.output_tokens, info.cost, info.steps) == (20, 10, 1.0, 2)


def test_bad_options_are_refused_when_the_function_is_decorated() -> None:
    with pytest.raises(hf.UsageError, match="retries="):
        hf.step(retries=-1)(in_thread)
    with pytest.raises(hf.UsageError, match="exception classes"):
        hf.step(raises=("no",))(in_thread)  # type: ignore[arg-type]
    with pytest.raises(hf.UsageError, match="cannot be a name"):
        hf.step(name="hf.mine")(in_thread)
    with pytest.raises(hf.UsageError, match="async function"):
        hf.agent(lambda: None)  # type: ignore[arg-type, return-value]


def test_hf_run_inside_a_running_loop_says_what_to_do(tmp_path: Path) -> None:
    async def go() -> None:
        hf.run(values(), url=str(tmp_path / "s.db"))

    with pytest.raises(hf.UsageError) as caught:
        asyncio.run(go())
    assert str(caught.value) == (
        "hf.run() was called where an event loop runs already, as in a notebook: use `await hf.arun(values(…), id=…)` "
        "there, or `async with hf.connect(…) as app:` and app.start()."
    )


def test_a_call_is_what_run_takes(tmp_path: Path) -> None:
    with pytest.raises(hf.UsageError, match="call of an agent"):
        asyncio.run(arun("no", id=None, thread_id=None, url=str(tmp_path / "s.db")))  # type: ignore[arg-type]
