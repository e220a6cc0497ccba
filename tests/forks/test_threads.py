"""Forks of runs that remember: a thread of their own, with what the copied part knew."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.control.remembering import _PAGE
from holdfast.errors import UsageError
from holdfast.journal.verification import verify
from holdfast.model import RunId
from tests.cli.commands import Commands
from tests.forks.test_forks import commands, file, url, waiting, world

__all__ = ["commands", "file", "url", "world"]

go = hf.Signal("go", str)


@hf.agent(signals=[go])
async def chatter() -> list[list[str]]:
    """Reads before and after each thing that it is told, in turns."""
    memory, heard = hf.thread(str), []
    heard.append(await memory.recent(3))
    async for state in hf.turns([0]):
        heard.append(await memory.since(0))
        said = await hf.receive(go)
        await memory.append(said)
        state[0] += 1
        if state[0] == 2:
            await memory.summarise("both", upto=memory.last)
            return [*heard, await memory.recent()]
    return []


@hf.agent(signals=[go])
async def talker() -> list[str]:
    memory = hf.thread(str)
    before = await memory.since(0)
    await memory.append("mine")
    await hf.receive(go)
    return [*before[:1], str(len(before)), *(await memory.recent(3))]


def done(url: str, work: Any) -> None:
    async def live() -> None:
        async with hf.connect(url, agents=[chatter, talker]) as app:
            await work(app)

    asyncio.run(asyncio.wait_for(live(), 120))


def test_a_fork_remembers_what_the_copied_part_knew_and_speaks_for_itself(url: str) -> None:
    async def work(app: hf.Holdfast) -> None:
        memory = app.thread("chat", str)
        await memory.append(*(f"m{number}" for number in range(_PAGE + 5)))  # more than a page
        run = await app.start(talker(), id="original", thread_id="chat")
        await waiting(run)
        await memory.append("later")
        fork = await run.fork(id="fork")
        assert fork.thread_id != "chat"
        await waiting(fork)
        known = await app.thread(fork.thread_id, str).since(0)
        assert (known[0], known[-1], len(known)) == ("m0", "mine", _PAGE + 6), "what was said later it did not know"
        shared = await run.fork(id="shared", thread_id="chat")
        assert shared.thread_id == "chat"
        again = await fork.fork(id="fork of a fork")
        for each in (run, fork, shared, again):
            await each.send(go, "x")
        assert (await run.result(30))[2:] == [f"m{_PAGE + 4}", "mine", "later"]
        assert await shared.result(30) == await run.result(30)
        for each in (fork, again):
            assert (await each.result(30))[2:] == [f"m{_PAGE + 3}", f"m{_PAGE + 4}", "mine"]
            assert (await verify(app._store, RunId(each.id))).is_ok
        await memory.append("alone")
        assert (await app.thread(fork.thread_id, str).recent(1)) == ["mine"]
        await app.thread("other", str).append("x")
        with pytest.raises(UsageError, match="Something else was said in thread other"):
            await run.fork(thread_id="other")

    done(url, work)


def test_a_fork_in_a_later_turn_knows_what_earlier_turns_said(file: str) -> None:
    async def work(app: hf.Holdfast) -> None:
        run = await app.start(chatter(), id="original")
        await run.send(go, "one")
        await run.send(go, "two")
        assert await run.result(30) == [[], [], ["one"], ["both"]]
        fork = await run.fork(turn=2)
        await fork.send(go, "other")
        assert await fork.result(30) == [[], ["one"], ["both"]]
        everything = [message.body async for message in _all(app, fork)]
        assert everything == ['"one"', '"other"', '"both"']
        assert (await verify(app._store, RunId(fork.id))).is_ok

    done(file, work)


async def _all(app: hf.Holdfast, run: hf.Run[Any]) -> Any:
    for message in await app._store.messages(run.thread_id):
        yield message


@pytest.mark.parametrize("point", ["fork.before_messages", "fork.before_commit"])
def test_a_fork_that_is_killed_while_it_remembers_is_made_by_the_same_command(
    point: str, file: str, commands: Commands, tmp_path: Path
) -> None:
    async def prepare(app: hf.Holdfast) -> None:
        await waiting(await app.start(talker(), id="original"))

    done(file, prepare)
    fork = ("fork", "original", "--id", "fork", "--db", file)
    assert commands(*fork, HOLDFAST_FAULT=f"{point}:kill").code == -signal.SIGKILL
    assert commands(*fork).code == 0

    async def finish(app: hf.Holdfast) -> None:
        await app.get("fork").send(go, "x")
        assert await app.get("fork").result(30) == ["0", "mine"]

    done(file, finish)
