"""What ended runs did is removed, and nothing that anybody needs; their tombstones keep them from running again."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.app import Holdfast
from holdfast.base import clock
from holdfast.base.config import Settings
from holdfast.control.acting import act_on
from holdfast.control.upkeep.retention import prune
from holdfast.errors import ConflictingStart, RunFinished, RunPruned
from holdfast.model import ActFilter, RunFilter, RunId
from holdfast.store import open_store
from holdfast.testing import check_history
from holdfast.testing.samples import ALICE, append, extend, new_run
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.retention.agents import ALL, adder, asker, boss, collector, failing, large, number

DAY = timedelta(days=1)
NOW = timedelta(0)


def connect(url: str, **more: Any) -> Holdfast:
    return hf.connect(url, agents=ALL, **more)


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORLD", str(tmp_path / "world.txt"))
    return tmp_path / "world.txt"


async def wait_status(app: Holdfast, run_id: str, status: str) -> None:
    async def has_it() -> bool:
        return await app.get(run_id).status() == status

    await eventually(has_it)


async def parked_child(app: Holdfast) -> str:
    async def waiting() -> list[str]:
        return [run.id for run in await app.runs(agent="collector") if run.status == "waiting"]

    return (await eventually(waiting))[0]


def test_only_runs_that_ended_long_enough_ago_are_pruned(url: str) -> None:
    async def go() -> None:
        async with connect(url) as app:
            await (await app.start(adder(1), id="old")).result()
            clock.shift_us(2 * 86_400_000_000)
            await (await app.start(adder(2), id="new")).result()
            await app.start(collector(1), id="live")
            dry = await app.prune(older_than=DAY, dry_run=True)
            assert (dry.runs, dry.kept, dry.forgotten, dry.dry_run) == (1, 0, 0, True)
            assert dry.records > 0
            assert await app.get("old").history(), "nothing was removed yet"
            done = await app.prune(older_than=DAY)
            assert (done.runs, done.records) == (1, dry.records)
            assert [item.name for item in await app.get("new").history()]
            assert (await app.prune(older_than=DAY)).runs == 0
            await app.get("live").send(number, 1)
            assert await app.get("live").result() == [1]

    asyncio.run(go())


def test_filters_choose_agents_and_statuses(url: str) -> None:
    async def go() -> None:
        async with connect(url) as app:
            for run_id, call in (("a", adder(1)), ("f", failing(1)), ("l", large(20_000))):
                run: hf.Run[Any] = await app.start(call, id=run_id)
                await asyncio.wait({asyncio.ensure_future(run.result())})
            assert (await app.prune(older_than=NOW, agent="adder", status=[hf.Status.failed])).runs == 0
            assert (await app.prune(older_than=NOW, status=[hf.Status.failed])).runs == 1
            assert (await app.prune(older_than=NOW, agent="large")).runs == 1
            assert [run.now[:6] for run in await app.runs()] == ["pruned", "pruned", ""]
            with pytest.raises(hf.UsageError, match="ended"):
                await app.prune(older_than=NOW, status=[hf.Status.running])
            acts = [act for _, act in await app._store.surveys.acts(ActFilter())]
            assert sorted(act.target for act in acts) == ["*", "adder", "large"], "what is refused nobody has done"

    asyncio.run(asyncio.wait_for(go(), 60))


def test_a_pruned_run_says_so_wherever_it_is_asked(url: str) -> None:
    async def go() -> None:
        async with connect(url) as app:
            await (await app.start(adder(1), id="one")).result()
            failed = await app.start(failing(1), id="two")
            with pytest.raises(hf.RunFailed):
                await failed.result()
            before = await app.get("one").info()
            await app.prune(older_than=NOW)
            one, two = app.get("one"), app.get("two")
            info = await one.info()
            assert (info.id, info.agent, info.status) == ("one", "adder", "done")
            assert (info.thread_id, info.created_at, info.updated_at) == (
                before.thread_id,
                before.created_at,
                before.updated_at,
            )
            assert (info.steps, info.effects) == (1, 1)
            assert info.reason is not None
            assert info.reason["why"] == "pruned"
            for asked in (one.result, one.history, one.receipts, one.states, one.resume, two.retry, two.resume):
                with pytest.raises(RunPruned, match=r"was pruned on \d{4}-\d\d-\d\d; it ended as (done|failed)"):
                    await asked()
            verified = await one.verify_journal()
            assert (verified.is_ok, verified.is_empty) == (True, True)
            assert await one.cancel(timeout=60) is hf.Status.done
            assert await one.pause() is hf.Status.done
            with pytest.raises(RunFinished):
                await one.send("number", 1)

    asyncio.run(go())
    assert check_history(url) == []


def test_nothing_is_run_again_because_it_was_pruned(url: str, world: Path) -> None:
    """A second start, a message that comes twice, an event that comes twice, a time that fires twice."""

    async def go() -> None:
        async with connect(url) as app:
            await app.on("order.paid", adder, name="ship")
            await (await app.start(adder(1), id="one")).result()
            run = await app.start(collector(1), id="two")
            assert await run.send(number, 5, dedup="click-7")
            await run.result()
            event = await app.emit("order.paid", 7, dedup="order-7")
            await wait_status(app, f"ship:{event}", "done")
            lines = world.read_text()
            assert (await app.prune(older_than=NOW)).runs == 3
            again = await app.start(adder(1), id="one")
            with pytest.raises(RunPruned):
                await again.result()
            with pytest.raises(ConflictingStart):
                await app.start(adder(2), id="one")
            assert not await run.send(number, 5, dedup="click-7")
            assert await app.emit("order.paid", 7, dedup="order-7") == event
            assert world.read_text() == lines

    asyncio.run(go())


def test_what_something_alive_may_need_is_kept(url: str) -> None:
    async def go() -> None:
        async with connect(url) as app:
            await app.start(boss(1), id="boss")
            asking = await app.start(asker(1), id="ask")
            await wait_status(app, "ask", "waiting")
            child = app.get(await parked_child(app))
            assert (await app.prune(older_than=NOW)).runs == 0
            await app.pause_all(agent="boss")
            await child.send(number, 4)
            await child.result()
            kept = await app.prune(older_than=NOW)
            assert (kept.runs, kept.kept) == (0, 1), "its parent is not over"
            await app.resume_all()
            assert await app.get("boss").result() == 5
            await (await asking.questions())[0].answer(True)
            await asking.result()
            assert (await app.prune(older_than=NOW)).runs == 3

    asyncio.run(asyncio.wait_for(go(), 60))


def test_tombstones_are_forgotten_when_they_are_old(url: str) -> None:
    async def go() -> None:
        async with connect(url) as app:
            await (await app.start(adder(1), id="one")).result()
            await app.prune(older_than=NOW)
            assert (await app.prune(older_than=DAY, forget=True)).forgotten == 0
            clock.shift_us(2 * 86_400_000_000)
            await (await app.start(adder(2), id="two")).result()
            assert (await app.prune(older_than=DAY, forget=True, dry_run=True)).forgotten == 1
            done = await app.prune(older_than=DAY, forget=True)
            assert (done.runs, done.forgotten) == (0, 1)
            assert [run.id for run in await app.runs()] == ["two"]
            assert await (await app.start(adder(1), id="one")).result() == 2, "it is new"

    asyncio.run(go())


def test_nothing_is_left_of_values_messages_and_questions(url: str) -> None:
    async def go() -> None:
        async with connect(url) as app:
            await (await app.start(large(50_000), id="one")).result()
            run = await app.start(collector(2), id="two")
            await run.send(number, 1, dedup="a")
            await run.send(number, 2)
            await run.result()
            asking = await app.start(asker(1), id="three")
            await wait_status(app, "three", "waiting")
            await (await asking.questions())[0].answer(True, note="secret")
            await asking.result()
            before = await app._here.store.statistics()
            assert int(before["blob_chunks"]) > 0
            assert (await app.prune(older_than=NOW)).runs == 3
            after = await app._here.store.statistics()
            assert [after[name] for name in ("runs", "records", "blob_chunks", "mail")] == [3, 0, 0, 1]
            assert await app.questions(only_open=False) == []

    asyncio.run(go())


# rules


def test_workers_prune_by_rules_at_most_once_a_minute(url: str) -> None:
    async def go() -> None:
        async with connect(url) as app, connect(url) as other:
            for number_of_run in range(3):
                await (await app.start(adder(number_of_run), id=f"a{number_of_run}")).result()
            await (await app.start(large(10), id="l")).result()
            clock.shift_us(31 * 86_400_000_000)  # first: a worker takes a rule with one clock, or with the other
            await app.retain("adder", keep=timedelta(days=30))
            await app.retain("*", keep=timedelta(days=90))
            rules = {rule.agent: rule for rule in await app.retention()}
            assert rules["adder"].keep == timedelta(days=30)
            other._here.nudge()

            async def have_pruned() -> bool:
                return any(rule.last_runs for rule in await app.retention())

            await eventually(have_pruned)
            assert {run.id: run.now[:6] for run in await app.runs()} == {"a0": "pruned", "a1": "pruned"} | {
                "a2": "pruned",
                "l": "",
            }
            (rule,) = [rule for rule in await app.retention() if rule.agent == "adder"]
            assert (rule.last_runs, rule.last_at is not None) == (3, True)
            definition = (await app._here.store.definitions("retention", names=["adder"]))[0]
            assert definition.due_at is not None
            assert rule.last_at is not None
            assert 0 < definition.due_at / 1_000_000 - rule.last_at.timestamp() <= 60, "a minute after it was taken"
            await app.retain("adder", keep=timedelta.max)
            assert {rule.agent: rule.keep for rule in await app.retention()}["adder"] is None
            await app.retain("adder", keep=None)
            assert [rule.agent for rule in await app.retention()] == ["*"]

    asyncio.run(go())


def test_a_rule_of_its_own_comes_before_the_one_for_all_others(url: str) -> None:
    async def go() -> None:
        async with connect(url) as app:
            await (await app.start(adder(1), id="a")).result()
            await (await app.start(large(10), id="l")).result()
            await app.retain("adder", keep=timedelta.max)
            await app.retain("*", keep=NOW)

            async def is_pruned() -> str:
                return (await app.get("l").info()).now

            await eventually(is_pruned)
            assert not (await app.get("a").info()).now
            with pytest.raises(hf.UsageError):
                await app.retain("", keep=NOW)
            with pytest.raises(hf.UsageError):
                await app.retain("adder", keep=-DAY)

    asyncio.run(go())


# crashes and load


@pytest.mark.parametrize("point", ["prune.before_commit", "prune.after_commit"])
def test_a_prune_that_is_killed_leaves_whole_runs_or_tombstones_and_can_be_done_again(
    url: str, point: str, commands: Commands
) -> None:
    async def go() -> None:
        async with connect(url) as app:
            for n in range(30):
                await (await app.start(large(20_000), id=f"r{n}")).result()

    asyncio.run(go())
    prune = ("prune", "--older-than", "0s", "--yes", "--db", url)
    for at in itertools.count(1):
        ended = commands(*prune, HOLDFAST_FAULT=f"{point}:kill@{at}")
        assert check_history(url) == [], f"killed at {point}@{at}"
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.err
        if point == "prune.after_commit":
            assert "pruned" in commands("runs", "--db", url).out
    assert commands(*prune).code == 0
    ended = commands("runs", "--limit", "100", "--db", url)
    assert [line.split("\t")[3][:6] for line in ended.out.splitlines()] == ["pruned"] * 30
    assert commands("verify", "--db", url).code == 0


def test_writers_are_not_held_up_while_much_is_pruned(tmp_path: Path) -> None:
    """One run of 60,000 records and 600 small ones; somebody else's commits go on meanwhile."""
    url = f"sqlite:///{tmp_path / 'made-up.sqlite'}"

    async def go() -> tuple[int, float, float]:
        store, other = (open_store(url, settings=Settings()) for _ in range(2))
        await store.open()
        await other.open()
        try:
            row = await store.create(new_run("r_long"), owner=ALICE)
            for _ in range(60):
                step = extend(row, *["done"] * 1000, payload='"' + "x" * 200 + '"')
                await append(store, step)
                row = step.row
            await append(store, extend(row, "finished", status=hf.Status.done, release=True))
            for n in range(600):
                small = await store.create(new_run(f"r_{n}"), owner=ALICE)
                await append(store, extend(small, *["done"] * 20, "finished", status=hf.Status.done, release=True))
            live = await other.create(new_run("r_live"), owner=ALICE)
            pruning = asyncio.ensure_future(prune(store, NOW, act=act_on(None, "", "prune", target="*")))
            longest, pruned_from = 0.0, time.monotonic()
            while not pruning.done():
                step = extend(live, "done")
                began = time.monotonic()
                await append(other, step)
                longest = max(longest, time.monotonic() - began)
                live = step.row
                await asyncio.sleep(0.001)
            took = time.monotonic() - pruned_from
            assert (await pruning).runs == 601
            assert await store.records(RunId("r_long")) == []
            assert all(r.id == "r_live" or r.reason for r in await store.runs(RunFilter(limit=1000)))
            return live.head_seq, longest, took
        finally:
            await store.close()
            await other.close()

    commits, longest, took = asyncio.run(go())
    print(f"{commits} commits of the other process in {took:.1f} s, the longest took {longest * 1000:.0f} ms")
    assert commits > 20
    assert longest < took / 3, "it does not wait for all that is pruned"


# the command


def test_the_command_asks_tells_and_counts(commands: Commands) -> None:
    hf_ = commands
    hf_("run", "kept.py:adder", "1", "--id", "one")
    hf_("run", "kept.py:failing", "1", "--id", "two")
    assert hf_("prune", "--older-than", "0s", "--dry-run").out == "Would remove what 2 runs did (10 records).\n"
    ended = hf_("prune", "--older-than", "0s")
    assert ended.code == 2
    assert "--yes" in ended.err
    assert hf_.on_terminal("prune", "--older-than", "0s", typed="n\n").code == 1
    assert "Nothing to remove." in hf_("prune", "--older-than", "1d").out
    assert hf_("prune", "--older-than", "soon").code == 2
    shown = hf_.on_terminal("prune", "--older-than", "0s", "--status", "failed", typed="y\n")
    assert shown.code == 0
    assert "Removed what 1 run did" in shown.out
    found = hf_("prune", "--older-than", "0s", "--yes", "--json").json
    assert (found["runs"], found["kept"], found["dry_run"]) == (1, 0, False)
    for arguments in (
        ["resume", "one", "kept.py"],
        ["retry", "two", "kept.py"],
        ["run", "kept.py:adder", "1", "--id", "one"],
    ):
        ended = hf_(*arguments)
        assert ended.code == 5, ended.err
        assert "was pruned on" in ended.err
        assert "Traceback" not in ended.err
    ended = hf_("show", "one")
    assert (ended.code, ended.out) == (0, "")
    assert "it ended as done" in ended.err
    assert "done: pruned" in hf_.on_terminal("show", "one").out
    assert hf_("show", "one", "--story").code == 0
    assert hf_("show", "one", "--json").json["run"]["reason"]["why"] == "pruned"
    assert hf_("watch", "one").code == 0
    assert "2 pruned or moved" in hf_("verify").err
    assert hf_("prune", "--older-than", "0s", "--forget", "--yes").out.startswith("Removed 2 tombstones.")
    assert hf_("runs").out == ""


def test_the_command_for_rules(commands: Commands) -> None:
    hf_ = commands
    hf_("run", "kept.py:adder", "1", "--id", "one")
    assert "No rule" in hf_("retention").err
    assert "kept for 30d" in hf_("retention", "adder", "--keep", "30d").out
    assert "kept for ever" in hf_("retention", "large", "--keep", "forever").out
    assert hf_("retention", "*", "--keep", "12h", "--json").json["keep_s"] == 43200
    assert hf_("retention").out == "*\t12h\t\t0\nadder\t30d\t\t0\nlarge\tforever\t\t0\n"
    assert hf_("retention", "adder", "--off").code == 0
    assert [item["agent"] for item in hf_("retention", "--json").json["items"]] == ["*", "large"]
    for wrong in (["--keep", "30d"], ["adder", "--keep", "1d", "--off"], ["adder", "--keep", "soon"]):
        assert hf_("retention", *wrong).code == 2


def test_agents_are_completed(commands: Commands) -> None:
    commands("run", "kept.py:adder", "1", "--id", "one")
    ended = commands("", COMP_WORDS="holdfast prune --agent a", COMP_CWORD="3", _HOLDFAST_COMPLETE="bash_complete")
    assert "adder" in ended.out, ended.err
