"""One app serves one event loop. Used from another one it says so; it does not wait for ever."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf

GO = ("go", bool)
CLASSES = (hf.Run, hf.Question, hf.InDoubt, hf.Holdfast)


@hf.agent
async def asks() -> str:
    return f"told {await hf.ask('Well?')}"


@hf.effect(settle=0)
async def post() -> str:
    raise ConnectionResetError("who knows")


@hf.agent
async def doubts() -> str:
    return await post()


@hf.agent
async def takes(event: int) -> int:
    return event


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "s.db")
    found: str = request.getfixturevalue("postgres_url")
    return found


async def found(look: Callable[[], Awaitable[list[Any]]]) -> Any:
    while not (seen := await look()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return seen[0]


async def objects(app: hf.Holdfast) -> dict[str, Any]:
    """One of each that a caller holds."""
    asking, unsure = await app.start(asks(), id="asks"), await app.start(doubts(), id="doubts")
    question = await asyncio.wait_for(found(asking.questions), 60)
    doubt = await asyncio.wait_for(found(unsure.in_doubt), 60)
    return {"Run": asking, "Question": question, "InDoubt": doubt, "Holdfast": app}


async def try_all(held: dict[str, Any]) -> list[str]:
    """Call every public coroutine; what did not say that this is another loop."""
    wrong = []
    for cls in CLASSES:
        for name, member in inspect.getmembers(cls, inspect.iscoroutinefunction):
            if name.startswith("_") and name not in ("__aenter__", "__aexit__"):
                continue
            needed = [
                None
                for each in list(inspect.signature(member).parameters.values())[1:]
                if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
            ]
            given = {
                each.name: None
                for each in inspect.signature(member).parameters.values()
                if each.default is each.empty and each.kind is each.KEYWORD_ONLY
            }
            try:
                await asyncio.wait_for(getattr(held[cls.__name__], name)(*needed, **given), 30)
                wrong.append(f"{cls.__name__}.{name} returned")
            except hf.UsageError as error:
                if "another event loop" not in str(error):
                    wrong.append(f"{cls.__name__}.{name}: {error}")
            except BaseException as error:
                wrong.append(f"{cls.__name__}.{name}: {error!r}")
    return wrong


@pytest.mark.parametrize("agents", [[asks, doubts], []], ids=["a worker", "a client"])
def test_the_loop_of_another_thread_is_refused(url: str, agents: list[hf.Agent[..., Any]]) -> None:
    async def go() -> None:
        async with hf.connect(url, agents=[asks, doubts]) as worker, hf.connect(url, agents=agents) as app:
            held = await objects(worker if agents else app)
            wrong: list[str] = []
            thread = threading.Thread(target=lambda: wrong.extend(asyncio.run(try_all(held))))
            thread.start()
            await asyncio.to_thread(thread.join)
            assert wrong == []
            assert await held["Run"].status() in (hf.Status.running, hf.Status.waiting), "here it goes on"
            await held["Question"].answer(True)
            assert await held["Run"].result(timeout=60) == "told True"

    asyncio.run(go())


def test_a_second_asyncio_run_is_refused_and_another_app_is_not(url: str) -> None:
    app = hf.connect(url, agents=[asks, doubts])

    async def first() -> dict[str, Any]:
        await app.__aenter__()
        return await objects(app)

    runner = asyncio.Runner()
    held = runner.run(first())
    try:
        assert asyncio.run(try_all(held)) == []

        async def other() -> hf.Status:
            async with hf.connect(url) as client:
                return await client.get("asks").status()

        assert asyncio.run(other()) in (hf.Status.running, hf.Status.waiting)
    finally:
        runner.run(app.__aexit__(None, None, None))
        runner.close()


def test_an_app_that_was_closed_may_be_opened_on_another_loop(url: str) -> None:
    app = hf.connect(url, agents=[takes])

    async def use(n: int) -> int:
        async with app:
            return await (await app.start(takes(n))).result(timeout=60)

    assert [asyncio.run(use(n)) for n in range(3)] == [0, 1, 2]


@hf.step
def blocking(url: str) -> str:
    try:
        return str(asyncio.run(Held.app.runs()))
    except hf.UsageError as error:
        return str(error)


class Held:
    app: hf.Holdfast


@hf.agent
async def uses_a_thread(url: str) -> str:
    return await blocking(url)


def test_a_def_body_that_has_a_loop_of_its_own_is_told(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[uses_a_thread]) as Held.app:
            run = await Held.app.start(uses_a_thread("x"))
            assert "another event loop" in await run.result(timeout=60)

    asyncio.run(go())
