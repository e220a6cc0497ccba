"""All that a run has put out is listed in one place, and can be read there: files, plan, messages, partial streams."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from tests.eventually import eventually

go = hf.Signal("go", int)


@hf.step
async def draft() -> str:
    out = hf.stream("draft")
    out.write("It was a dark ")
    out.write("and stormy")
    raise ValueError("no idea")


@hf.agent
async def writer(topic: str) -> None:
    todo = await hf.plan(["read", "write"])
    await hf.artifact("notes.txt", topic)
    await hf.thread(str).append(f"about {topic}", "well")
    await todo.tick(1)
    await hf.thread(str).summarise("it began", upto=1)
    await draft()


@hf.agent(signals=[go])
async def rounds() -> int:
    todo = await hf.plan(["one", "two"])
    async for state in hf.turns([0]):
        state.append(await hf.receive(go))
        await todo.tick(len(state) - 1)
        if len(state) == 3:
            break
    return 0


def outputs(found: list[hf.Artifact]) -> dict[tuple[str, str], hf.Artifact]:
    return {(each.kind, each.name): each for each in found}


@pytest.mark.corrupts
def test_everything_that_a_failed_run_has_put_out_is_listed_and_read(tmp_path: Path) -> None:
    url = str(tmp_path / "r.db")

    async def live() -> None:
        async with hf.connect(url, agents=[writer]) as app:
            await app.thread("chat", str).append("hello")
            run = await app.start(writer("rain"), id="w", thread_id="chat")
            await eventually(lambda: is_over(run))
            found = outputs(await run.artifacts())
            assert list(found) == [
                ("record", "journal"),
                ("file", "notes.txt"),
                ("plan", "todo.md"),
                ("message", "chat/2"),
                ("message", "chat/3"),
                ("message", "chat/4"),
                ("partial", "draft"),
            ], "what others said in the thread is not what the run has put out"
            assert (await found["plan", "todo.md"].read()).decode() == "# Plan of w\n\n- [x] 1: read\n- [ ] 2: write\n"
            assert await found["message", "chat/2"].read() == b'"about rain"'
            assert "a summary up to 1" in found["message", "chat/4"].detail
            partial = found["partial", "draft"]
            assert await partial.read() == b"It was a dark and stormy"
            assert (partial.key, partial.size, partial.detail) == ("draft#1", 24, "cut off in attempt 1: error")
            assert (await partial.save(tmp_path / "begun.txt")).read_text() == "It was a dark and stormy"

    asyncio.run(asyncio.wait_for(live(), 60))
    with apsw.Connection(url) as connection:
        connection.execute(
            "UPDATE thread_messages SET body = '\"sun\"' WHERE number = 2; DELETE FROM thread_messages WHERE number = 3"
        )

    async def look() -> None:
        async with hf.connect(url) as app:
            states = {each.name: each.state.value for each in await app.get("w").artifacts() if each.kind == "message"}
            assert states == {"chat/2": "damaged", "chat/3": "missing", "chat/4": "stored"}

    asyncio.run(look())


async def is_over(run: hf.Run[Any]) -> bool:
    return (await run.status()).is_final


def test_the_plan_of_a_fork_is_listed_as_it_was_in_its_turn(tmp_path: Path) -> None:
    async def live() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[rounds]) as app:
            run = await app.start(rounds(), id="r")
            await run.send("go", 1)
            await run.send("go", 2)
            await run.result(30)
            fork = await run.fork(turn=2)
            plan = outputs(await fork.artifacts())["plan", "todo.md"]
            assert (await plan.read()).decode().endswith("- [x] 1: one\n- [ ] 2: two\n")

    asyncio.run(asyncio.wait_for(live(), 60))
