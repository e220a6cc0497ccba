"""Branches are named when their tasks are created; where no name can be given, durable calls raise."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

import holdfast as hf
from tests.concurrency.crashes import run_again, run_here

ran: list[str] = []
tag: contextvars.ContextVar[str] = contextvars.ContextVar("tag", default="none")


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@hf.step
async def note(text: str) -> str:
    ran.append(text)
    await asyncio.sleep(0)
    return text


@hf.effect(settle=0, on_doubt="retry")
async def act(text: str) -> str:
    ran.append(text)
    return text


class Client:
    """Something that cannot be stored."""

    def __init__(self, name: str) -> None:
        self.name = name


@hf.step
async def ask(client: Client) -> str:
    ran.append(client.name)
    return client.name


async def branch(text: str) -> str:
    await asyncio.sleep(0)
    return await note(f"{text} 1") + await note(f"{text} 2")


# contexts


@hf.agent
async def in_contexts() -> list[str]:
    empty, copied = contextvars.Context(), contextvars.copy_context()
    tasks = [
        asyncio.create_task(branch("empty"), context=empty),
        asyncio.create_task(branch("copied"), context=copied),
        asyncio.create_task(branch("none")),
        asyncio.create_task(note("call"), context=contextvars.Context()),
    ]
    return await asyncio.gather(*tasks)


def test_a_task_with_a_context_of_its_own_is_a_branch_like_any_other(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", in_contexts())
    assert ended.result == ["empty 1empty 2", "copied 1copied 2", "none 1none 2", "call"]
    branches = [f"branch~{n}/note#{m}" for n in (1, 2, 3) for m in (1, 2)]
    assert sorted(ended.keys()) == sorted([*branches, "note#1"])
    ran.clear()
    assert run_again(ended, in_contexts(), tmp_path).result == ended.result
    assert ran == []


# tasks and threads without a place


@hf.agent
async def bypassing() -> str:
    async def aside() -> str:
        return await note("aside")

    try:
        return await asyncio.Task(aside())
    except hf.UsageError as error:
        return str(error)


def test_a_durable_call_in_a_task_that_bypassed_the_factory_raises_and_says_so(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", bypassing())
    assert "did not see being created" in ended.result
    assert "create_task" in ended.result
    assert ran == []
    assert ended.keys("started", "done") == []


@hf.agent
async def in_threads() -> list[str]:
    def durable_value() -> str:
        try:
            return str(hf.now())
        except hf.UsageError as error:
            return str(error)

    def durable_step() -> str:
        async def main() -> str:
            return await note("thread")

        try:
            return asyncio.run(main())
        except hf.UsageError as error:
            return str(error)

    return [await asyncio.to_thread(durable_value), await asyncio.to_thread(durable_step)]


def test_durable_calls_from_a_thread_raise(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", in_threads())
    assert all("thread" in text and "did not see being created" in text for text in ended.result)
    assert ran == []
    assert ended.keys("started", "done") == []


said: list[str] = []
kept: list[AsyncIterator[int]] = []


async def numbers(ending: Callable[[], Coroutine[Any, Any, str]]) -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        try:
            said.append(await ending())
        except hf.UsageError as error:
            said.append(str(error))


@hf.agent
async def dropping(keep: bool) -> str:
    async def ending() -> str:
        return await act("finaliser")

    found = numbers(ending)
    async for _ in found:
        break
    if keep:
        kept.append(found)
    del found
    gc.collect()
    await asyncio.sleep(0.01)
    return await note("end")


@pytest.mark.parametrize("keep", [False, True])
def test_a_durable_call_in_a_generators_finaliser_raises_and_records_nothing(tmp_path: Path, keep: bool) -> None:
    said.clear()

    async def main() -> list[str]:
        async with hf.connect(str(tmp_path / "holdfast.db"), agents=[dropping]) as app:
            run = await app.start(dropping(keep), id="run")
            await run.result()
            kept.clear()
            gc.collect()
            await asyncio.sleep(0.01)
            return [r.key for r in await app._store.records(run.id) if r.key]

    keys = asyncio.run(main())
    assert len(said) == 1
    assert "finaliser" in said[0]
    assert "aclosing" in said[0]
    assert ran == ["end"]
    assert set(keys) == {"note#1"}


@hf.agent
async def stepping_through_a_generator() -> list[str]:
    async def pages() -> AsyncIterator[str]:
        for n in range(3):
            yield await note(f"page {n}")

    found = pages()
    return [await asyncio.create_task(anext(found)) for _ in range(3)]  # type: ignore[arg-type]


def test_a_generator_may_be_stepped_by_tasks(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", stepping_through_a_generator())
    assert ended.result == ["page 0", "page 1", "page 2"]
    assert len(set(ended.keys())) == 3
    ran.clear()
    assert run_again(ended, stepping_through_a_generator(), tmp_path).result == ended.result
    assert ran == []


# the same keys whatever makes the task


@hf.agent
async def waiting_for() -> list[str]:
    first = await asyncio.wait_for(branch("a"), 60)
    second = await asyncio.wait_for(note("b"), 60)
    third = await asyncio.wait_for(asyncio.gather(branch("c"), note("d")), 60)
    return [first, second, *third]


def test_wait_for_gives_the_same_keys_in_every_python(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", waiting_for())
    assert ended.result == ["a 1a 2", "b", "c 1c 2", "d"]
    assert sorted(ended.keys()) == ["branch~1/note#1", "branch~1/note#2", "note#1", "note#2", "note#3", "note#4"]


@hf.agent
async def after_a_step() -> list[str]:
    return [await note("x"), *await asyncio.gather(note("x"), note("x"), act("x"), note("y"))]


def test_a_call_has_the_same_key_however_much_of_the_run_was_recorded(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", after_a_step())
    expected = {"note#1", "note#2", "note#3", "note#4", "act#1"}
    assert set(ended.keys()) == expected
    for length in range(2, len(ended.records)):
        again = run_again(ended, after_a_step(), tmp_path, length=length)
        assert set(again.keys()) == expected
        assert again.result == ended.result


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks_have_the_same_keys(tmp_path: Path) -> None:
    async def main(store: Path) -> tuple[Any, list[str]]:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        async with hf.connect(str(store), agents=[after_a_step, in_contexts]) as app:
            run = await app.start(after_a_step(), id="run")
            other = await app.start(in_contexts(), id="other")
            result = [await run.result(), await other.result()]
            records = [*await app._store.records(run.id), *await app._store.records(other.id)]
            return result, sorted({r.key for r in records if r.kind == "done"})

    lazy = [run_here(tmp_path / f"{n}.db", call) for n, call in enumerate((after_a_step(), in_contexts()))]
    result, keys = asyncio.run(main(tmp_path / "eager.db"))
    assert result == [each.result for each in lazy]
    assert keys == sorted({key for each in lazy for key in each.keys()})  # noqa: SIM118 - records, not a dict


@hf.agent
async def in_a_group_of_anyios() -> list[str]:
    seen: list[str] = []

    async def branch(name: str) -> None:
        seen.append(await note(name))
        if len(seen) == 2:
            group.cancel_scope.cancel()
        await hf.sleep(1000)

    async with anyio.create_task_group() as group:
        group.start_soon(branch, "a")
        group.start_soon(branch, "b")
    return sorted(seen)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_groups_of_anyio_work_where_tasks_are_eager(tmp_path: Path) -> None:
    async def main() -> list[str]:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        async with hf.connect(str(tmp_path / "runs.db"), agents=[in_a_group_of_anyios]) as app:
            return await (await app.start(in_a_group_of_anyios(), id="run")).result(timeout=60)

    assert asyncio.run(main()) == ["a", "b"]


# as_completed


@hf.agent
async def completing(kind: str) -> list[str]:
    make = _asking if kind == "branches" else ask
    calls = [make(Client(name)) for name in "abc"]
    given = iter(calls) if kind == "iterator" else calls
    try:
        return sorted([await each for each in asyncio.as_completed(given)])
    except hf.UsageError as error:
        for call in calls:
            call.close()
        return [str(error)]


async def _asking(client: Client) -> str:
    value = await ask(client)
    assert value == client.name
    return value


@pytest.mark.parametrize("kind", ["calls", "branches"])
def test_as_completed_of_a_list_names_its_calls_in_the_order_of_the_list(tmp_path: Path, kind: str) -> None:
    ended = run_here(tmp_path / "holdfast.db", completing(kind))
    assert ended.result == ["a", "b", "c"]
    names = [f"ask#{n}" if kind == "calls" else f"_asking~{n}/ask#1" for n in (1, 2, 3)]
    found = {r.key: r.payload for r in ended.records if r.kind == "done"}
    assert found == {name: f'"{letter}"' for name, letter in zip(names, "abc", strict=True)}
    for length in range(2, len(ended.records)):
        assert run_again(ended, completing(kind), tmp_path, length=length).result == ended.result


@hf.agent
async def acting_in_any_order() -> list[str]:
    return sorted([await each for each in asyncio.as_completed([act(letter) for letter in "abcdefgh"])])


def test_a_call_without_a_record_does_not_take_its_neighbours(tmp_path: Path) -> None:
    """as_completed starts its calls in any order: what is on disk first may be any of them."""
    ended = run_here(tmp_path / "holdfast.db", acting_in_any_order())
    for length in range(2, len(ended.records)):
        again = run_again(ended, acting_in_any_order(), tmp_path, length=length)
        assert again.result == list("abcdefgh")
        assert [r.key for r in again.records if r.name == "unstable"] == []


def test_as_completed_of_an_iterator_refuses_calls_that_it_cannot_tell_apart(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", completing("iterator"))
    assert "Give it a list" in ended.result[0]


@hf.agent
async def completing_equal(as_branches: bool) -> list[str]:
    calls = [branch("same") if as_branches else note("same") for _ in range(3)]
    return [await each for each in asyncio.as_completed(iter(calls))]


@pytest.mark.parametrize("as_branches", [False, True])
def test_as_completed_takes_equal_calls_from_an_iterator(tmp_path: Path, as_branches: bool) -> None:
    ended = run_here(tmp_path / "holdfast.db", completing_equal(as_branches))
    ran.clear()
    again = run_again(ended, completing_equal(as_branches), tmp_path)
    assert again.result == ended.result
    assert ran == []
    assert len(set(ended.keys())) == (6 if as_branches else 3)


# other factories, other apps


def test_a_factory_that_was_there_goes_on_making_the_tasks(tmp_path: Path) -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(getattr(coro, "__name__", ""))
        return asyncio.Task(coro, loop=loop, **options)

    async def main() -> Any:
        asyncio.get_running_loop().set_task_factory(factory)
        async with hf.connect(str(tmp_path / "holdfast.db"), agents=[in_contexts]) as app:
            return await (await app.start(in_contexts())).result()

    assert asyncio.run(main())[2] == "none 1none 2"
    assert made.count("branch") == 3


def test_a_factory_installed_later_may_lie_between_two_of_ours(tmp_path: Path) -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        async with hf.connect(str(tmp_path / "one.db"), agents=[after_a_step]):
            ours = loop.get_task_factory()
            assert ours is not None

            def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
                return ours(loop, coro, **options)

            loop.set_task_factory(factory)
            async with hf.connect(str(tmp_path / "two.db"), agents=[in_contexts]) as app:
                run = await app.start(in_contexts(), id="run")
                await run.result()
                return [r.key for r in await app._store.records(run.id) if r.kind == "done"]

    assert sorted(asyncio.run(main())) == sorted(run_here(tmp_path / "holdfast.db", in_contexts()).keys())


def test_a_factory_installed_later_that_ignores_ours_makes_durable_calls_raise(tmp_path: Path) -> None:
    async def main() -> Any:
        async with hf.connect(str(tmp_path / "holdfast.db"), agents=[after_a_step, in_contexts]) as app:
            await (await app.start(after_a_step())).result()
            asyncio.get_running_loop().set_task_factory(
                lambda loop, coro, **options: asyncio.Task(coro, loop=loop, **options)
            )
            run = await app.start(in_contexts())
            with pytest.raises(hf.RunFailed, match="did not see being created"):
                await run.result()

    asyncio.run(main())


@hf.step
def blocking(text: str) -> str:
    return f"{hf.this_step().run_id} {tag.get()} {text}"


@hf.agent
async def tagged(n: int) -> list[str]:
    tag.set(f"tag {n}")

    async def inner(m: int) -> str:
        assert hf.this_run().id == f"run-{n}"
        await asyncio.sleep(0)
        text = await blocking(f"{n}.{m}")
        assert tag.get() == f"tag {n}"
        return text

    values = await asyncio.gather(inner(1), inner(2), blocking(f"{n}.3"))
    return [*values, await asyncio.to_thread(lambda: f"{hf.this_run().id} {tag.get()}")]


def test_a_hundred_concurrent_runs_in_two_apps_do_not_see_each_others_context(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = (hf.connect(str(tmp_path / name), agents=[tagged]) for name in ("one.db", "two.db"))
        async with one, two:
            runs = [await (one if n % 2 else two).start(tagged(n), id=f"run-{n}") for n in range(100)]
            for n, run in enumerate(runs):
                start = f"run-{n} tag {n}"
                assert await run.result() == [f"{start} {n}.1", f"{start} {n}.2", f"{start} {n}.3", start]
            with pytest.raises(hf.NotInRun):
                hf.this_run()

    asyncio.run(main())
