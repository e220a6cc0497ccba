"""Moves that are cut off, over three stores and back: a run lives in one of them, and is never shut for good."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.base.config import Settings
from holdfast.control import lifecycle
from holdfast.journal.tombstones import is_elsewhere
from holdfast.model import RunFilter, RunId, RunRow, reasons
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.store import open_store
from holdfast.testing import check_history
from holdfast.testing.postgres import Databases
from tests.cli.commands import Commands
from tests.eventually import eventually, eventually_now
from tests.forkserver import ForkServer
from tests.retention.agents import ALL, adder, bank, forgiving, gate_of, heir, number, stubborn
from tests.retention.test_moving import (
    POINTS,
    finish_family,
    go,
    once_each,
    start_family,
    wait_parked,
    wait_status,
    whole_of,
    world,
)
from tests.workers import until, work

__all__ = ["world"]

_SORTS = {"s": "sqlite", "p": "postgres"}
#: The others are those of each store's own commits.
EACH_POINT = [each if each.startswith("copy.") else pytest.param(each, marks=pytest.mark.prove) for each in POINTS]


@pytest.fixture(params=["sps", *(pytest.param(each, marks=pytest.mark.prove) for each in ("sss", "psp"))])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Three stores; their histories are checked when the test is over."""
    databases: Databases | None = None
    urls = []
    for place, sort in enumerate(request.param):
        if _SORTS[sort] == "sqlite":
            urls.append(f"sqlite:///{tmp_path / f'{place}.db'}")
        else:
            databases = request.getfixturevalue("postgres_databases")
            assert databases is not None
            urls.append(databases.fresh())
    yield urls
    try:
        broken = [found for url in urls for found in check_history(url)]
        assert [each for each in broken if "There is no store" not in each] == []
    finally:
        for url in urls:
            if databases is not None and url.startswith("postgres"):
                databases.drop(url)


@pytest.fixture
def two(stores: list[str]) -> list[str]:
    return stores[:2]


async def rows_of(url: str) -> list[RunRow]:
    store = open_store(url, settings=Settings())
    await store.open()
    try:
        return await store.runs(RunFilter(limit=100))
    finally:
        await store.close()


def living(urls: list[str], run_id: str) -> list[str]:
    """The stores in which a run can be executed."""
    return [
        url
        for url in urls
        for row in go(rows_of(url))
        if row.id == run_id and not is_elsewhere(row) and not row.status.is_final
    ]


# three stores


@pytest.mark.parametrize("at", [1, pytest.param(2, marks=pytest.mark.prove)], ids=["first", "second"])
@pytest.mark.parametrize("point", EACH_POINT)
def test_what_went_on_to_a_third_store_is_not_brought_back_by_the_move_that_was_cut_off(
    point: str, at: int, stores: list[str], world: Path, commands: Commands
) -> None:
    first, second, third = stores
    go(start_family(first, "boss"))
    move = ("copy", first, second, "boss", "--move")
    assert commands(*move, HOLDFAST_FAULT=f"{point}:kill@{at}").code == -signal.SIGKILL
    on = ("copy", second, third, "boss", "--move")
    assert commands(*on).code in (0, 3, 5)
    assert len(living(stores, "boss")) <= 1
    again = commands(*move)
    assert again.code == 0, again.out + again.err
    assert len(living(stores, "boss")) == 1
    ended = commands(*on)
    assert ended.code == 0, ended.out + ended.err
    assert living(stores, "boss") == [third]
    go(finish_family(third, "boss"))
    once_each(world)
    assert all("moved to" in line for url in (first, second) for line in commands("runs", "--db", url).out.splitlines())


def test_what_got_further_in_the_second_store_and_went_on_is_finished_in_the_first(
    stores: list[str], world: Path, commands: Commands
) -> None:
    first, second, third = stores
    go(start_family(first, "boss"))
    move = ("copy", first, second, "boss", "--move")
    assert commands(*move, HOLDFAST_FAULT="copy.after_release:kill@2").code == -signal.SIGKILL
    go(finish_family(second, "boss"))
    assert commands("copy", second, third, "--move").code == 0
    again = commands(*move)
    assert again.code == 0, again.out + again.err
    assert all("moved to" in line for url in (first, second) for line in commands("runs", "--db", url).out.splitlines())
    once_each(world)


def test_two_moves_at_once_that_were_cut_off_are_finished_one_by_one(
    stores: list[str], world: Path, commands: Commands
) -> None:
    first, second, third = stores
    go(start_family(first, "boss"))
    killed = {"HOLDFAST_FAULT": "copy.after_release:kill@2"}
    assert commands("copy", first, second, "boss", "--move", **killed).code == -signal.SIGKILL
    assert commands("copy", second, third, "boss", "--move", **killed).code == -signal.SIGKILL
    for source, target in ((second, first), (third, first), (third, second)):
        ended = commands("copy", source, target, "boss", "--move")
        assert ended.code == 5
        assert "another move" in ended.out or "moving to" in ended.out
    assert living(stores, "boss") == [third]
    assert commands("copy", first, second, "boss", "--move").code == 0
    assert commands("copy", second, third, "boss", "--move").code == 0
    assert commands("copy", third, first, "boss", "--move").code == 0
    assert living(stores, "boss") == [first]
    go(finish_family(first, "boss"))
    once_each(world)


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(3, 30))], ids=str
)
def test_a_run_that_is_moved_at_random_and_cut_off_lives_in_one_store(
    seed: int, stores: list[str], world: Path, commands: Commands
) -> None:
    dice = random.Random(seed)
    go(start_family(stores[0], "boss"))
    for _ in range(12):
        source, target = dice.sample(stores, 2)
        fault = f"{dice.choice(POINTS)}:kill@{dice.randint(1, 2)}" if dice.random() < 0.7 else ""
        ended = commands("copy", source, target, "boss", "--move", HOLDFAST_FAULT=fault)
        assert ended.code in (0, 3, 5, -signal.SIGKILL), ended.out + ended.err
        assert len(living(stores, "boss")) <= 1, f"seed {seed}"
    while True:
        rows = [(url, row) for url in stores for row in go(rows_of(url)) if row.id == "boss"]
        named = {open_store(url, settings=Settings()).url: url for url in stores}  # without the password
        cut_off = [(url, named[row.reason.to]) for url, row in rows if isinstance(row.reason, reasons.Moving)]
        if not cut_off:
            break
        done = [commands("copy", source, target, "boss", "--move").code for source, target in cut_off]
        assert 0 in done, f"seed {seed}: {cut_off} ended with {done}"
    (home,) = living(stores, "boss")
    go(finish_family(home, "boss"))
    once_each(world)


# there and back


@pytest.mark.parametrize("at", [1, pytest.param(2, marks=pytest.mark.prove)], ids=["first", "second"])
@pytest.mark.parametrize("point", EACH_POINT)
def test_a_move_back_that_is_killed_is_finished_by_the_same_command(
    point: str, at: int, two: list[str], world: Path, commands: Commands
) -> None:
    there, back = (("copy", *way, "heir", "--move") for way in (two, reversed(two)))

    async def start() -> None:
        async with hf.connect(two[0], agents=ALL) as app:
            await app.start(heir(1), id="heir")
            await wait_status(app, "heir", "waiting")
            await wait_parked(app, "heir")

    go(start())
    assert commands(*there).code == 0
    killed = commands(*back, HOLDFAST_FAULT=f"{point}:kill@{at}")
    assert killed.code == -signal.SIGKILL or at > 1
    for way, home in ((back, two[0]), (there, two[1]), (back, two[0])):
        ended = commands(*way)
        assert ended.code == 0, ended.out + ended.err
        assert living(two, "heir") == [home]

    async def finish() -> None:
        async with hf.connect(two[0], agents=ALL) as app:
            await app.get("heir").send(number, 5)
            assert await app.get("heir").result(timeout=60) == 7

    go(finish())
    assert world.read_text() == "add 1\n"


def test_a_run_that_has_ended_is_copied_back_as_often_as_one_likes(two: list[str], commands: Commands) -> None:
    async def live() -> None:
        async with hf.connect(two[0], agents=ALL) as app:
            await (await app.start(adder(1), id="one")).result()

    go(live())
    assert commands("copy", *two, "one", "--move").code == 0
    back = ("copy", two[1], two[0], "one", "--json")
    outcomes = []
    for arguments in (back, back, (*back, "--move"), ("copy", *two, "one", "--json", "--move"), (*back, "--move")):
        ended = commands(*arguments)
        outcomes.append((ended.code, ended.json["items"][0]["outcome"]))
    assert outcomes == [(0, "copied"), (0, "there already"), (0, "moved"), (0, "moved"), (0, "moved")]
    assert go(whole_of(two[0], "one")).records


# what would shut a family for good is known before anything is changed


def test_a_child_that_the_other_store_has_in_another_state_keeps_its_family_where_it_is(
    two: list[str], commands: Commands
) -> None:
    async def start() -> None:
        async with hf.connect(two[0], agents=ALL) as app:
            await app.start(forgiving(1), id="parent")
            await wait_status(app, "parent", "waiting")
            await wait_parked(app, "parent")

    async def retry() -> None:
        async with hf.connect(two[0], agents=ALL) as app:
            await app.get(child).retry()
            with pytest.raises(hf.RunFailed):
                await app.get(child).result(timeout=60)

    go(start())
    (child,) = [row.id for row in go(rows_of(two[0])) if row.id != "parent"]
    assert commands("copy", *two, child).code == 0
    go(retry())
    before = go(whole_of(two[0], "parent"))
    ended = commands("copy", *two, "parent", "--move")
    assert ended.code == 5
    assert f"has {child} in another state" in ended.out
    assert go(whole_of(two[0], "parent")) == before


def test_a_child_that_was_pruned_comes_along_as_the_tombstone_that_it_is(
    two: list[str], world: Path, commands: Commands
) -> None:
    async def live() -> None:
        async with hf.connect(two[0], agents=ALL) as app:
            run = await app.start(stubborn(1), id="parent")
            with pytest.raises(hf.RunFailed):
                await run.result(timeout=60)
            assert (await app.prune(older_than=timedelta(0), agent="adder")).runs == 1
            gate_of(world, "open").touch()
            await run.retry()
            await wait_status(app, "parent", "waiting")
            await wait_parked(app, "parent")

    async def finish() -> None:
        async with hf.connect(two[1], agents=ALL) as app:
            await app.get("parent").send(number, 5)
            assert await app.get("parent").result(timeout=60) == 7

    go(live())
    ended = commands("copy", *two, "parent", "--move")
    assert ended.code == 0, ended.out + ended.err
    go(finish())
    assert world.read_text() == "add 1\n"
    assert [reasons.why(row.reason) for row in go(rows_of(two[1])) if row.agent == "adder"] == ["pruned"]


# what was taken from a worker that lives


@pytest.fixture
def at_work(tmp_path: Path, world: Path, forkserver: ForkServer) -> Iterator[Callable[[str], None]]:
    """Starts workers."""
    agents = "tests.retention.agents"
    workers = []

    def start(url: str) -> None:
        more: dict[str, Any] = {"url": url, "agents": agents, "settings": {}}
        log, env = tmp_path / "log.txt", {"WORLD": str(world)}
        workers.append(forkserver.start(work, imports=[agents], log=log, env=env, **more))

    yield start
    for worker in workers:
        worker.kill()


async def pay(url: str) -> None:
    async with hf.connect(url) as app:
        await app.start(bank("paid"), id="one")


async def settle(url: str, world: Path) -> list[str]:
    """Have the effect of the first worker happen when it is known to be in doubt; what was known of that worker."""
    async with hf.connect(url) as app:
        run = app.get("one")
        assert await until(run, "in_doubt", "done") == "in_doubt"
        gate_of(world, "open").touch()
        await eventually(world.exists)
        [doubt] = await run.in_doubt()
        await doubt.resolve(hf.landed("paid"))
        assert await run.result(timeout=60) == "paid"
        notes = [json.loads(r.payload or "{}") for r in await run._store.records(run.id) if r.kind == "noted"]
        return [note["seized"] for note in notes if "seized" in note]


def test_an_effect_under_way_in_a_live_worker_is_in_doubt_where_its_run_was_moved_to(
    two: list[str], world: Path, commands: Commands, at_work: Callable[[str], None]
) -> None:
    go(pay(two[0]))
    at_work(two[0])
    eventually_now(gate_of(world, "reached").exists)
    at_work(two[1])
    ended = commands("copy", *two, "one", "--move", "--seize")
    assert ended.code == 0, ended.out + ended.err
    assert go(settle(two[1], world)) == [""]
    assert world.read_text() == "paid\n"


def test_an_effect_under_way_in_a_live_worker_is_in_doubt_after_its_run_was_blocked(
    url: str, world: Path, at_work: Callable[[str], None]
) -> None:
    async def block() -> None:
        async with hf.connect(url) as app:
            row = await app._here.store.run(RunId("one"))
            assert row is not None
            assert await lifecycle.block(app._here.store, row, Trouble(Cause.lost, detail="it is lost"))
            await app.get("one").resume()

    go(pay(url))
    at_work(url)
    eventually_now(gate_of(world, "reached").exists)
    at_work(url)
    go(block())
    assert go(settle(url, world)) == [""]
    assert world.read_text() == "paid\n"
