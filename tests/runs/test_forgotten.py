"""A call that the code forgets to await never happens: the run fails, and says which call it was and on which line."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.running import forgotten

SENT: list[str] = []


@hf.step
async def search(query: str) -> list[str]:
    return [query]


@hf.step
async def fails() -> str:
    raise OSError("the line is dead")


@hf.effect(settle=0)
async def send(text: str) -> str:
    SENT.append(text)
    return text


@hf.agent
async def child() -> str:
    return "a child"


@hf.agent
async def as_a_statement() -> str:
    await search("a")
    search("b")  # type: ignore[unused-coroutine]  # here
    return await send("as_a_statement")


@hf.agent
async def in_a_variable() -> str:
    await search("a")
    pages = search("b")  # here
    return f"{pages} were found"


@hf.agent
async def with_options() -> str:
    pages = search.with_options(key="k")("b")  # here
    return f"{pages} were found"


@hf.agent
async def an_effect() -> str:
    send("an_effect")  # type: ignore[unused-coroutine]  # here
    await hf.sleep(0)
    return "sent"


@hf.agent
async def a_condition() -> str:
    if search("b"):  # type: ignore[truthy-bool]  # here
        return await send("a_condition")
    return ""


@hf.agent
async def a_verb() -> str:
    hf.sleep(days=1)  # type: ignore[unused-coroutine]  # here
    return "at once"


@hf.agent
async def a_method() -> str:
    hf.get("other").send("go", 1)  # type: ignore[unused-coroutine]  # here
    return "sent"


@hf.agent
async def a_child() -> str:
    child()  # here
    return "started"


async def helper() -> str:
    found = search("b")  # here
    return f"{found}"


@hf.agent
async def in_a_helper() -> str:
    return await helper()


@hf.agent
async def in_a_branch() -> str:
    async def branch() -> None:
        search("b")  # type: ignore[unused-coroutine]  # here
        await search("c")

    await asyncio.create_task(branch())
    return "done"


@hf.agent
async def a_result() -> list[str]:
    await search("a")
    return search("b")  # type: ignore[return-value]  # here


@hf.agent
async def a_childs_result() -> str:
    return child()  # type: ignore[return-value]  # here


@hf.agent
async def an_answer() -> bool:
    return hf.ask("Really?")  # type: ignore[return-value]  # here


@hf.agent
async def in_a_list() -> Any:
    return {"found": [search(each) for each in "ab"]}  # here


@hf.agent
async def of_a_variable() -> list[str]:
    pages = search("b")  # here
    return pages  # type: ignore[return-value]


NAMES: dict[Any, str] = {
    a_result: "search",
    a_childs_result: "child",
    an_answer: "hf.ask",
    in_a_list: "search",
    of_a_variable: "search",
    as_a_statement: "search",
    in_a_variable: "search",
    with_options: "search",
    an_effect: "send",
    a_condition: "search",
    a_verb: "hf.sleep",
    a_method: "Run.send",
    a_child: "child",
    in_a_branch: "search",
}


def line_of(fn: Callable[..., Any]) -> int:
    lines, first = inspect.getsourcelines(fn)
    return first + next(n for n, line in enumerate(lines) if line.endswith("# here\n"))


def failure_of(agent: hf.Agent[[], str], path: Path) -> str:
    with pytest.raises(hf.RunFailed) as caught:
        hf.run(agent(), id="r", url=path / "s.db")
    assert isinstance(caught.value.__cause__, hf.UsageError)
    return str(caught.value)


@pytest.mark.parametrize("agent", NAMES, ids=str)
def test_a_forgotten_await_fails_the_run_with_name_and_line(tmp_path: Path, agent: hf.Agent[[], str]) -> None:
    name, places = NAMES[agent], f"{__file__}:{line_of(agent)}"
    assert failure_of(agent, tmp_path) == (
        f"Run r failed: UsageError: Run r: {name}(…) was called and not awaited ({places}), so it never happened. "
        f"Write `await {name}(…)`."
    )
    assert agent.name not in SENT


@hf.agent
async def as_an_argument() -> list[str]:
    return await search(search("b"))  # type: ignore[arg-type]


# The traceback keeps the call until the garbage is collected: Python warns of it then.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_call_that_is_given_to_a_call_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        hf.RunFailed, match=r"It is a call that was not awaited: write `await search\(…\)`\.$"
    ) as caught:
        hf.run(as_an_argument(), url=tmp_path / "s.db")
    del caught
    gc.collect()


@hf.agent
async def drops_its_own() -> str:
    async def own() -> None:
        pass

    own()  # type: ignore[unused-coroutine]  # here
    return "done"


def test_python_warns_of_other_coroutines_at_the_line_that_drops_them(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="own' was never awaited") as warned:
        assert hf.run(drops_its_own(), url=tmp_path / "s.db") == "done"
    assert [(each.filename, each.lineno) for each in warned] == [(__file__, line_of(drops_its_own))]


def test_a_call_in_a_variable_of_a_helper_is_one_of_those_that_are_named(tmp_path: Path) -> None:
    places = " or ".join(f"{__file__}:{line_of(fn)}" for fn in (in_a_variable, with_options, helper))
    assert failure_of(in_a_helper, tmp_path) == (
        f"Run r failed: UsageError: Run r: search(…) was called and not awaited ({places}), so it never happened. "
        "Write `await search(…)`."
    )


def test_a_call_that_is_dropped_while_another_thread_collects_garbage_is_told(tmp_path: Path) -> None:
    found, told = threading.Event(), threading.Event()

    class Garbage:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            found.set()
            told.wait(60)

    forgotten.install()
    Garbage()
    collector = threading.Thread(target=gc.collect)
    collector.start()
    try:
        assert found.wait(60)
        assert "was called and not awaited" in failure_of(in_a_variable, tmp_path)
    finally:
        told.set()
        collector.join()


# what is no mistake


@hf.agent
async def gives_up_at_the_first_failure() -> str:
    async def both() -> None:
        calls = [fails(), fails()]
        for call in calls:
            await call

    try:
        await both()
    except OSError:
        return "gave up"
    return "went on"


@hf.agent
async def fails_between() -> str:
    first, second = fails(), fails()
    third = search("c")
    try:
        await first
        await second
        await third
    except OSError:
        return "gave up"
    return "went on"


@hf.agent
async def closes_it() -> str:
    pages = search("b")
    pages.close()
    made = child()
    made.close()
    return "closed"


@hf.agent
async def hands_it_on() -> str:
    pages = search("b")
    other = search("c")
    found = await asyncio.gather(pages, other)
    task = asyncio.create_task(search("d"))
    task.cancel()
    return f"{len(found)}"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("agent", "result"),
    [
        (gives_up_at_the_first_failure, "gave up"),
        (fails_between, "gave up"),
        (closes_it, "closed"),
        (hands_it_on, "2"),
    ],
    ids=str,
)
def test_a_call_that_is_given_up_is_not_forgotten(tmp_path: Path, agent: hf.Agent[[], str], result: str) -> None:
    assert hf.run(agent(), url=tmp_path / "s.db") == result
    gc.collect()


@hf.agent
async def does_it_right() -> str:
    started = await hf.start(child())
    return await child() + await started.result()


def test_code_that_forgets_nothing_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def places(name: str, agent: object) -> list[str]:
        looked.append(name)
        return []

    monkeypatch.setattr(forgotten, "_places", places)
    assert hf.run(does_it_right(), url=tmp_path / "s.db") == "a childa child"
    assert looked == []


def test_outside_of_a_run_python_warns_as_ever(tmp_path: Path) -> None:
    assert hf.run(closes_it(), url=tmp_path / "s.db") == "closed"
    with pytest.warns(RuntimeWarning, match="coroutine 'search' was never awaited"):
        search("outside")  # type: ignore[unused-coroutine]
    child()
