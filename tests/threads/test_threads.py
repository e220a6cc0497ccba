"""Threads: said once, in one order, and read again as it was read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest
from pydantic import SecretStr

import holdfast as hf
from holdfast.journal.verification import verify
from holdfast.model import Kind
from holdfast.testing import check_history
from tests.eventually import eventually
from tests.threads.agents import Message, chat
from tests.workers import until


def url_of(tmp_path: Path) -> str:
    return str(tmp_path / "r.db")


def test_runs_of_a_thread_know_what_was_said_in_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(url_of(tmp_path), agents=[chat]) as app:
            answers = [await (await app.start(chat(q), thread_id="chat-7")).result() for q in ("one", "two")]
            assert answers == ["one? I know 1.", "two? I know 3."]
            alone = await app.start(chat("three"))
            assert await alone.result() == "three? I know 1."
            memory = app.thread("chat-7", Message)
            found = await memory.recent()
            assert [message.text for message in found] == ["one", answers[0], "two", answers[1]]
            assert memory.last == 4
            assert await app.thread(alone.thread_id, Message).recent(1) == [Message("assistant", "three? I know 1.")]
            assert await app.thread("nobody", Message).recent() == []
            assert await app.thread("nobody", Message).since(3) == []

    asyncio.run(main())


def test_recent_since_and_summaries(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(url_of(tmp_path)) as app:
            memory = app.thread("t", str)
            assert await memory.append(*(f"m{number}" for number in range(1, 31))) == 30
            assert await memory.recent() == [f"m{number}" for number in range(11, 31)]
            assert await memory.recent(3) == ["m28", "m29", "m30"]
            assert await memory.recent(0) == []
            assert await memory.recent(tokens=5, count=lambda _: 2) == ["m29", "m30"]
            assert await memory.recent(1, tokens=5, count=lambda _: 2) == ["m30"]
            assert await memory.recent(tokens=1, count=lambda _: 2) == []
            assert await memory.recent(tokens=6) == ["m28", "m29", "m30"]  # by its length
            assert await memory.since(28) == ["m29", "m30"]
            assert await memory.since(30) == []
            assert await memory.summarise("up to 25", upto=25) == 31
            assert await memory.append("m32") == 32
            assert await memory.recent() == ["up to 25", "m26", "m27", "m28", "m29", "m30", "m32"]
            assert await memory.recent(3) == ["up to 25", "m30", "m32"]
            assert await memory.recent(tokens=6, count=lambda _: 2) == ["up to 25", "m30", "m32"]
            assert await memory.since(0) == ["up to 25", "m26", "m27", "m28", "m29", "m30", "m32"]
            assert await memory.since(24) == ["up to 25", "m26", "m27", "m28", "m29", "m30", "m32"]
            assert await memory.since(28) == ["m29", "m30", "m32"]
            assert await memory.summarise("all of it") == 33  # all that it has read
            assert await memory.recent() == ["all of it"]
            assert await memory.since(0) == ["all of it"]

    asyncio.run(main())


def test_a_dedup_id_is_said_once_and_something_else_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(url_of(tmp_path)) as app:
            memory = app.thread("t", str)
            assert await memory.append("a", "b", dedup="click") == 2
            assert await memory.append("a", "b", dedup="click") == 2
            with pytest.raises(hf.ConflictingSend, match="something else under the dedup id 'click'"):
                await memory.append("c", dedup="click")
            assert await memory.recent() == ["a", "b"]
            for wrong, why in (
                (lambda: memory.append(), "one message or more"),
                (lambda: memory.append(object()), "cannot be stored"),  # type: ignore[arg-type]
                (lambda: memory.recent(-1), "a number from 0 on"),
                (lambda: memory.recent(tokens=True), "a number from 0 on"),
                (lambda: memory.since("x"), "the number of a message"),  # type: ignore[arg-type]
                (lambda: memory.summarise("x", upto=9), "is number 2"),
                (lambda: app.thread("new", str).summarise("x"), "takes upto="),
            ):
                with pytest.raises((hf.UsageError, hf.Unserialisable), match=why):
                    await wrong()
            with pytest.raises(hf.UsageError, match="printable"):
                app.thread("\x1b[", str)

    asyncio.run(main())
    with pytest.raises(hf.NotInRun):
        hf.thread(str)


SEEN: list[Any] = []


@hf.agent(signals=[hf.Signal("go", int)])
async def reader(thread: str) -> list[str]:
    memory = hf.thread(str)
    found = await memory.recent(3)
    SEEN.append(list(found))
    await hf.receive(("go", int))
    found += await memory.recent(2)
    SEEN.append(list(found))
    await hf.receive(("go", int))
    return found


def test_a_replay_reads_what_was_read_then_and_costs_little(tmp_path: Path) -> None:
    SEEN.clear()

    async def main() -> None:
        async with hf.connect(url_of(tmp_path), agents=[reader]) as app:
            memory = app.thread("t", str)
            await memory.append("a", "b", "c", "d")
            run = await app.start(reader("t"), thread_id="t")
            await until(run, "waiting")
            await memory.append(*"efgh")
            await memory.summarise("short", upto=5)
            await run.send("go", 1)
            await eventually(lambda: len(SEEN) >= 3)  # it was parked: the first read was answered again
            await until(run, "waiting")
            await memory.append("late")
            await run.send("go", 1)
            assert await run.result() == ["b", "c", "d", "short", "h"]
            assert SEEN[0] == SEEN[1] == ["b", "c", "d"]
            assert (await run.verify_journal()).is_ok
            sizes = [
                sum(len(str(part)) for part in record) for record in await run._store.records(run.id)
                if record.name.startswith("hf.thread.")
            ]  # fmt: skip
            assert len(sizes) == 2
            assert max(sizes) < 200 + 16 * 3  # numbers as text, and the hash as Python shows it, are longer than stored
            stored = [record for record in await run._store.records(run.id) if record.name == "hf.thread.recent"]
            assert max(len(r.args or "") + len(r.payload or "") + len(r.key + r.name + r.kind) for r in stored) < 150

    asyncio.run(main())
    assert check_history(url_of(tmp_path)) == []


@pytest.mark.corrupts
@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM thread_messages WHERE number = 3",
        "UPDATE thread_messages SET body = '\"x\"'",
        "UPDATE thread_messages SET number = -number; UPDATE thread_messages SET number = number + 5",
    ],
    ids=["gone", "changed", "in another order"],
)
def test_messages_that_are_gone_block_the_run_that_read_them(tmp_path: Path, damage: str) -> None:
    SEEN.clear()
    url = url_of(tmp_path)

    async def begin() -> str:
        async with hf.connect(url, agents=[reader]) as app:
            await app.thread("t", str).append("a", "b", "c", "d")
            run = await app.start(reader("t"), thread_id="t")
            await until(run, "waiting")
            assert (await run.verify_journal()).is_ok
            return run.id

    async def go_on(run_id: str) -> None:
        async with hf.connect(url, agents=[reader]) as app:
            run = app.get(run_id)
            await run.send("go", 1)
            await until(run, "blocked")
            reason = (await run.info()).reason
            assert reason is not None
            assert (reason["why"], "thread t" in reason["detail"]) == ("thread", True), reason
            checked = await verify(run._store, run_id)
            assert not checked.is_ok
            assert "thread t" in (checked.problem or "")
            assert "missing or damaged" in (checked.problem or "")
            if "number +" not in damage:  # in which order they came, only who has read them knows
                with pytest.raises(hf.CorruptJournal, match="Thread t"):
                    await app.thread("t", str).recent()

    run_id = asyncio.run(begin())
    connection = apsw.Connection(url)
    connection.execute(damage)
    connection.close()
    asyncio.run(go_on(run_id))
    assert SEEN == [["b", "c", "d"]]


@dataclass
class Old:
    text: str


@hf.agent
async def mistaken(what: str) -> Any:
    memory = hf.thread(str)
    match what:
        case "secret":
            await hf.thread(SecretStr).append(SecretStr("2retnuh"[::-1]))
        case "far":
            await memory.summarise("x", upto=99)
        case "body":
            await in_body(what)
        case "type":
            await memory.append("plain")
            return await hf.thread(Old).recent()
        case "caught":
            await memory.append("a", "b")
            try:
                await memory.summarise("x", upto=99)
            except hf.UsageError:
                return await memory.summarise("y", upto=1)
    return what


MEMORY: list[hf.Thread[str]] = []


@hf.step
async def in_body(what: str) -> None:
    hf.thread(str)


def test_mistakes_in_a_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(url_of(tmp_path), agents=[mistaken]) as app:
            for what, why in (
                ("far", "is number 0"),
                ("body", "inside the body of in_body"),
            ):
                run = await app.start(mistaken(what))
                with pytest.raises(hf.RunFailed, match=why):
                    await run.result()
            run = await app.start(mistaken("caught"))
            assert await run.result() == 3
            run = await app.start(mistaken("type"))
            with pytest.raises(hf.RunBlocked, match="message 1"):
                await run.result()
            run = await app.start(mistaken("secret"))
            with pytest.raises(hf.RunFailed):
                await run.result()
            connection = apsw.Connection(url_of(tmp_path))
            assert "hunter2" not in str(list(connection.execute("SELECT * FROM records")))
            connection.close()

    asyncio.run(main())


@hf.agent
async def elsewhere(other: str) -> int:
    """Writes to a thread that is not its own, by the app's handle, as a durable call."""
    return await MEMORY[0].append(f"from {hf.this_run().thread_id}")


def test_the_thread_of_an_app_is_durable_inside_a_run(tmp_path: Path) -> None:
    async def main() -> None:
        MEMORY.clear()
        async with hf.connect(url_of(tmp_path), agents=[elsewhere]) as app:
            MEMORY.append(app.thread("theirs", str))
            run = await app.start(elsewhere("theirs"), thread_id="mine")
            assert await run.result() == 1
            records = await run._store.records(run.id)
            assert [r.kind for r in records if r.name == "hf.thread.append"] == [Kind.intent, Kind.done]
            assert await MEMORY[0].recent() == ["from mine"]
            assert (await run.verify_journal()).is_ok

    asyncio.run(main())
