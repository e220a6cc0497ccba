"""Sessions of the Claude Agent SDK in the store of the runs: its own conformance suite, two writers, real kills."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import StoreCorrupt, UsageError
from tests.forkserver import ForkServer

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed: pip install 'holdfast[claude]'")

from claude_agent_sdk import SessionStore as Protocol
from claude_agent_sdk import get_session_info_from_store, rename_session_via_store
from claude_agent_sdk.testing import run_session_store_conformance

from holdfast.ext.claude import SessionStore
from tests.ext.claude_bots import KEY, SUB, batch, forget, tell


def opened(url: str, work: Callable[[hf.Holdfast], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with hf.connect(url) as app:
            return await work(app)

    return asyncio.run(main())


def test_the_conformance_suite_of_the_sdk_passes_with_all_that_is_optional(url: str) -> None:
    async def work(app: hf.Holdfast) -> None:
        numbers = itertools.count()
        await run_session_store_conformance(lambda: SessionStore(app, name=f"claude-{next(numbers)}"))
        assert next(numbers) == 15, "a store to look at, and one for each of the 14 contracts"
        for name in ("list_sessions", "list_session_summaries", "delete", "list_subkeys"):
            assert getattr(SessionStore, name) is not getattr(Protocol, name)

    opened(url, work)


def test_what_is_told_again_is_there_once(url: str) -> None:
    async def work(app: hf.Holdfast) -> None:
        store = SessionStore(app)
        for number in (0, 1, 0, 1):
            await store.append(KEY, batch(number))
        assert await store.load(KEY) == batch(0) + batch(1), "titles have no uuid: the batch they came in is known"
        await store.append(KEY, batch(1)[1:] + batch(2) + batch(2)[:1])
        title = batch(1)[-1:]  # with other company it is another one
        assert await store.load(KEY) == batch(0) + batch(1) + title + batch(2)
        await store.append(SUB, batch(1))
        assert await store.load(SUB) == batch(1), "a subagent's entries are its own"

    opened(url, work)


def test_those_who_write_at_the_same_time_are_both_heard_in_whole_batches(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url) as first, hf.connect(url) as second:
            stores = [SessionStore(first), SessionStore(second)]
            await asyncio.gather(*(stores[number % 2].append(KEY, batch(number)) for number in range(8)))
            found: Any = await stores[0].load(KEY)
            batches = [found[at : at + 4] for at in range(0, 32, 4)]
            assert sorted(batches, key=lambda each: each[0]["uuid"]) == [batch(number) for number in range(8)]
            (summary,) = await stores[1].list_session_summaries("p")
            assert summary["data"]["custom_title"] == batches[-1][-1]["customTitle"], "the last word counts"
            changed = [(await store.list_sessions("p"))[0]["mtime"] for store in stores]
            assert changed == [summary["mtime"]] * 2

    asyncio.run(main())


@pytest.mark.parametrize("point", ["define.before_commit:kill@3", "define.after_commit:kill@2"])
def test_a_writer_that_is_killed_leaves_whole_batches_and_tells_them_once(
    killed_url: str, point: str, forkserver: ForkServer
) -> None:
    def told() -> int:
        """How many batches are there, whole and in order."""
        found = opened(killed_url, lambda app: SessionStore(app).load(KEY))
        assert found == [entry for number in range(len(found) // 4) for entry in batch(number)]
        return len(found) // 4

    assert forkserver.start(tell, fault=point, url=killed_url, batches=4).wait() == -9
    assert told() in (1, 2), "the stores pass the point differently often"
    assert forkserver.start(tell, url=killed_url, batches=4).wait() == 0
    assert told() == 4


def test_what_a_killed_process_did_not_remove_is_removed_with_the_next_change(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    url = str(tmp_path / "runs.db")

    async def fill(app: hf.Holdfast) -> None:
        for key in (KEY, SUB):
            await SessionStore(app).append(key, batch(0))

    async def look(app: hf.Holdfast) -> None:
        store = SessionStore(app)
        assert await store.load(KEY) is None
        assert (await store.list_sessions("p"), await store.list_subkeys(KEY)) == ([], [])
        assert len(await app.extension("claude").spaces()) == 5, "what it was made of is still there"
        await store.append(KEY, batch(0))
        assert await store.load(KEY) == batch(0), "it is no repetition of what is gone"
        assert await app.extension("claude").spaces() == ['2:["p", "s"]', 'sessions:"p"', 'uuids:2:["p", "s"]']

    opened(url, fill)
    assert forkserver.start(forget, fault="define.after_commit:kill", url=url).wait() == -9
    opened(url, look)


def test_sessions_of_a_project_are_found_from_any_directory_and_helpers_of_the_sdk_work(tmp_path: Path) -> None:
    session = "6e1f3f0e-5d0b-4f0e-9a55-0d9d4f6b7a11"

    async def work(app: hf.Holdfast) -> None:
        store = SessionStore(app, project="all")
        prompt: Any = {"type": "user", "uuid": "1", "message": {"role": "user", "content": "Hello."}}
        await store.append({"project_key": "/home/one", "session_id": session}, [prompt])
        assert await store.load({"project_key": "/home/other", "session_id": session}) == [prompt]
        await rename_session_via_store(store, session, "Tides", directory=str(tmp_path))
        info = await get_session_info_from_store(store, session, directory=str(tmp_path))
        assert info is not None
        assert (info.custom_title, info.first_prompt) == ("Tides", "Hello.")
        assert await SessionStore(app).list_sessions("all") == await store.list_sessions("any")

    opened(str(tmp_path / "runs.db"), work)


@hf.agent
async def careless(kept: bool) -> object:
    return await (SessionStore().load(KEY) if kept else SessionStore().list_sessions("p"))


def test_what_does_not_belong_there_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[careless]) as app:
            for kept in (True, False):
                with pytest.raises(hf.RunFailed, match="in a step or an effect"):
                    await (await app.start(careless(kept))).result()
            store = SessionStore(app)
            with pytest.raises(UsageError, match="leave subpath out"):
                await store.load(KEY | {"subpath": ""})
            await store.append(KEY, batch(0))
            await app.extension("claude").remove('0:["p", "s"]', ["000000000002"])
            with pytest.raises(StoreCorrupt, match="1 of 4 entries are lost"):
                await store.load(KEY)

    asyncio.run(main())
