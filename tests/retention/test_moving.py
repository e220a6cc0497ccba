"""Runs go from one store to another: verbatim, compared, and never alive in two places."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.app import Holdfast
from holdfast.base import clock
from holdfast.base.config import Settings
from holdfast.control.upkeep.moving import Mover
from holdfast.control.upkeep.transfers import Outcome
from holdfast.errors import RunMoved
from holdfast.model import RunId, Whole
from holdfast.store import open_store
from holdfast.testing import check_history
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.retention.agents import ALL, adder, alarm, asker, boss, collector, failing, gate_of, large, number, sleeper
from tests.workers import until


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORLD", str(tmp_path / "world.txt"))
    return tmp_path / "world.txt"


@pytest.fixture
def laptop(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'laptop.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'fleet.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


def go(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


async def wait_status(app: Holdfast, run_id: str, *wanted: str) -> None:
    await until(app.get(run_id), *wanted)


async def wait_parked(app: Holdfast, *run_ids: str) -> None:
    async def are_parked() -> bool:
        rows = [await app._here.store.run(RunId(each)) for each in run_ids]
        return all(row is not None and row.owner is None for row in rows)

    await eventually(are_parked)


async def start_family(url: str, run_id: str) -> None:
    """A run that waits for its child, which waits for a signal; parked, and nobody there."""
    async with hf.connect(url, agents=ALL) as app:
        await app.start(boss(1), id=run_id)

        async def family() -> list[str]:
            found = [r.id for r in await app.runs() if r.id.startswith(run_id)]
            return found if len(found) > 1 else []

        await wait_parked(app, *await eventually(family))


async def finish_family(url: str, run_id: str) -> None:
    """Have it go on where it is now."""
    async with hf.connect(url, agents=ALL) as app:
        (child,) = [r.id for r in await app.runs() if r.id.startswith(f"{run_id}.")]
        await app.get(child).send(number, 4, dedup="four")
        assert await app.get(run_id).result(timeout=60) == 5


def once_each(world: Path, times: int = 1) -> None:
    assert Counter(world.read_text().splitlines()) == dict.fromkeys(
        ["boss 1", "collect 1", "collected [4]", "boss got 4"], times
    )


async def whole_of(url: str, run_id: str) -> Whole:
    store = open_store(url, settings=Settings())
    await store.open(read_only=True)
    try:
        found = await store.whole(RunId(run_id))
        assert found is not None
        return found
    finally:
        await store.close()


# copies


def test_a_copy_of_a_run_that_has_ended_is_the_same_to_the_byte(laptop: str, fleet: str, commands: Commands) -> None:
    async def live() -> None:
        async with hf.connect(laptop, agents=ALL) as app:
            await (await app.start(large(50_000), id="large")).result()
            run = await app.start(collector(1), id="mail")
            await run.send(number, 3, dedup="x")
            await run.result()
            asking = await app.start(asker(1), id="ask")
            await wait_status(app, "ask", "waiting")
            await (await asking.questions())[0].answer(True, by="eva", note="ü")
            await asking.result()
            failed = await app.start(failing(1), id="failed")
            with pytest.raises(hf.RunFailed):
                await failed.result()

    go(live())
    ended = commands("copy", laptop, fleet, "--json")
    assert ended.code == 0, ended.err
    assert {item["id"]: item["outcome"] for item in ended.json["items"]} == dict.fromkeys(
        ["large", "mail", "ask", "failed"], "copied"
    )
    for run_id in ("large", "mail", "ask", "failed"):
        assert go(whole_of(laptop, run_id)) == go(whole_of(fleet, run_id))
    again = commands("copy", laptop, fleet, "--json")
    assert {item["outcome"] for item in again.json["items"]} == {"there already"}

    async def read() -> None:
        async with hf.connect(fleet, agents=ALL) as app:
            assert await app.get("large").result() == "x" * 100_000
            assert not await app.get("mail").send(number, 3, dedup="x")
            with pytest.raises(hf.ConflictingStart):
                await app.start(adder(1), id="large")
            assert (await app.questions(only_open=False))[0].note == "ü"

    go(read())


def test_an_unfinished_run_is_never_copied(laptop: str, fleet: str, commands: Commands) -> None:
    go(start_family(laptop, "boss"))
    ended = commands("copy", laptop, fleet, "boss")
    assert ended.code == 5
    assert "--move" in ended.out
    assert commands("runs", "--db", fleet).out == ""
    assert commands("copy", laptop, fleet).code == 0, "what does not fit is left"


def test_an_id_that_means_another_run_there_is_a_conflict(laptop: str, fleet: str, commands: Commands) -> None:
    async def start(url: str, n: int) -> None:
        async with hf.connect(url, agents=ALL) as app:
            await (await app.start(adder(n), id="one")).result()
            await app.start(collector(n), id="two")
            await wait_status(app, "two", "waiting")

    go(start(laptop, 1))
    go(start(fleet, 2))
    before = [go(whole_of(url, run_id)) for url in (laptop, fleet) for run_id in ("one", "two")]
    for arguments in (["one"], ["one", "--move"], ["two", "--move"]):
        ended = commands("copy", laptop, fleet, *arguments, "--json")
        assert ended.code == 5
        assert ended.json["items"][0]["outcome"] == "conflict"
    assert [go(whole_of(url, run_id)) for url in (laptop, fleet) for run_id in ("one", "two")] == before


@pytest.mark.corrupts
def test_damaged_runs_are_not_copied(laptop: str, tmp_path: Path, commands: Commands) -> None:
    async def live() -> None:
        async with hf.connect(laptop, agents=ALL) as app:
            for name in ("good", "bad"):
                await (await app.start(adder(1), id=name)).result()

    go(live())
    connection = apsw.Connection(str(tmp_path / "laptop.db"))
    connection.execute("UPDATE records SET payload = '9' WHERE run_id = 'bad' AND kind = 'finished'")
    connection.close()
    for move in ([], ["--move"]):
        ended = commands("copy", laptop, str(tmp_path / "other.db"), "bad", "good", *move, "--json")
        assert ended.code == 6
        outcomes = {item["id"]: item["outcome"] for item in ended.json["items"]}
        assert outcomes["bad"] == "damaged"
    assert commands("runs", "--db", str(tmp_path / "other.db")).out.split("\t")[0] == "good"


# moves


def test_runs_go_to_the_fleet_and_back_and_each_effect_happens_once(
    laptop: str, fleet: str, world: Path, commands: Commands
) -> None:
    go(start_family(laptop, "boss"))
    keys = {r.key: r.payload for r in go(whole_of(laptop, "boss")).records if r.kind == "intent"}
    ended = commands("copy", laptop, fleet, "boss", "--move", "--json")
    assert ended.code == 0, ended.err
    assert {item["outcome"] for item in ended.json["items"]} == {"moved"}
    assert len(ended.json["items"]) == 2, "its child came with it"

    async def refused() -> None:
        async with hf.connect(laptop, agents=ALL) as app:
            run = app.get("boss")
            for act in (run.result, run.resume, run.cancel, run.pause, run.history, run.retry):
                with pytest.raises(RunMoved, match="was moved to"):
                    await act()
            with pytest.raises(RunMoved):
                await run.send(number, 9)
            again = await app.start(boss(1), id="boss")
            with pytest.raises(RunMoved):
                await again.result()

    go(refused())
    assert commands("copy", fleet, laptop, "boss", "--move").code == 0
    assert commands("copy", laptop, fleet, "boss", "--move").code == 0
    go(finish_family(fleet, "boss"))
    assert commands("copy", fleet, laptop, "--move").code == 0

    async def read() -> None:
        async with hf.connect(laptop, agents=ALL) as app:
            assert await app.get("boss").result() == 5
            for each in await app.runs():
                assert (await app.get(each.id).verify_journal()).is_ok

    go(read())
    once_each(world)
    found = {r.key: r.payload for r in go(whole_of(laptop, "boss")).records if r.kind == "intent"}
    assert found.items() >= keys.items()
    assert all("moved to" in line for line in commands("runs", "--db", fleet).out.splitlines())
    assert check_history(laptop) == []
    assert check_history(fleet) == []


def test_a_run_stands_in_its_new_store_as_it_stood(laptop: str, fleet: str, world: Path, commands: Commands) -> None:
    async def live() -> None:
        async with hf.connect(laptop, agents=ALL) as app:
            await app.start(sleeper(3), id="sleeping")
            await app.start(asker(1), id="asking")
            await app.start(collector(2), id="paused")
            await app.start(adder(1), id="queued", queue="q", queue_key="k", priority=3, delay=3600)
            await wait_parked(app, "sleeping", "asking", "paused")
            await app.get("paused").pause(by="eva", note="later")
            await app.get("paused").send(number, 1)

    go(live())
    names = ("sleeping", "asking", "paused", "queued")
    before = {name: go(whole_of(laptop, name)) for name in names}
    assert commands("copy", laptop, fleet, *names, "--move").code == 0
    for name, was in before.items():
        now = go(whole_of(fleet, name))
        assert replace(now.row, epoch=0, digest="", claims=0) == replace(was.row, epoch=0, digest="", claims=0), name
        assert now.row.epoch > was.row.epoch
        assert replace(now, row=was.row) == was

    async def finish() -> None:
        async with hf.connect(fleet, agents=ALL) as app:
            await (await app.questions())[0].answer(True)
            await app.get("paused").resume()
            await app.get("paused").send(number, 2)
            clock.shift_us(4 * 86_400_000_000)
            app._here.nudge()
            assert await app.get("sleeping").result(timeout=60) == "awake"
            assert await app.get("asking").result(timeout=60) is True
            assert await app.get("paused").result(timeout=60) == [1, 2]
            assert await app.get("queued").result(timeout=60) == 2

    go(finish())
    assert max(Counter(world.read_text().splitlines()).values()) == 1


def test_a_run_that_a_live_worker_has_is_moved_only_when_it_is_seized(laptop: str, fleet: str, world: Path) -> None:
    async def work() -> None:
        source, target = (open_store(url, settings=Settings()) for url in (laptop, fleet))
        async with hf.connect(laptop, agents=ALL) as app:
            run = await app.start(alarm(), id="one")
            await eventually(lambda: gate_of(world, "reached").exists())
            await source.open()
            await target.open()
            try:
                row = await source.run(RunId("one"))
                assert row is not None
                (refused,) = await Mover(source, target).move(row)
                assert refused.outcome is Outcome.refused
                assert "--seize" in refused.detail
                assert await target.run(row.id) is None
                (moved,) = await Mover(source, target, seize=True).move(row)
                assert (moved.outcome, moved.status) == (Outcome.moved, "queued")
                with pytest.raises(RunMoved):
                    await run.result(timeout=60)
            finally:
                await source.close()
                await target.close()
            gate_of(world, "open").touch()
        assert not world.exists(), "its former owner does nothing more"
        async with hf.connect(fleet, agents=ALL) as app:
            assert await app.get("one").result(timeout=60) == "rung"

    go(work())
    assert world.read_text() == "alarm\n"


def test_the_same_store_by_another_name_is_noticed(laptop: str, tmp_path: Path, commands: Commands) -> None:
    go(start_family(laptop, "boss"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link.db").symlink_to(tmp_path / "laptop.db")
    ended = commands("copy", laptop, str(tmp_path / "folder" / "link.db"), "--move")
    assert ended.code == 2
    assert "same store" in ended.err
    assert commands("show", "boss", "--db", laptop, "--json").json["run"]["status"] == "waiting"


def test_a_backup_of_the_store_is_not_a_place_to_move_a_live_run_to(
    laptop: str, tmp_path: Path, commands: Commands
) -> None:
    go(start_family(laptop, "boss"))
    assert commands("backup", "copy.db", "--db", laptop).code == 0
    ended = commands("copy", laptop, str(tmp_path / "copy.db"), "boss", "--move")
    assert ended.code == 5
    assert "has it too" in ended.out
    assert commands("show", "boss", "--db", laptop, "--json").json["run"]["status"] == "waiting"


POINTS = [
    "copy.after_mark",
    "copy.before_commit",
    "copy.after_commit",
    "copy.before_release",
    "copy.after_release",
    "amend.before_commit",
    "amend.after_commit",
    "prune.before_commit",
    "prune.after_commit",
]


def kill_and_repeat(commands: Commands, source: str, target: str, run_id: str, fault: str) -> bool:
    """Move a family, and be killed; move it again, and have it go on. Whether it was killed."""
    go(start_family(source, run_id))
    move = ("copy", source, target, run_id, "--move")
    ended = commands(*move, HOLDFAST_FAULT=fault)
    assert ended.code in (0, -signal.SIGKILL), ended.err
    for url in (source, target):
        found = check_history(url)
        assert found == [] or "There is no store" in found[0], f"killed at {fault}"
    again = commands(*move)
    assert again.code == 0, f"killed at {fault}: {again.out}{again.err}"
    go(finish_family(target, run_id))
    return ended.code != 0


def all_moved(commands: Commands, source: str, times: int) -> None:
    shown = commands("runs", "--db", source, "--limit", "100").out.splitlines()
    assert all("moved to" in line for line in shown)
    assert len(shown) == 2 * times


@pytest.mark.parametrize("point", POINTS)
def test_a_move_that_is_killed_is_finished_by_the_same_command(
    point: str, laptop: str, postgres_url: str, world: Path, commands: Commands
) -> None:
    assert kill_and_repeat(commands, laptop, postgres_url, "boss", f"{point}:kill@1")
    once_each(world)
    all_moved(commands, laptop, 1)


@pytest.mark.prove
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", ["to the fleet", "to the laptop"])
def test_a_move_that_is_killed_at_any_time_is_finished_by_the_same_command(
    point: str, way: str, laptop: str, postgres_url: str, world: Path, commands: Commands
) -> None:
    source, target = (laptop, postgres_url) if way == "to the fleet" else (postgres_url, laptop)
    kills = 0
    while kill_and_repeat(commands, source, target, f"boss{kills}", f"{point}:kill@{kills + 1}"):
        kills += 1
    assert kills >= 2, "one for each of the family"
    once_each(world, kills + 1)
    all_moved(commands, source, kills + 1)


def test_a_move_that_was_cut_off_shuts_the_run_in_both_stores(laptop: str, fleet: str, commands: Commands) -> None:
    go(start_family(laptop, "boss"))
    move = ("copy", laptop, fleet, "boss", "--move")
    assert commands(*move, HOLDFAST_FAULT="copy.before_release:kill@1").code == -signal.SIGKILL
    for url in (laptop, fleet):
        for arguments in (["resume", "boss", "kept.py"], ["send", "boss", "number", "1"], ["cancel", "boss"]):
            ended = commands(*arguments, "--db", url)
            assert ended.code == 5, ended.err + ended.out
            assert "is being moved" in ended.err + ended.out
    elsewhere = commands("copy", laptop, "elsewhere.db", "boss", "--move")
    assert elsewhere.code == 5
    assert "moving to" in elsewhere.out
    assert commands(*move).code == 0
    go(finish_family(fleet, "boss"))


def test_definitions_come_along_and_what_starts_runs_comes_paused(laptop: str, fleet: str, commands: Commands) -> None:
    async def declare() -> None:
        async with hf.connect(laptop, agents=ALL) as app:
            await app.queue("mail", concurrency=4)
            await app.schedule("nightly", adder(1), cron="* * * * *")
            await app.on("order.paid", adder, name="ship")

    go(declare())
    ended = commands("copy", laptop, fleet, "--definitions", "--json")
    assert ended.code == 0, ended.err
    assert {(d["kind"], d["name"], d["outcome"]) for d in ended.json["definitions"]} >= {
        ("queue", "mail", "copied"),
        ("schedule", "nightly", "copied"),
        ("trigger", "ship", "copied"),
    }
    again = commands("copy", laptop, fleet, "--definitions", "--json")
    assert {d["outcome"] for d in again.json["definitions"]} == {"there already"}

    async def read() -> None:
        async with hf.connect(fleet) as app:
            assert [(queue.name, queue.concurrency) for queue in await app.queues()] == [("mail", 4)]
            (schedule,) = await app.schedules()
            assert schedule.paused
            (trigger,) = await app.triggers()
            assert trigger.paused
            await app.resume_schedule("nightly")
            assert (await app.schedules())[0].next_fires

    go(read())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["one", "--agent", "adder"], "not both"),
        (["--seize"], "--move"),
        (["nobody"], "no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_says_what_to_do(arguments: list[str], word: str, laptop: str, commands: Commands) -> None:
    go(start_family(laptop, "boss"))
    ended = commands("copy", laptop, "other.db", *arguments)
    assert ended.code in (2, 3)
    assert word in ended.err
    assert commands("copy", "missing.db", "other.db").code == 3


def test_runs_are_completed_from_the_store_that_is_named_first(laptop: str, commands: Commands) -> None:
    go(start_family(laptop, "boss"))
    words = f"holdfast copy {laptop} other.db bo"
    ended = commands("", COMP_WORDS=words, COMP_CWORD="4", _HOLDFAST_COMPLETE="bash_complete")
    assert "plain,boss" in ended.out.splitlines(), ended.out
