"""A call that the old code cancelled is made by new code that does not, or the run is blocked; it never hangs."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import holdfast as hf
from holdfast.model import Kind
from holdfast.testing import check_history
from tests.scripts import python
from tests.workers import seen, until

Act: TypeAlias = Callable[[hf.Run[str]], Awaitable[Any]]

FILES = Path(__file__).parent / "limited"
LIMIT = "    async with hf.timeout(0.3):\n        return await call\n"
GONE = "    return await call\n"
EDITS = {"agent's module": "program.py", "helper": "limits.py", "unseen": "unseen.py"}
CUT_OFF = "cut off, went"
MADE = {
    "step": "step, went",
    "effect": "paid, went",
    "sleep": "None, went",
    "receive": "word, went",
    "ask": "True, went",
    "result": "slept, went",
    "race": "step, went",
    "timeout": "step, went",
    "branches": "['step', None], went",
    "beside": "step, went",
}
#: Cut off by the code itself in every version: by a timer of its own, and after something outside.
ITSELF = ("plain", "outside")


def live(folder: Path, life: int, limit: str, edited: str = "same") -> subprocess.CompletedProcess[str]:
    ended = python(str(folder / "program.py"), str(folder / "store" / "s.db"), str(life), limit, edited, cwd=folder)
    assert ended.returncode == (0 if life == 3 else -signal.SIGKILL), ended.stderr
    return ended


def three_lives(folder: Path, limit: str, edited: str | None) -> tuple[dict[str, Any], list[str], str]:
    """Three lives of the program, killed in between, edited after the first: its results, the world, the log."""
    shutil.copytree(FILES, folder, dirs_exist_ok=True)
    (folder / "store").mkdir()
    live(folder, 1, limit)
    if edited is not None:
        path = folder / edited
        assert LIMIT in path.read_text()
        path.write_text(path.read_text().replace(LIMIT, GONE))
    log = live(folder, 2, limit, edited or "same").stderr
    ended = live(folder, 3, limit, edited or "same")
    world = (folder / "store" / "world.txt").read_text().splitlines()
    assert check_history(str(folder / "store" / "s.db")) == []
    return json.loads(ended.stdout), world, log + ended.stderr


@pytest.mark.parametrize("limit", EDITS)
def test_calls_that_are_not_cancelled_any_more_are_made_or_block(tmp_path: Path, limit: str) -> None:
    told, world, log = three_lives(tmp_path, limit, EDITS[limit])
    blocked = told.pop("child")
    is_seen = limit != "unseen"
    assert told == {**MADE, **dict.fromkeys(ITSELF, "step, went" if is_seen else CUT_OFF)}
    assert blocked["why"] == "replay mismatch"
    assert [each["key"] for each in blocked["recorded"]] == ["helper#1"]
    assert any("helper" in each and ".py:" in each for each in blocked["attempted"])
    made = ["beside", "branches", "race", "step", "timeout", *(ITSELF if is_seen else ())]
    assert sorted(line for line in world if line[0] == "2") == sorted(f"2 {each}" for each in made), "once, no effect"
    assert [line for line in world if line[0] == "3"] == []
    assert "call=helper#1" in log
    assert ("call=slow#1" in log) is not is_seen, "changed code does not wait for it"


def test_calls_that_are_cancelled_again_stay_pending(tmp_path: Path) -> None:
    told, world, log = three_lives(tmp_path, "helper", None)
    assert told == dict.fromkeys((*MADE, "child", *ITSELF), CUT_OFF)
    assert [line for line in world if line[0] != "1"] == []
    assert "run.not_cancelled_again" not in log


@hf.agent
async def errand() -> str:
    return await hf.receive(("never", str))


async def _one_life(store: Path, agent: hf.Agent[[], str], act: Act) -> Any:
    async with hf.connect(str(store), agents=[agent, errand], settings=hf.Settings(sweep_s=0.1)) as app:
        return await act(await app.start(agent(), id="run"))


def one_life(store: Path, agent: hf.Agent[[], str], act: Act) -> Any:
    return asyncio.run(_one_life(store, agent, act))


async def waits_for(run: hf.Run[str], name: str) -> None:
    def is_there(info: hf.RunInfo) -> bool:
        return any(wait.get("name") == name for wait in (info.reason or {}).get("waits", []))

    await seen(run.info, is_there, timeout_s=60, what=str)


def version(number: str, *, is_limited: bool = True, is_longer: bool = False) -> hf.Agent[[], str]:
    """A version of an agent that calls a child off, after a message or, later, after two."""

    @hf.agent(name="caller", version=number)
    async def caller() -> str:
        waiting = asyncio.create_task(errand())
        await hf.receive(("first", str))
        if is_longer:
            await hf.receive(("second", str))
        if is_limited:
            waiting.cancel()
        try:
            return await waiting
        except asyncio.CancelledError:
            return f"called off, {await hf.receive(('go', str))}"

    return caller


async def call_off(run: hf.Run[str]) -> None:
    await run.send("first", "one")
    await waits_for(run, "go")


def test_a_child_is_called_off_by_changed_code_that_comes_to_it_later(tmp_path: Path) -> None:
    async def go_on(run: hf.Run[str]) -> str:
        await run.send("go", "went")
        await waits_for(run, "second")
        await run.send("second", "two")
        return await run.result(timeout=60)

    one_life(tmp_path / "s.db", version("1"), call_off)
    assert one_life(tmp_path / "s.db", version("2", is_longer=True), go_on) == "called off, went"


def test_a_run_that_waits_for_a_child_it_called_off_goes_on_with_the_old_code(tmp_path: Path) -> None:
    async def is_blocked(run: hf.Run[str]) -> None:
        await run.send("go", "went")
        with pytest.raises(hf.RunBlocked, match="now waits for it") as caught:
            await run.result(timeout=60)
        assert [each["key"] for each in caught.value.reason["recorded"]] == ["errand#1"]
        await until(run, "blocked", timeout_s=60)
        assert "not cancelled" in [item.status for item in await run.history()]

    async def goes_on(run: hf.Run[str]) -> str:
        await run.resume()
        return await run.result(timeout=60)

    one_life(tmp_path / "s.db", version("1"), call_off)
    one_life(tmp_path / "s.db", version("2", is_limited=False), is_blocked)
    assert one_life(tmp_path / "s.db", version("1"), goes_on) == "called off, went"


@pytest.mark.parametrize("sibling", ["step", "sleep", "child"])
def test_what_was_called_off_because_a_sibling_failed_is_made_when_a_retry_does_not_fail(
    tmp_path: Path, sibling: str
) -> None:
    made: list[str] = []
    is_broken = True

    @hf.step
    async def breaks() -> str:
        if is_broken:
            raise ValueError("broken")
        return "mended"

    @hf.step
    async def other() -> str:
        made.append("other")
        if is_broken:
            await asyncio.sleep(3600)
        return "made"

    @hf.agent
    async def both() -> list[str]:
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]]
        calls = {"step": other, "sleep": lambda: hf.sleep(1.5), "child": errand}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(calls[sibling]()), group.create_task(breaks())]
        return [str(task.result()) for task in tasks]

    async def main() -> None:
        nonlocal is_broken
        async with hf.connect(str(tmp_path / "s.db"), agents=[both, errand]) as app:
            run = await app.start(both())
            with pytest.raises(hf.RunFailed):
                await run.result(timeout=60)
            is_broken = False
            await run.retry()
            if sibling == "child":  # its run was cancelled, and that is its result
                with pytest.raises(hf.RunFailed) as caught:
                    await run.result(timeout=60)
                assert "was cancelled" in "".join(traceback.format_exception(caught.value))
            else:
                assert await run.result(timeout=60) == [{"step": "made", "sleep": "None"}[sibling], "mended"]
                assert len(made) == (2 if sibling == "step" else 0)

    asyncio.run(main())


def test_a_message_that_a_wait_had_when_it_was_called_off_is_received_once(tmp_path: Path) -> None:
    item = hf.Signal("item", int)

    def version(number: str, *, is_race: bool) -> hf.Agent[[], str]:
        @hf.agent(name="takes", version=number)
        async def takes() -> str:
            tasks = [asyncio.create_task(hf.receive(item)) for _ in range(2)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED if is_race else asyncio.ALL_COMPLETED)
            for task in tasks:
                task.cancel()
            got = await asyncio.gather(*tasks, return_exceptions=True)
            await hf.receive(("go", str))
            return f"{got}, then {await hf.receive(item)}"

        return takes

    async def first() -> None:
        old = version("1", is_race=True)
        async with hf.connect(str(tmp_path / "s.db"), agents=[old]) as app:
            run = await app.start(old(), id="run", paused=True)
            for n in (1, 2):
                await run.send(item, n)
            await run.resume()
            await waits_for(run, "go")
            records = [(record.kind, record.key) for record in await app._store.records(run.id)]
            lost = next(key for kind, key in records if kind == Kind.cancelled)
            assert (Kind.decided, lost) in records, "it had a message"

    async def go_on(run: hf.Run[str]) -> str:
        await run.send("go", "went")
        await waits_for(run, "item")
        await run.send(item, 3)
        return await run.result(timeout=60)

    asyncio.run(first())
    assert one_life(tmp_path / "s.db", version("2", is_race=False), go_on) == "[1, 2], then 3"
