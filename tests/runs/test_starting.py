"""Starting, finding and resuming runs."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import apsw
import pytest

import holdfast as hf
from holdfast.model import Kind
from tests.eventually import eventually
from tests.runs.journal import records_of

BODIES: list[str] = []


@hf.step
async def note(text: str) -> str:
    BODIES.append(text)
    return text


@hf.agent
async def echo(text: str, times: int = 1) -> str:
    return "".join([await note(text) for _ in range(times)])


@hf.agent
async def other(text: str) -> str:
    return text


def test_starting_an_id_twice_is_one_run(tmp_path: Path) -> None:
    async def go() -> None:
        BODIES.clear()
        async with hf.connect(str(tmp_path / "s.db"), agents=[echo]) as app:
            runs = await asyncio.gather(*(app.start(echo("a"), id="one") for _ in range(20)))
            assert {run.token for run in runs} == {runs[0].token}
            assert set(await asyncio.gather(*(run.result() for run in runs))) == {"a"}
        assert BODIES == ["a"]

    asyncio.run(go())


def test_the_same_id_with_another_agent_or_input_is_a_conflict(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    hf.run(echo("a"), id="one", url=url)
    with pytest.raises(hf.ConflictingStart, match="other arguments"):
        hf.run(echo("b"), id="one", url=url)
    with pytest.raises(hf.ConflictingStart, match="'echo', not 'other'"):
        hf.run(other("a"), id="one", url=url)
    assert hf.run(echo("a"), id="one", url=url) == "a"


def test_a_finished_run_answers_again_without_executing(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    BODIES.clear()
    assert hf.run(echo("x", times=2), id="r", url=url) == "xx"
    assert hf.run(echo("x", times=2), id="r", url=url) == "xx"
    assert BODIES == ["x", "x"]


def test_a_token_is_all_another_process_needs(tmp_path: Path) -> None:
    async def go() -> None:
        url = str(tmp_path / "s.db")
        async with hf.connect(url, agents=[echo]) as app:
            run = await app.start(echo("q"), thread_id="t1")
            token = run.token
            await run.result()
        async with hf.connect(url) as client:
            again = await client.resume(token)
            assert (again.id, again.thread_id) == (run.id, "t1")
            assert await again.result() == "q"
            assert await client.get(token).status() is hf.Status.done
            assert (await client.find(run.id[:6])).id == run.id
            assert (await client.find("@last")).id == run.id
            with pytest.raises(hf.RunNotFound, match="thread"):
                await client.resume(f"{run.id}@other")
            with pytest.raises(hf.RunNotFound):
                await client.get("nothing").status()

    asyncio.run(go())


def test_what_a_client_starts_is_executed_by_a_worker(tmp_path: Path) -> None:
    async def go() -> None:
        url = str(tmp_path / "s.db")
        BODIES.clear()
        async with hf.connect(url) as client:
            run = await client.start(echo("q"), id="r")
            assert await run.status() is hf.Status.queued
            assert (await client.start(echo("q"), id="r")).id == run.id
            with pytest.raises(hf.ConflictingStart):
                await client.start(echo("other"), id="r")
            with pytest.raises(TimeoutError):
                await run.result(timeout=0.1)
            assert BODIES == []
            async with hf.connect(url, agents=[echo]):
                assert await run.result(timeout=60) == "q"
        assert BODIES == ["q"]

    asyncio.run(go())


def test_prefixes_must_be_unique(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[echo]) as app:
            for name in ("abc-1", "abc-2"):
                await (await app.start(echo("q"), id=name)).result()
            with pytest.raises(hf.AmbiguousId, match="abc-1"):
                await app.find("abc")
            assert (await app.find("abc-2")).id == "abc-2"

    asyncio.run(go())


@pytest.mark.parametrize("bad", ["", " x", "a@b", "a\nb", "x" * 201])
def test_bad_ids_are_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(hf.UsageError, match="id="):
        hf.run(echo("a"), id=bad, url=str(tmp_path / "s.db"))


def test_input_that_cannot_be_stored_or_does_not_fit_is_refused_before_anything_exists(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with pytest.raises(hf.Unserialisable, match="text"):
        hf.run(echo(3), id="bad", url=url)  # type: ignore[arg-type]
    with pytest.raises(hf.UsageError, match="nope"):
        hf.run(echo("a", nope=1), id="bad", url=url)  # type: ignore[call-arg]

    async def go() -> None:
        async with hf.connect(url) as app:
            assert await app.runs() == []

    asyncio.run(go())


@hf.step
async def fails_unless(path: str) -> str:
    if not Path(path).exists():
        raise FileNotFoundError(path)
    return "ok"


@hf.agent
async def needs(path: str) -> str:
    return await note("before") + await fails_unless(path)


def test_a_run_that_fails_before_anybody_looks_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, path, status = str(tmp_path / "s.db"), tmp_path / "there", hf.Run.status

    async def once_it_is_over(run: hf.Run[str]) -> hf.Status | None:
        found = await status(run)
        return found if found.is_final else None

    monkeypatch.setattr(hf.Run, "status", lambda run: eventually(lambda: once_it_is_over(run)))
    with pytest.raises(hf.RunFailed, match="there"):
        hf.run(needs(str(path)), id="r", url=url)
    assert Kind.reopened not in [r.kind for r in records_of(url, "r")]


def test_a_failed_run_is_retried_by_hf_run_and_keeps_what_was_done(tmp_path: Path) -> None:
    url, path = str(tmp_path / "s.db"), tmp_path / "there"
    BODIES.clear()
    with pytest.raises(hf.RunFailed, match="there") as failure:
        hf.run(needs(str(path)), id="r", url=url)
    assert isinstance(failure.value.__cause__, FileNotFoundError)
    path.touch()
    assert hf.run(needs(str(path)), id="r", url=url) == "beforeok"
    assert BODIES == ["before"]
    kinds = [r.kind for r in records_of(url, "r")]
    assert kinds.count(Kind.reopened) == 1
    assert kinds.count(Kind.finished) == 2


def test_resume_leaves_final_runs_alone_and_retry_needs_a_failed_one(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[echo]) as app:
            run = await app.start(echo("a"))
            await run.result()
            await run.resume()
            assert await run.status() is hf.Status.done
            with pytest.raises(hf.UsageError, match="only failed"):
                await run.retry()

    asyncio.run(go())


def test_runs_are_listed_newest_first_with_filters_and_pages(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[echo, other]) as app:
            for n in range(5):
                await (await app.start(echo("a"), id=f"e{n}", thread_id="t")).result()
            await (await app.start(other("a"), id="o")).result()
            assert [r.id for r in await app.runs(agent="echo", limit=2)] == ["e4", "e3"]
            assert [r.id for r in await app.runs(agent="echo", limit=2, after="e3")] == ["e2", "e1"]
            assert {r.id for r in await app.runs(thread_id="t")} == {f"e{n}" for n in range(5)}
            assert await app.runs(status="failed") == []
            with pytest.raises(hf.UsageError) as caught:
                await app.runs(status="nonsense")  # type: ignore[arg-type]
            assert str(caught.value) == (
                "status= takes one of queued, running, sleeping, waiting, paused, in_doubt, blocked, quarantined, "
                "done, failed, cancelled; got 'nonsense'."
            )

    asyncio.run(go())


def test_more_runs_than_slots_all_finish(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[echo], concurrency=3) as app:
            runs = [await app.start(echo(str(n))) for n in range(20)]
            assert await asyncio.gather(*(run.result() for run in runs)) == [str(n) for n in range(20)]

    asyncio.run(go())


def test_closing_the_app_hands_runs_over_and_another_app_goes_on(tmp_path: Path) -> None:
    gate: list[asyncio.Event] = []

    @hf.step
    async def waits(n: int) -> int:
        if gate:
            gate[0].set()
            await asyncio.sleep(60)
        return n

    @hf.agent
    async def long(n: int) -> str:
        first = await note("first")
        return f"{first}{await waits(n)}"

    async def go() -> None:
        BODIES.clear()
        url = str(tmp_path / "s.db")
        gate.append(asyncio.Event())
        async with hf.connect(url, agents=[long]) as app:
            run = await app.start(long(1), id="r")
            await gate[0].wait()
        gate.clear()
        async with hf.connect(url, agents=[long]) as app:
            assert await app.get(run.id).result(timeout=60) == "first1"
        assert BODIES == ["first"]

    asyncio.run(go())


def test_closing_the_app_lets_an_effect_under_way_end(tmp_path: Path) -> None:
    begun: list[asyncio.Event] = []

    @hf.effect
    async def send(n: int) -> int:
        BODIES.append("send")
        begun[0].set()
        await asyncio.sleep(0.1)
        return n

    @hf.agent
    async def sends() -> list[int]:
        return list(await asyncio.gather(send(1), send(2)))

    async def go() -> None:
        BODIES.clear()
        url = str(tmp_path / "s.db")
        begun.append(asyncio.Event())
        async with hf.connect(url, agents=[sends]) as app:
            run = await app.start(sends(), id="r")
            await begun[0].wait()
        assert [r.kind for r in await asyncio.to_thread(records_of, url, "r")].count(Kind.done) == 2
        async with hf.connect(url, agents=[sends]) as app:
            assert await app.get(run.id).result(timeout=60) == [1, 2]
        assert BODIES == ["send", "send"]

    asyncio.run(go())


def test_an_app_that_is_not_open_says_so(tmp_path: Path) -> None:
    app = hf.connect(str(tmp_path / "s.db"))
    with pytest.raises(hf.UsageError, match="async with"):
        app.get("x")
    with pytest.raises(hf.UsageError, match="Unknown store url"):
        hf.connect("mysql://x")
    with pytest.raises(hf.UsageError, match=r"@hf\.agent"):
        hf.connect(agents=[note])  # type: ignore[list-item]


@pytest.mark.corrupts
def test_a_forged_result_is_found_before_anybody_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    assert hf.run(echo("a"), id="r", url=str(path)) == "a"
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("update records set payload = '\"b\"' where kind = 'finished'")
    with pytest.raises(hf.CorruptJournal, match="does not fit its hash"):
        hf.run(echo("a"), id="r", url=str(path))


def test_two_agents_with_one_name_are_refused(tmp_path: Path) -> None:
    twin = hf.agent(name="echo")(other.fn)

    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[echo, twin]):
            pass

    with pytest.raises(hf.UsageError, match="Two agents are called 'echo'"):
        asyncio.run(go())
