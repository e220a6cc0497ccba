"""Stores that an earlier version wrote, with runs in every state, are read, resumed and verified by this one."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import RunMoved, RunPruned
from holdfast.model import RunId, reasons
from holdfast.testing import check_history
from holdfast.testing.child import agents_of
from holdfast.testing.postgres import binaries
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.golden import agents as golden
from tests.golden.write import POSTGRES, SQLITE

STATUSES = {
    "blocked": "blocked",
    "cancelled": "cancelled",
    "counter": "waiting",
    "cut-at-start": "running",
    "cut-in-effect": "running",
    "cut-in-step": "running",
    "delayed": "queued",
    "done": "done",
    "doubtful": "in_doubt",
    "failed": "failed",
    "half": "waiting",
    "heard": "waiting",
    "moved": "blocked",
    "moving": "blocked",
    "parent": "waiting",
    "patient": "waiting",
    "paused": "paused",
    "pruned": "done",
    "question": "waiting",
    "queued": "queued",
    "racer": "waiting",
    "signal": "waiting",
    "sleep": "sleeping",
    "undone": "done",
}
#: What each run comes to, once it was helped.
ENDS = {
    "blocked": "one",
    "counter": 16,
    "cut-at-start": False,
    "cut-in-effect": [5],
    "cut-in-step": (golden.Order("bob", [Decimal(6)]), {1, 2}, b"\x00\xff"),
    "delayed": [5],
    "done": (golden.Order("ann", [Decimal("3.00")]), {1, 2}, b"\x00\xff"),
    "doubtful": [5],
    "failed": 1,
    "half": [1, 5],
    "heard": [5],
    "parent": 6,
    "patient": "soon",
    "paused": [5],
    "question": True,
    "queued": [5],
    "racer": True,
    "signal": [5, 6],
    "sleep": "ann",
    "undone": 1,
}
#: What was left to do outside; what had happened before is not done again.
LEFT = [
    "answered False",
    "answered True",
    "ann is awake",
    *["collect 1"] * 3,
    "collected [1, 5]",
    "collected [5, 6]",
    *["collected [5]"] * 7,
    "order of bob: 1 ['00', '11', '22'] 160000",
]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A copy of the golden store."""
    if request.param == "sqlite":
        file = tmp_path / "golden.db"
        file.write_bytes(gzip.decompress(SQLITE.read_bytes()))
        file.chmod(0o600)
        yield f"sqlite:///{file}"
    else:
        url: str = request.getfixturevalue("postgres_url")
        sql = b"SET client_min_messages = warning;\nDROP SCHEMA holdfast CASCADE;\n" + gzip.decompress(
            POSTGRES.read_bytes()
        )
        psql = [str(binaries() / "psql"), "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", url]
        subprocess.run(psql, input=sql, check=True, stdout=subprocess.DEVNULL)
        yield url


def test_every_run_is_read_and_verified(url: str) -> None:
    asyncio.run(read(url))
    assert check_history(url) == []


async def read(url: str) -> None:
    async with hf.connect(url) as app:
        infos = {info.id: info for info in await app.runs(limit=1000)}
        children = {run_id for run_id in infos if run_id.startswith("parent.")}
        assert {run_id: info.status for run_id, info in infos.items() if run_id not in children} == STATUSES
        assert [infos[each].status for each in children] == ["waiting"]
        assert infos["done"].tags == {"shop": "north"}
        assert infos["signal"].thread_id == "golden"
        assert {each.run_id: each.key for each in await app.in_doubt()} == {"blocked": "post#1", "doubtful": "post#1"}
        assert [each.prompt for each in await app.questions()] == ["Is 7 right?"]
        assert [each.name for each in await app.schedules()] == ["nightly"]
        assert [each.name for each in await app.triggers()] == ["on-order"]
        for run_id in infos.keys() - {"pruned", "moved"}:
            verified = await app.get(run_id).verify_journal()
            assert verified.is_ok, (run_id, verified)
            assert await app.get(run_id).history()
        with pytest.raises(RunPruned):
            await app.get("pruned").history()
        with pytest.raises(RunMoved):
            await app.get("moved").history()


def test_the_command_finds_nothing_wrong(url: str, tmp_path: Path, forkserver: ForkServer) -> None:
    commands = Commands(tmp_path, forkserver)
    verified = commands("verify", "--all", "--db", url)
    assert verified.code == 0, verified


def test_every_run_goes_on_to_its_end(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = tmp_path / "world.txt"
    monkeypatch.setenv("WORLD", str(world))
    monkeypatch.setenv("MENDED", "1")
    asyncio.run(go_on(url))
    assert sorted(world.read_text().splitlines()) == sorted(LEFT)
    assert check_history(url) == []


async def go_on(url: str) -> None:
    async with hf.connect(url, agents=agents_of(golden).values()) as app:
        await help_along(app)
        for run_id, end in ENDS.items():
            assert (run_id, await app.get(run_id).result(timeout=60)) == (run_id, end)
        assert await app.get("cancelled").status() == "cancelled"
        assert await app.get("moving").status() == "blocked"
        for info in await app.runs(limit=1000):
            if info.id not in ("pruned", "moved"):
                assert (await app.get(info.id).verify_journal()).is_ok


def test_a_reducer_from_before_there_were_turns_goes_on_in_turns(url: str) -> None:
    """What it had taken by then is before its loop, for ever."""
    for events in ([4], [5, 6], [-1]):
        asyncio.run(feed(url, events))

    async def ended() -> None:
        async with hf.connect(url) as app:
            run = app.get("counter")
            assert await run.result(timeout=60) == 16 + 4 + 5 + 6
            assert [each.turn for each in await run.checkpoints()] == [1, 2, 3], "it waited before its loop"
            assert await run.state(2) == [16 + 4 + 5]
            assert (await run.verify_journal()).is_ok

    asyncio.run(ended())


async def feed(url: str, events: list[int]) -> None:
    async with hf.connect(url, agents=[golden.counter]) as app:
        for event in events:
            await app.get("counter").send("event", event)

        async def has_taken_all() -> bool:
            row = await app._store.run(RunId("counter"))
            assert row is not None
            reason = {} if row.reason is None else reasons.plain(row.reason)
            return row.status.is_final or (row.owner is None and reason.get("mail") == row.mail)

        await eventually(has_taken_all)


async def help_along(app: hf.Holdfast) -> None:
    """What people do, so that each run can end."""
    for run_id in ("signal", "half", "heard", "paused", "queued", "delayed", "doubtful", "cut-in-effect"):
        await app.get(run_id).send("number", 5)
    await app.get("signal").send("number", 6)
    (child,) = [info.id for info in await app.runs(limit=1000) if info.id.startswith("parent.")]
    await app.get(child).send("number", 5)
    await app.get("counter").send("event", -1)
    await app.get("patient").send("word", "soon")
    await app.get("racer").send("word", "go")
    await app.get("paused").resume(by="bob")
    await app.get("blocked").resume()
    await app.get("failed").retry()
    await app.resume_queue("shut")
    for question in await eventually(lambda: open_questions(app, 2)):
        await question.answer("7" in question.prompt, by="bob")
    verdicts = {"blocked": hf.landed("one"), "doubtful": hf.landed("collect 1"), "cut-in-effect": hf.not_landed()}
    for doubt in await eventually(lambda: open_doubts(app, len(verdicts))):
        await doubt.resolve(verdicts[doubt.run_id], by="bob")


async def open_questions(app: hf.Holdfast, count: int) -> list[hf.Question]:
    found = await app.questions()
    return found if len(found) == count else []


async def open_doubts(app: hf.Holdfast, count: int) -> list[hf.InDoubt]:
    found = await app.in_doubt()
    return found if len(found) == count else []
