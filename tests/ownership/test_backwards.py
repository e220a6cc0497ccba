"""A store that forgets under a live worker, as after a fail-over that lost commits or with a backup put in place.

The run is not executed on from what is left: it would repeat effects that the store knows nothing of.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import holdfast as hf
from holdfast.journal.chain import seal_row
from holdfast.model import Status
from tests.eventually import eventually

pytestmark = pytest.mark.corrupts

SETTINGS = hf.Settings(sweep_s=0.1)
done: list[int] = []
allowed = 0


@hf.effect
async def post(n: int) -> int:
    while n >= allowed:  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    done.append(n)
    return n


@hf.agent
async def posting(count: int) -> int:
    for n in range(count):
        await post(n)
    return count


@hf.agent
async def waiting() -> str:
    await post(0)
    return await hf.receive(("word", str))


@hf.agent
async def reading() -> None:
    while True:
        await post(await hf.receive(("number", int)))


async def is_parked(app: hf.Holdfast, run: hf.Run[Any], count: int) -> bool:
    return len(done) == count and executed(app) is None and await run.status() == "waiting"


class Past:
    """What a store had of a run, to be put in place again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_postgres = url.startswith("postgres")
        self._row: tuple[Any, ...] = ()

    async def keep(self) -> None:
        self._row = (await self._execute(f"select * from {self._table('runs')} where id = 'r'"))[0]

    async def put_back(self) -> None:
        columns = await self._columns()
        head = self._row[columns.index("head_seq")]
        marks = [f"${n}" if self._is_postgres else "?" for n in range(1, len(columns) + 1)]
        values = [f"{name} = {mark}" for name, mark in zip(columns, marks, strict=True)]
        mail = self._row[columns.index("mail")]
        await self._execute(
            f"delete from {self._table('records')} where run_id = 'r' and seq > {head}",
            f"delete from {self._table('mailbox')} where run_id = 'r' and number > {mail}",
            (f"update {self._table('runs')} set {', '.join(values)} where id = 'r'", self._row),
        )

    async def forget(self) -> None:
        await self._execute(
            *(f"delete from {self._table(t)} where {c} = 'r'" for t, c in (("records", "run_id"), ("runs", "id")))
        )

    def _table(self, name: str) -> str:
        return f"holdfast.{name}" if self._is_postgres else name

    async def _columns(self) -> list[str]:
        if self._is_postgres:
            found = await self._execute(
                "select column_name from information_schema.columns where table_schema = 'holdfast' and "
                "table_name = 'runs' order by ordinal_position"
            )
            return [name for (name,) in found]
        return [row[1] for row in await self._execute("pragma table_info(runs)")]

    async def _execute(self, *statements: str | tuple[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """All of them in one transaction; what the last one finds."""
        found: list[Any] = []
        pairs = [(each, ()) if isinstance(each, str) else each for each in statements]
        if self._is_postgres:
            connection = await asyncpg.connect(self._url)
            try:
                async with connection.transaction():
                    for statement, values in pairs:
                        found = [tuple(row) for row in await connection.fetch(statement, *values)]
            finally:
                await connection.close()
            return found
        file = apsw.Connection(self._url)
        file.set_busy_timeout(30_000)
        try:
            with file:
                for statement, values in pairs:
                    found = list(file.execute(statement, values))
        finally:
            file.close()
        return found


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    done.clear()
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else str(tmp_path / "store.db")


async def until(count: int) -> None:
    """Let so many effects happen, and the next one begin."""
    global allowed
    allowed = count
    await eventually(lambda: len(done) == count)


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if getattr(record, "event", "") == name]  # type: ignore[attr-defined]


def test_a_run_whose_history_went_backwards_is_blocked_and_a_person_resumes_it(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with hf.connect(url, agents=[posting], settings=SETTINGS) as app:
            run = await app.start(posting(9), id="r")
            past = Past(url)
            await until(3)
            await eventually(lambda: run_has_intent(app, 3))
            await past.keep()
            await until(6)
            await eventually(lambda: run_has_intent(app, 6))
            await past.put_back()
            global allowed
            allowed = 9
            with pytest.raises(hf.RunBlocked, match="history went backwards"):
                await run.result(60)
            assert done == [0, 1, 2, 3, 4, 5, 6]  # the one under way ended; none was begun after it
            info = await run.info()
            assert info.status is Status.blocked
            reason = dict(info.reason or {})
            assert reason["effects"] == ["post#5", "post#6", "post#7"]
            assert reason["here"]["seq"] > reason["there"]["seq"]
            assert all(key in reason["detail"] for key in reason["effects"])
            told = events(caplog, "run.backwards")
            assert [(each["run"], each["effects"]) for each in told] == [("r", reason["effects"])]
            await run.resume(by="ann", note="they were taken back by hand")
            in_doubt: list[hf.InDoubt] = await eventually(lambda: run.in_doubt())
            assert [each.key for each in in_doubt] == ["post#4"]  # what the store knows to have been begun
            await in_doubt[0].resolve(hf.landed(3))
            assert await run.result(60) == 9
            assert done[7:] == [4, 5, 6, 7, 8]

    asyncio.run(story())


def executed(app: Any) -> Any:
    """The execution of the run in this process, if there is one."""
    return app._here.local("r")


def run_has_intent(app: hf.Holdfast, n: int) -> bool:
    """Is the intent of the n-th effect on disk, and acknowledged?"""
    execution = executed(app)
    return execution is not None and any(key == f"post#{n + 1}" for _, key in execution.run.journal.acted)


def test_a_history_that_ends_before_the_claim_is_noticed_too(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The row looks as if nobody had the run: whoever looks for runs would take it."""

    async def story() -> None:
        global allowed
        async with hf.connect(url, settings=SETTINGS) as client:
            run = await client.start(posting(4), id="r")
            past = Past(url)
            await past.keep()
            async with hf.connect(url, agents=[posting], settings=SETTINGS) as app:
                await until(2)
                await eventually(lambda: run_has_intent(app, 2))
                await past.put_back()
                await eventually(lambda: events(caplog, "run.backwards"))
                info = await run.info()
                assert info.status is Status.blocked
                assert dict(info.reason or {})["effects"] == ["post#1", "post#2", "post#3"]
                allowed = 4

    asyncio.run(story())
    assert done[:2] == [0, 1]
    assert len(done) <= 3


def test_a_run_that_is_parked_too_late_is_blocked(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It has nothing more to do but to wait; then there is nothing for it to come back to."""

    async def story() -> None:
        async with hf.connect(url, agents=[waiting], settings=SETTINGS) as app:
            await until(0)
            run = await app.start(waiting(), id="r")
            past = Past(url)
            await eventually(lambda: run_has_intent(app, 0))
            await past.keep()
            before = executed(app).run.journal.durable_seq
            await until(1)
            await eventually(lambda: executed(app) is None or executed(app).run.journal.durable_seq > before)
            await past.put_back()
            with pytest.raises(hf.RunBlocked, match="history went backwards"):
                await run.result(60)
            assert len(events(caplog, "run.backwards")) == 1

    asyncio.run(story())


def test_a_run_that_was_parked_then_and_now_is_not_taken_up_again(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody writes to it, so nothing is refused: its worker looks when it takes the run up."""

    async def story() -> None:
        global allowed
        allowed = 10
        async with hf.connect(url, agents=[reading], settings=SETTINGS) as app:
            run = await app.start(reading(), id="r")
            past = Past(url)
            for n in range(2):
                await run.send("number", n)
                await eventually(lambda count=n + 1: is_parked(app, run, count))  # type: ignore[misc]
                if n == 0:
                    await past.keep()
            await past.put_back()
            await run.send("number", 2)
            with pytest.raises(hf.RunBlocked, match="history went backwards"):
                await run.result(60)
            (told,) = events(caplog, "run.backwards")
            assert told["effects"] == ["post#2"]
            assert done == [0, 1]
            await run.resume()
            await eventually(lambda: len(done) > 2)
            await run.cancel(timeout=60)

    asyncio.run(story())


def test_a_run_that_is_gone_is_told_of(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        global allowed
        async with hf.connect(url, agents=[posting], settings=SETTINGS) as app:
            await app.start(posting(4), id="r")
            await until(2)
            await eventually(lambda: run_has_intent(app, 2))
            await Past(url).forget()
            allowed = 4
            told = await eventually(lambda: events(caplog, "run.gone"))
            assert [(each["run"], each["effects"]) for each in told] == [("r", ["post#1", "post#2", "post#3"])]
            await eventually(lambda: executed(app) is None)

    asyncio.run(story())
    assert len(done) <= 3


def test_a_run_that_somebody_else_has_is_left_alone(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        global allowed
        async with hf.connect(url, agents=[posting], settings=SETTINGS) as app:
            run = await app.start(posting(4), id="r")
            await until(2)
            assert await run.cancel(kill=True) is Status.cancelled
            allowed = 4
            await eventually(lambda: executed(app) is None)
            assert await run.status() is Status.cancelled

    asyncio.run(story())
    assert not events(caplog, "run.backwards")
    assert not events(caplog, "run.gone")


def test_a_run_that_has_ended_here_and_is_under_way_again_by_the_store_is_blocked(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The store says that this worker executes it; it lives, so nobody else would ever take the run."""

    async def story() -> None:
        async with hf.connect(url, agents=[posting], settings=SETTINGS) as app:
            run = await app.start(posting(3), id="r")
            past = Past(url)
            await until(1)
            await eventually(lambda: run_has_intent(app, 1))
            await past.keep()
            await until(3)
            assert await run.result(60) == 3
            await eventually(lambda: executed(app) is None)
            await past.put_back()
            await eventually(lambda: events(caplog, "run.backwards"))
            info = await run.info()
            assert info.status is Status.blocked
            assert dict(info.reason or {})["effects"] == ["post#3"]

    asyncio.run(story())
    assert done == [0, 1, 2]


def test_a_run_that_was_claimed_and_never_executed_goes_on(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """As after a claim whose answer was lost."""

    async def story() -> None:
        global allowed
        allowed = 2
        async with hf.connect(url, agents=[posting], settings=SETTINGS) as app, hf.connect(url) as client:
            await (await app.start(posting(0))).result(60)
            executor: Any = app._here
            run = await client.start(posting(2), id="r", delay=3600)  # nobody takes it up by itself
            row = await executor.store.run(run.id)
            claimed = seal_row(replace(row, status=Status.running, reason=None, wake_at=None, epoch=row.epoch + 1))
            assert await executor.store.claim(
                claimed, owner=executor.lease.worker_id, expected_epoch=row.epoch, expected_owner=None
            )
            assert await run.result(60) == 2
            assert [each["run"] for each in events(caplog, "run.given_back")] == ["r"]

    asyncio.run(story())
    assert done == [0, 1]
