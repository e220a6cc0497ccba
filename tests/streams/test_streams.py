"""What bodies write: numbered, grouped, ended with the outcome, taken back, read from any offset."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.history.lookup import journal_of
from holdfast.history.streams import partials_of
from holdfast.model import CutReason, Kind, NoteKind, StreamEventKind
from holdfast.testing import check_history
from tests.eventually import eventually
from tests.streams.agents import tell, tell_in_thread, teller, text_of

SEEN: list[hf.Partial | None] = []


async def read(run: hf.Run[Any], name: str = "output", offset: int | None = 0) -> list[hf.StreamEvent]:
    return [event async for event in run.stream(name, offset=offset)]


def kinds(events: list[hf.StreamEvent]) -> list[str]:
    """In short: texts as they are, and the rest by name."""
    return [
        event.text if event.kind == "text" else event.kind + (f" {event.reason}" if event.reason else "")
        for event in events
    ]


@hf.agent
async def both() -> list[str]:
    return list(await asyncio.gather(tell(30, 0.004), tell_in_thread(30, 0.004)))


def test_what_a_body_writes_is_read_live_and_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[both]) as app:
            run = await app.start(both())
            live = await read(run)
            text, threaded = await run.result()
            assert text_of(live) == text
            assert [event.number for event in live] == list(range(1, 32))
            assert live[-1].kind is StreamEventKind.end
            assert {(event.key, event.attempt) for event in live} == {("tell#1", 1)}
            for offset in (0, 1, 17, 30, 31, 99):
                assert await read(run, offset=offset) == live[offset:]
            assert await read(run, offset=None) == live
            assert text_of(await read(run, "thread")) == threaded
            assert await read(run, "nobody") == []
            async with hf.connect(str(tmp_path / "r.db")) as client:
                assert await read(client.get(run.token), offset=3) == live[3:]

    asyncio.run(main())


def test_chunks_share_appends_and_the_end_comes_with_the_outcome(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[teller]) as app:
            began = time.monotonic()
            run = await app.start(teller(400, 0.001))
            await run.result()
            took_s = time.monotonic() - began
            records = await run._store.records(run.id)
            notes = [r for r in records if r.name == NoteKind.stream]
            assert len(notes) <= took_s / 0.05 + 3, "one append in 50 ms, and those of the outcome"
            end = next(at for at, record in enumerate(records) if '"end"' in (record.payload or ""))
            assert (records[end + 1].kind, records[end + 1].key) == (Kind.done, "tell#1")

    asyncio.run(main())


@hf.step
async def large() -> int:
    out = hf.stream()
    for _ in range(40):
        out.write("x" * 10_000)
        await asyncio.sleep(0)
    return 40


@hf.agent
async def larger() -> int:
    return await large()


def test_much_is_appended_before_its_time_and_in_pieces(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[larger]) as app:
            run = await app.start(larger())
            events = await read(run)
            assert len(text_of(events)) == 400_000
            sizes = [len(r.payload or "") for r in await run._store.records(run.id) if r.name == NoteKind.stream]
            assert max(sizes) < 64 * 1024 + 20_000

    asyncio.run(main())


@hf.step
async def many() -> int:
    async def one(number: int) -> None:
        await asyncio.sleep(0)
        hf.stream("shared").write(f"{number} ")

    await asyncio.gather(*map(one, range(100)))
    return 100


@hf.step
def many_threads() -> int:
    out = hf.stream("shared")

    def work(first: int) -> None:
        for number in range(first, first + 250):
            out.write(f"{number} ")

    threads = [threading.Thread(target=work, args=(first,)) for first in range(1000, 2000, 250)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1000


@hf.agent
async def crowd() -> int:
    return sum(await asyncio.gather(many(), many(), many_threads()))


def test_concurrent_writes_are_all_there_and_without_gaps(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[crowd]) as app:
            run = await app.start(crowd())
            assert await run.result() == 1200
            events = await read(run, "shared")
            assert [event.number for event in events] == list(range(1, 1204))
            written: dict[str, list[int]] = {}
            for event in events:
                if event.kind == "text":
                    written.setdefault(event.key, []).append(int(event.text))
            assert sorted(written["many#1"]) == sorted(written["many#2"]) == list(range(100))
            assert sorted(written["many_threads#1"]) == list(range(1000, 2000))

    asyncio.run(main())


@hf.step(retries=hf.Retry(3, first=0.001), timeout=0.2, retry_on=(ValueError, TimeoutError))
async def wavering() -> str:
    SEEN.append(hf.this_step().partial)
    attempt = hf.this_step().attempt
    out = hf.stream()
    out.write(f"attempt {attempt}, ")
    out.write("go on")
    if attempt == 1:
        raise ValueError("the provider hung up")
    if attempt == 2:
        await asyncio.sleep(10)
    if attempt == 3:
        raise TypeError("no more")
    return "fourth"


@hf.agent
async def failing() -> str:
    return await wavering()


def test_an_error_a_timeout_and_the_last_attempt_reset_and_leave_what_there_was(tmp_path: Path) -> None:
    SEEN.clear()

    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[failing]) as app:
            run = await app.start(failing())
            with pytest.raises(hf.RunFailed):
                await run.result()
            assert kinds(await read(run)) == [
                "attempt 1, ", "go on", "reset error",
                "attempt 2, ", "go on", "reset timeout",
                "attempt 3, ", "go on", "reset error",
            ]  # fmt: skip
            assert [(p.text, len(p.chunks), p.attempt, p.reason) if p else None for p in SEEN] == [
                None,
                ("attempt 1, go on", 2, 1, CutReason.error),
                ("attempt 2, go on", 2, 2, CutReason.timeout),
            ]
            assert kinds(await read(run, offset=None)) == ["reset error"]
            row, records = await journal_of(run._store, run.id)
            ((key, left),) = partials_of(row, records)
            assert (key, left.text, left.attempt, left.reason) == ("wavering#1", "attempt 3, go on", 3, "error")
            await run.retry()
            assert await run.result() == "fourth"
            assert SEEN[3] is not None
            assert (SEEN[3].text, SEEN[3].reason) == ("attempt 3, go on", CutReason.error)
            assert kinds(await read(run, offset=9)) == ["attempt 4, ", "go on", "end"]
            assert partials_of(*await journal_of(run._store, run.id)) == []

    asyncio.run(main())


@hf.agent
async def raced() -> str:
    async with asyncio.timeout(5):
        return str(await hf.race(tell(1000, 0.01), tell_in_thread(20, 0.01)))


def test_a_call_that_is_cancelled_is_reset_as_such(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[raced, teller]) as app:
            run = await app.start(raced())
            await run.result()
            events = await read(run)
            assert (events[-1].kind, events[-1].reason) == ("reset", CutReason.cancelled)
            row, records = await journal_of(run._store, run.id)
            assert [(key, p.reason) for key, p in partials_of(row, records)] == [("tell#1", CutReason.cancelled)]
            stopped = await app.start(teller(100_000, 0.01))
            async for _ in stopped.stream():
                break
            assert partials_of(*await journal_of(stopped._store, stopped.id)) == []
            await stopped.cancel()
            events = await read(stopped)
            assert (events[-1].kind, events[-1].reason) == ("reset", CutReason.cancelled)
            ((_, left),) = partials_of(*await journal_of(stopped._store, stopped.id))
            assert left.text == "".join(event.text for event in events)

    asyncio.run(main())


@hf.effect(on_doubt="fail", timeout=0.1)
async def doubtful() -> str:
    hf.stream().write("half of it")
    await asyncio.sleep(10)
    return "never"


@hf.effect
async def found_out() -> str:
    hf.stream().write("half")
    raise ConnectionError("the answer was lost")


@found_out.verify
async def look() -> hf.Verdict[str]:
    return hf.landed("it is there")


@hf.agent
async def acting(which: str) -> str:
    return await (doubtful() if which == "doubtful" else found_out())


def test_effects_in_doubt_take_back_what_they_wrote(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[acting]) as app:
            run = await app.start(acting("doubtful"))
            with pytest.raises(hf.RunFailed):
                await run.result()
            assert kinds(await read(run)) == ["half of it", "reset timeout"]
            run = await app.start(acting("found_out"))
            assert await run.result() == "it is there"
            assert kinds(await read(run)) == ["half", "reset error"]

    asyncio.run(main())


LATE: list[BaseException] = []


@hf.step(timeout=0.05)
def late() -> str:
    out = hf.stream()
    out.write("in time")
    time.sleep(0.3)
    try:
        out.write("too late")
    except hf.UsageError as error:
        LATE.append(error)
    return ""


@hf.agent
async def hurried() -> str:
    try:
        return await late()
    except TimeoutError:
        return "too late"


def test_a_thread_that_outlives_its_attempt_cannot_write(tmp_path: Path) -> None:
    LATE.clear()

    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[hurried]) as app:
            run = await app.start(hurried())
            assert await run.result() == "too late"
            assert kinds(await read(run)) == ["in time", "reset timeout"]
            await eventually(lambda: LATE)
            assert "is over" in str(LATE[0])

    asyncio.run(main())


@hf.step
async def misused(what: str) -> str:
    match what:
        case "bytes":
            hf.stream().write(b"x")  # type: ignore[arg-type]
        case "name":
            hf.stream("a/b")
        case "many":
            for number in range(101):
                hf.stream(f"s{number}").write("x")
        case "odd":
            hf.stream().write("")
            hf.stream().write("\ud800\x00\x1b[31m“é”")
            hf.stream("other")  # and nothing is written
    return what


@hf.agent
async def misusing(what: str) -> str:
    if what == "agent":
        hf.stream().write("x")
    return await misused(what)


def test_mistakes_are_said_as_such(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "r.db"), agents=[misusing]) as app:
            for what, why in (
                ("bytes", "takes text; got bytes"),
                ("name", "the name of a stream"),
                ("many", "has 100 streams"),
                ("agent", "in the body of a step or effect"),
            ):
                run = await app.start(misusing(what))
                with pytest.raises(hf.RunFailed, match=why):
                    await run.result()
            run = await app.start(misusing("odd"))
            assert await run.result() == "odd"
            assert kinds(await read(run)) == ["\ud800\x00\x1b[31m“é”", "end"]
            assert await read(run, "other") == []
            with pytest.raises(hf.UsageError, match="offset"):
                await read(run, offset=-1)
            with pytest.raises(hf.RunNotFound):
                await read(app.get("nobody"))
        hf.stream().write("outside of a run it goes nowhere")
        assert hf.stream().partial is None
        assert await tell(2) == "0 1 "

    asyncio.run(main())
    assert check_history(tmp_path / "r.db") == []
