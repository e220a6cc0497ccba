"""Threads of LangGraph in the store of the runs: the framework's own conformance suite, two writers, real kills."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from pydantic import BaseModel

import holdfast as hf
from holdfast.control.upkeep.definitions import copy_extensions
from holdfast.errors import Fenced, Undecodable, UsageError
from holdfast.testing.processes import environment

pytest.importorskip("langgraph", reason="langgraph is not installed: pip install 'holdfast[langgraph]'")

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from holdfast.ext.langgraph_saver import Saver
from tests.ext.saver_bots import THREAD, Talk, answer, talk


def opened(url: str, work: Callable[[hf.Holdfast], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with hf.connect(url) as app:
            return await work(app)

    return asyncio.run(main())


async def said(graph: Any, config: Any = THREAD) -> list[str]:
    return [each.rstrip(".") for each in (await graph.aget_state(config)).values.get("said", [])]


def turn(number: int, at: int) -> list[str]:
    return [f"say {number}", f"answer to say {number}", f"nod {at + 2}"]


def test_the_conformance_suite_detects_all_capabilities_and_all_of_them_pass(url: str) -> None:
    conformance = pytest.importorskip("langgraph.checkpoint.conformance")

    async def work(app: hf.Holdfast) -> None:
        @conformance.checkpointer_test(name="holdfast")  # type: ignore[untyped-decorator]
        async def saver() -> AsyncIterator[Saver]:
            yield Saver(app)

        results = (await conformance.validate(saver)).results
        assert {name: (each.detected, each.passed, each.failures) for name, each in results.items()} == dict.fromkeys(
            ["put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune"],
            (True, True, []),
        )

    opened(url, work)


def test_a_list_that_grows_for_150_turns_takes_less_than_10_mb(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def work(app: hf.Holdfast) -> None:
        saver, config, said = Saver(app), THREAD, list[Any]()
        for number in range(150):
            for part in range(3):  # as a graph of two nodes does
                if part:
                    said.append({"role": "user", "content": f"{number} {part} " + "x" * 1_500})
                checkpoint = {**empty_checkpoint(), "id": f"{number:04}-{part}", "channel_values": {"said": said}}
                config = await saver.aput(config, checkpoint, {"step": number}, {})  # type: ignore[arg-type]
        found = await saver.aget_tuple(THREAD)
        assert found is not None
        assert found.checkpoint["channel_values"]["said"] == said

    opened(str(path), work)
    assert path.stat().st_size < 10e6


class Together(Saver):
    """Who has read waits until so many have."""

    barrier: asyncio.Barrier | None = None

    async def aget_tuple(self, config: Any) -> Any:
        found = await super().aget_tuple(config)
        if self.barrier is not None:
            await self.barrier.wait()
        return found


def test_of_two_who_begin_or_go_on_with_a_thread_one_is_refused_and_nothing_of_it_is_kept(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url) as first, hf.connect(url) as second:
            savers = [Together(first), Together(second)]
            for which in (savers, savers, [savers[0]] * 2):
                graphs = [talk(saver) for saver in which]
                before = await said(graphs[0])
                barrier = savers[0].barrier = savers[1].barrier = asyncio.Barrier(2)
                calls = [graph.ainvoke({"said": [f"say {at}"]}, THREAD) for at, graph in enumerate(graphs)]
                ends = await asyncio.gather(*calls, return_exceptions=True)
                assert not barrier.broken
                savers[0].barrier = savers[1].barrier = None
                (refused,) = [each for each in ends if isinstance(each, BaseException)]
                assert isinstance(refused, Fenced)
                assert "Thread talk of LangGraph has another writer" in str(refused)
                (done,) = [at for at, each in enumerate(ends) if not isinstance(each, BaseException)]
                assert await said(graphs[0]) == before + turn(done, len(before))

    asyncio.run(main())


def test_one_who_is_overtaken_in_the_middle_is_refused(tmp_path: Path) -> None:
    async def work(app: hf.Holdfast) -> None:
        other = talk(Saver(app))

        async def slow(state: Talk) -> dict[str, list[str]]:
            await other.aupdate_state(THREAD, {"said": ["an interjection"]})
            return await answer(state)

        with pytest.raises(Fenced, match="another writer"):
            await talk(Saver(app), slow).ainvoke({"said": ["say 0"]}, THREAD, durability="sync")
        assert await said(other) == ["say 0", "an interjection"]

    opened(str(tmp_path / "runs.db"), work)


async def back_and_forth(graph: Any) -> list[Any]:
    """What a thread comes to that is gone back in, and changed where it is not at its end."""
    for number in range(2):
        await graph.ainvoke({"said": [f"say {number}"]}, THREAD)
    found: list[Any] = [await said(graph)]
    history = [each async for each in graph.aget_state_history(THREAD)]
    for each in history[::-1]:
        await graph.ainvoke({"said": ["say 2"]} if not each.next else None, each.config)
        changed = await graph.aupdate_state(each.config, {"said": ["say 3"]}, as_node="__start__")
        found += [await said(graph), await said(graph, changed)]
        await graph.aupdate_state(each.config, None, as_node="__copy__")
        await graph.ainvoke({"said": ["say 4"]}, THREAD)
        found += [await said(graph)]
    return [*found, len([each async for each in graph.aget_state_history(THREAD)])]


def test_who_asks_for_a_checkpoint_by_its_id_goes_on_from_there(tmp_path: Path) -> None:
    async def work(app: hf.Holdfast) -> None:
        outer: Any = StateGraph(Talk)
        outer.add_node("talk", talk(True))
        outer.add_edge(START, "talk")
        assert await back_and_forth(talk(Saver(app))) == await back_and_forth(talk(InMemorySaver()))
        own, stock = (outer.compile(checkpointer=each) for each in (Saver(app, name="outer"), InMemorySaver()))
        assert await back_and_forth(own) == await back_and_forth(stock)

    opened(str(tmp_path / "runs.db"), work)


def test_who_is_killed_in_the_middle_of_a_put_leaves_nothing_half_made(url: str) -> None:
    command = [sys.executable, "-m", "tests.ext.saver_bots", url, "9"]
    env = environment({"HOLDFAST_FAULT": "define.before_commit:kill@11"})
    assert subprocess.run(command, env=env, timeout=90, check=False).returncode == -9

    async def work(app: hf.Holdfast) -> None:
        graph = talk(Saver(app))
        history = [each async for each in graph.aget_state_history(THREAD)]  # each has all that it refers to
        assert history
        assert len({each.config["configurable"]["checkpoint_id"] for each in history}) == len(history)
        latest = await Saver(app).aget(THREAD)
        assert latest is not None
        assert history[0].config["configurable"]["checkpoint_id"] == latest["id"]
        await graph.ainvoke(None, THREAD)
        done = await said(graph)
        turns = len(done) // 3
        assert done == [each for at in range(turns) for each in turn(at, 3 * at)]
        await graph.ainvoke({"said": [f"say {turns}"]}, THREAD)
        assert await said(graph) == done + turn(turns, 3 * turns)

    opened(url, work)


def test_in_a_thread_it_blocks_and_on_the_thread_of_the_loop_it_raises(url: str) -> None:
    async def work(app: hf.Holdfast) -> None:
        def plain(state: Talk) -> dict[str, list[str]]:
            return {"said": ["plain"]}

        builder: Any = StateGraph(Talk)
        builder.add_node("plain", plain)
        builder.add_edge(START, "plain")
        graph = builder.compile(checkpointer=Saver(app))
        await asyncio.to_thread(graph.invoke, {"said": ["say"]}, THREAD)
        assert await asyncio.to_thread(graph.invoke, {"said": ["say"]}, THREAD) == {
            "said": ["say", "plain", "say", "plain"]
        }
        assert len(await asyncio.to_thread(lambda: list(graph.get_state_history(THREAD, limit=3)))) == 3
        await asyncio.to_thread(graph.checkpointer.delete_thread, "talk")
        assert (await graph.aget_state(THREAD)).values == {}
        with pytest.raises(UsageError, match="thread of the app's event loop"):
            graph.invoke({"said": ["say"]}, THREAD)

    opened(url, work)


class Order(BaseModel):
    number: int


def test_types_that_are_not_named_are_not_made_from_what_is_stored(tmp_path: Path) -> None:
    async def work(app: hf.Holdfast) -> None:
        checkpoint: Any = {**empty_checkpoint(), "channel_values": {"order": [Order(number=7)]}}
        await Saver(app).aput(THREAD, checkpoint, {"step": 0}, {})
        with pytest.raises(Undecodable, match=r"test_langgraph_saver\.Order.*allow=\[Order\]"):
            await Saver(app).aget_tuple(THREAD)
        found = await Saver(app, allow=[Order]).aget_tuple(THREAD)
        assert found is not None
        assert found.checkpoint["channel_values"]["order"] == [Order(number=7)]

    opened(str(tmp_path / "runs.db"), work)


def test_what_is_pruned_takes_its_blobs_with_it_and_others_go_on(url: str) -> None:
    async def work(app: hf.Holdfast) -> None:
        graph, other = talk(Saver(app)), Saver(app)
        documents = app.extension("langgraph")
        for number in range(3):
            await graph.ainvoke({"said": [f"say {number}"]}, THREAD)
        before = await said(graph)
        await other.aprune(["talk"])
        assert sorted(await documents.spaces()) == ["b1:talk", "c1:talk", "threads"]
        assert len(await documents.read("b1:talk")) == 3, "one for each long answer"
        assert await said(graph) == before
        await graph.ainvoke({"said": ["say 3"]}, THREAD)
        assert await said(graph) == before + turn(3, 9)
        await other.acopy_thread("talk", "copy")
        await other.adelete_thread("talk")
        copy: Any = {"configurable": {"thread_id": "copy"}}
        await graph.ainvoke({"said": ["say 4"]}, copy)
        assert await said(graph, copy) == before + turn(3, 9) + turn(4, 12)
        assert (await graph.aget_state(THREAD)).values == {}
        of_none: Any = {"configurable": {"thread_id": "new", "checkpoint_id": "not-yet"}}
        await other.aput_writes(of_none, [("said", ["x" * 100])], "task")  # before its checkpoint, and then a kill
        await other.adelete_thread("new")
        assert [each for each in await documents.spaces() if await documents.read(each)] == [
            "b1:copy", "c1:copy", "threads",
        ]  # fmt: skip
        with pytest.raises(UsageError, match="belongs to a thread"):
            await other.aget_tuple({"configurable": {}})
        with pytest.raises(UsageError, match="keep_latest or delete"):
            await other.aprune(["copy"], strategy="half")

    opened(url, work)


def test_a_thread_that_was_copied_to_another_store_goes_on_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "a.db")) as first, hf.connect(str(tmp_path / "b.db")) as second:
            for number in range(2):
                await talk(Saver(first)).ainvoke({"said": [f"say {number}"]}, THREAD)
            await copy_extensions(first._store, second._store)
            saver = Saver(second)
            graph = talk(saver)
            await graph.ainvoke({"said": ["say 2"]}, THREAD)
            history = [each.values["said"] async for each in graph.aget_state_history(THREAD) if not each.next]
            assert [len(each) for each in history] == [9, 6, 3], "the newest first"
            await saver.aprune(["talk"])
            assert await said(graph) == turn(0, 0) + turn(1, 3) + turn(2, 6)

    asyncio.run(main())


def joined(old: list[str], many: list[list[str]]) -> list[str]:
    return [*old, *(each for new in many for each in new)]


class Deltas(TypedDict):
    said: Annotated[list[str], DeltaChannel(joined)]


async def echo(state: Deltas) -> dict[str, list[str]]:
    return {"said": state["said"][-1:]}


def test_what_a_delta_channel_is_made_of_is_not_pruned(tmp_path: Path) -> None:
    async def work(app: hf.Holdfast) -> None:
        builder: Any = StateGraph(Deltas)
        builder.add_node("echo", echo)
        builder.add_edge(START, "echo")
        graph = builder.compile(checkpointer=Saver(app))
        for number in range(3):
            await graph.ainvoke({"said": [f"say {number}"]}, THREAD)
        before = await said(graph)
        assert before == ["say 0", "say 0", "say 1", "say 1", "say 2", "say 2"]
        await graph.checkpointer.aprune(["talk"])
        assert await said(graph) == before

    opened(str(tmp_path / "runs.db"), work)
