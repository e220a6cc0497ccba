"""What a run may use, with all that comes of it."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import holdfast as hf
from holdfast.control.budgets import change_budget, waiting_for_budget
from holdfast.model import Kind, NoteKind, RunId
from holdfast.model.budgets import BUDGET, FamilyUse, Used, is_within_share, raised, reached
from holdfast.store.contract import Store
from holdfast.testing import Ledger
from holdfast.testing.ledger import VARIABLE
from holdfast.testing.samples import new_run
from tests import workers
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.limits import agents
from tests.limits.agents import COST, family
from tests.workers import seen, until

# decisions


def test_the_first_limit_that_leaves_nothing_is_told() -> None:
    limit = hf.Budget(tokens=10, cost=1.0)
    assert reached(limit, Used(9, 0.9, 500)) is None
    found = reached(limit, Used(9, 1.5))
    assert found is not None
    assert (found.what, found.limit, found.used) == ("cost", 1.0, 1.5)
    assert reached(hf.Budget(steps=0), Used()) is not None, "0 left is nothing, not everything"
    assert reached(hf.Budget(cost=1.0), Used(cost=sum([0.1] * 10))) is not None, "ten times 0.1 is 1"


def test_who_shares_a_budget_looks_more_often_the_less_is_left() -> None:
    limit = hf.Budget(cost=10.0)
    assert is_within_share(limit, Used(cost=2.0), since=Used(cost=0.5), of=5)
    assert not is_within_share(limit, Used(cost=2.0), since=Used(cost=1.0), of=5)
    assert not is_within_share(limit, Used(cost=9.5), since=Used(cost=0.2), of=5)
    assert is_within_share(hf.Budget(steps=5), Used(cost=9.5), since=Used(cost=9.5), of=5), "it has no limit of that"


def test_limits_that_are_not_given_stay() -> None:
    assert raised(hf.Budget(cost=1.0, steps=3), hf.Budget(cost=2.0)) == hf.Budget(cost=2.0, steps=3)
    assert raised(None, hf.Budget(tokens=1)) == hf.Budget(tokens=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cost": -1}, "budget=: cost= takes a number that is not negative; got -1."),
        ({"cost": float("nan")}, "budget=: cost= takes a number that is not negative; got nan."),
        ({"tokens": 1.5}, "budget=: tokens= takes a whole number; got 1.5."),
        ({"steps": True}, "budget=: steps= takes a whole number; got True."),
        ({"cost": "5"}, "budget=: cost= takes a number; got '5'."),
        ({}, "budget=: give at least one of tokens=, cost= and steps=."),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_where_it_is_declared(given: dict[str, Any], said: str) -> None:
    with pytest.raises(hf.UsageError) as error:
        hf.agent(budget=hf.Budget(**given))(agents.thinker.fn)
    assert str(error.value) == said


# one run


@hf.step
async def think(n: int) -> int:
    hf.usage(model="m", input_tokens=2, output_tokens=1, cost=COST)
    return n


@hf.step(retries=1)
def think_aside(n: int) -> int:
    """In a thread, and not at once."""
    hf.usage(model="m", cost=COST)
    if hf.this_step().attempt == 1:
        raise OSError("again")
    return n


@hf.agent(budget=hf.Budget(cost=4 * COST, steps=50))
async def alone(n: int) -> int:
    for number in range(n):
        await think(number)
    return n


@hf.agent(budget=hf.Budget(steps=3))
async def wide(n: int) -> int:
    return sum(await asyncio.gather(*(think(number) for number in range(n))))


@hf.agent(budget=hf.Budget(tokens=0))
async def nothing() -> int:
    return await think(1)


undone: list[str] = []


@hf.effect(settle=0)
async def book(n: int) -> int:
    hf.usage(model="m", cost=COST)
    return n


@book.undo
async def unbook(result: int | None, n: int) -> None:
    undone.append(f"{n}")


@hf.agent(budget=hf.Budget(steps=1))
async def takes_back() -> None:
    async with hf.saga():
        await book(1)
        raise ValueError("no")


@hf.agent(budget=hf.Budget(cost=3 * COST))
async def between() -> int:
    """What the agent itself uses, and what threads and second attempts do, counts too."""
    hf.usage(model="m", cost=COST)
    await think_aside(1)
    return await think(2)


async def blocked_for(run: hf.Run[Any]) -> dict[str, Any]:
    with pytest.raises(hf.RunBlocked) as error:
        await run.result(timeout=60)
    return dict(error.value.reason or {})


def test_at_its_limit_a_run_is_blocked_and_goes_on_once_that_is_raised(tmp_path: Path) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[alone, wide, nothing, takes_back, between]) as app:
            run = await app.start(alone(9), id="run")
            why = await blocked_for(run)
            assert {name: why[name] for name in ("why", "owner", "what", "limit", "used", "executed")} == {
                "why": "budget",
                "owner": "run",
                "what": "cost",
                "limit": 0.5,
                "used": 0.5,
                "executed": 4,
            }
            assert (await run.info()).now == "budget: 0.5 of 0.5 cost"
            await run.resume()
            assert (await blocked_for(run))["executed"] == 0, "to try again changes nothing"
            with pytest.raises(hf.UsageError, match=r"has used 0\.5 cost already"):
                await run.resume(budget=hf.Budget(cost=0.5))
            with pytest.raises(hf.UsageError, match="takes a Budget"):
                await run.resume(budget=5)  # type: ignore[arg-type]
            await run.resume(budget=hf.Budget(cost=0.75), by="ann", note="more")
            assert (await blocked_for(run))["used"] == 0.75
            await run.resume(budget=hf.Budget(cost=9))
            assert await run.result(timeout=60) == 9
            assert (await run.info()).cost == 9 * COST, "nothing was counted twice"
            budgets = [item.detail for item in await run.history() if item.status == "budget"]
            assert budgets[:2] == ["0.5 cost, 50 steps, by agent", "0.75 cost, 50 steps, by ann: more"]
            with pytest.raises(hf.UsageError, match="is done: it uses nothing any more"):
                await run.resume(budget=hf.Budget(cost=90))

            run = await app.start(wide(10))
            assert (await blocked_for(run))["executed"] == 3, "steps that have begun count"
            await run.resume(budget=hf.Budget(steps=100))
            assert await run.result(timeout=60) == 45
            assert (await blocked_for(await app.start(nothing())))["executed"] == 0

            with pytest.raises(hf.RunFailed):
                await (await app.start(takes_back())).result(timeout=60)
            assert undone == ["1"], "what was done is taken back all the same"

            run = await app.start(between())
            assert (await blocked_for(run))["used"] == 3 * COST
            await run.resume(budget=hf.Budget(cost=1.0))
            assert await run.result(timeout=60) == 2
            assert (await run.info()).cost == 4 * COST, "what the agent used itself is not counted again by a replay"

    asyncio.run(story())


# families


def budget_of(row: Any) -> object:
    return row.summary.get("budget")


@hf.agent(budget=hf.Budget(cost=100.0))
async def inner(n: int) -> int:
    return sum([await think(number) for number in range(n)])


@hf.agent(budget=hf.Budget(cost=4 * COST))
async def outer(n: int) -> int:
    side = await hf.start(inner(n))
    value: int = await side.result()
    return value


def test_a_run_is_bound_by_the_budgets_of_all_that_it_came_of(tmp_path: Path) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[outer, inner]) as app:
            run = await app.start(outer(9), id="run")
            await until(run, "waiting")
            (child,) = [each for each in await app.runs() if each.id != "run"]
            inside = app.get(child.id)
            assert (await blocked_for(inside))["owner"] == "run"
            with pytest.raises(hf.UsageError, match="waits for the budget of run run, which it came of"):
                await inside.resume(budget=hf.Budget(cost=500))
            await run.resume(budget=hf.Budget(cost=50))
            assert await run.result(timeout=60) == 36

    asyncio.run(story())


@pytest.mark.corrupts
@pytest.mark.parametrize("sort", ["sqlite", "postgres"])
def test_a_damaged_row_is_not_counted_and_that_of_the_owner_lets_nobody_begin(
    sort: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if sort == "postgres" else f"sqlite:///{tmp_path}/a.db"

    async def damage(run_id: str, summary: str) -> None:
        said = f"SET summary = '{summary}' WHERE id = '{run_id}'"
        if sort == "sqlite":
            with closing(apsw.Connection(str(tmp_path / "a.db"))) as file:
                file.execute(f"UPDATE runs {said}")
        else:
            connection = await asyncpg.connect(url)
            await connection.execute(f"UPDATE holdfast.runs {said}")
            await connection.close()

    async def main() -> None:
        async with hf.connect(url) as app:
            for name, parent in {"top": None, "child": "top", "other": "top"}.items():
                summary = {"cost": 0.5, "steps": 1, "input_tokens": 2, BUDGET: {"cost": 2.0}}
                await app._store.create(new_run(name, parent_id=parent, summary=summary), owner=None)
            top, child, limit = RunId("top"), RunId("child"), hf.Budget(cost=2.0)
            assert await app._store.family_use(top, child) == FamilyUse(limit, Used(4, 1.0, 2), 2, 2)
            for damaged in ("{", "[1]", "7", '{"cost": "much"}'):
                await damage("other", damaged)
                assert await app._store.family_use(top, child) == FamilyUse(limit, Used(2, 0.5, 1), 2, 2), damaged
            await damage("top", "{")
            assert await app._store.family_use(top, child) == FamilyUse(hf.Budget(steps=0), Used(), 2, 2)

    asyncio.run(main())


class Scene(workers.Scene):
    def __init__(self, folder: Path, forkserver: ForkServer) -> None:
        settings = {"sweep_s": 0.1, "renew_s": 0.2}
        super().__init__(folder, forkserver, agents=agents.__name__, settings=settings)
        self.env[VARIABLE] = str(folder / "ledger.jsonl")


async def used_by(store: Store, ids: list[str]) -> float:
    """As the rows say; the notes of the records must say the same."""
    total = 0.0
    for run_id in ids:
        loaded = await store.load(RunId(run_id))
        assert loaded is not None
        row, records = loaded
        notes = [r for r in records if r.kind == Kind.noted and r.name == NoteKind.usage]
        told = sum(json.loads(r.payload or "{}")["cost"] for r in notes)
        assert row.summary.get("cost", 0) == told
        ended = [r for r in records if r.kind == Kind.done and not r.name.startswith("hf") and "thinker" not in r.name]
        assert row.summary.get("steps", 0) == len(ended), "each is counted once"
        total += told
    return total


CHILDREN, THOUGHTS = 10, 8


@pytest.mark.postgres
def test_children_on_two_workers_that_are_killed_share_a_budget(tmp_path: Path, forkserver: ForkServer) -> None:
    with Scene(tmp_path, forkserver) as scene:
        assert asyncio.run(share_a_budget(scene, kills=4, seed=7)) > 0, "nobody was killed in the middle of something"


@pytest.mark.prove
@pytest.mark.postgres
def test_after_fifty_kills_nothing_is_counted_twice(tmp_path: Path, forkserver: ForkServer) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    lost = 0
    for round_ in range(5):
        with Scene(tmp_path / str(round_), forkserver) as scene:
            lost += asyncio.run(share_a_budget(scene, kills=10, seed=seed + round_))
    assert lost > 10


async def share_a_budget(scene: Scene, *, kills: int, seed: int) -> int:
    """What they use together is the limit, and what was under way; after it was raised, all of them go on.

    How often a run was taken over from a worker that was lost.
    """
    async with scene.client() as app:
        run = await app.start(family(CHILDREN, THOUGHTS), id="run")
        await _stir(scene, lambda: _is_over(app, run), random.Random(seed), kills)
        found = await app.runs(limit=100)
        used = await used_by(app._store, [info.id for info in found])
        taken = sum(info.epoch for info in found)
        under_way = COST * (CHILDREN + taken)  # a body that is cut off has used something, and is executed again
        assert 4.0 <= used <= 4.0 + under_way, (used, taken)
        await run.resume(budget=hf.Budget(cost=1000.0))
        scene.worker()
        assert await run.result(timeout=60) == CHILDREN * THOUGHTS
        assert await used_by(app._store, [info.id for info in found]) >= CHILDREN * THOUGHTS * COST
        assert [each async for each in waiting_for_budget(app._store, RunId("run"))] == []
        return await _lost(app._store, [info.id for info in found])


async def _lost(store: Store, ids: list[str]) -> int:
    records = [record for run_id in ids for record in await store.records(RunId(run_id))]
    return sum(r.kind == Kind.claimed and bool(json.loads(r.payload or "{}").get("lost")) for r in records)


async def _is_over(app: hf.Holdfast, run: hf.Run[Any]) -> bool:
    infos = await app.runs(limit=100)
    left = [info for info in infos if info.status not in ("blocked", "waiting", "done")]
    return len(infos) > CHILDREN and not left


async def _stir(scene: Scene, is_over: Callable[[], Awaitable[bool]], random_: random.Random, kills: int) -> None:
    """Two workers, of which one is killed while it thinks, again and again; then two that live."""
    ledger = Ledger(scene.folder / "ledger.jsonl")
    both = [scene.worker(concurrency=6), scene.worker(concurrency=6)]

    def thinking() -> list[int]:
        pids = {line.pid for line in ledger.lines()}
        return [number for number, worker in enumerate(both) if worker.pid in pids]

    for _ in range(kills):

        async def thinks_or_is_over() -> bool:
            return bool(thinking()) or await is_over()

        await eventually(thinks_or_is_over)
        await asyncio.sleep(random_.random() * 0.02)
        for dies in random_.sample(thinking(), k=min(1, len(thinking()))):
            both[dies].kill()
            both[dies] = scene.worker(concurrency=6)
    await seen(is_over, bool, what=lambda _: "the family is not blocked")
    for worker in both:
        worker.kill()


@pytest.mark.postgres
def test_a_raise_that_dies_halfway_is_said_again_and_everybody_goes_on(tmp_path: Path, forkserver: ForkServer) -> None:
    """At `budget.raised` it is on disk, and the family has not heard."""

    async def story(scene: Scene) -> None:
        async with scene.client() as app:
            run = await app.start(family(2, 20), id="run")
            with scene.working():
                await seen(lambda: _is_stuck(app), bool, what=lambda _: "the family is not blocked")
            dies = forkserver.start(
                raise_budget, log=scene.log, fault="budget.raised:kill@1", url=scene.url, run_id="run"
            )
            assert dies.wait(60) == -9
            row = await app._store.run(RunId("run"))
            assert budget_of(row) == {"cost": 50.0}
            assert await _is_stuck(app), "nobody was told"
            assert forkserver.start(raise_budget, log=scene.log, url=scene.url, run_id="run").wait(60) == 0
            scene.worker()
            assert await run.result(timeout=60) == 40

    with Scene(tmp_path, forkserver) as scene:
        asyncio.run(story(scene))


async def _is_stuck(app: hf.Holdfast) -> bool:
    statuses = sorted(info.status.value for info in await app.runs())
    return statuses == ["blocked", "blocked", "waiting"]


def raise_budget(url: str, run_id: str) -> None:
    async def at_work() -> None:
        async with hf.connect(url) as app:
            await app.get(run_id).resume(budget=hf.Budget(cost=50.0))

    asyncio.run(at_work())


def test_a_live_run_hears_of_a_raise_by_mail_and_wakes_its_family(tmp_path: Path) -> None:
    """The parent executes, and its child is blocked: what wakes it is the parent, once it knows."""
    may_end = threading.Event()

    @hf.step
    async def stay() -> None:
        while not may_end.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    @hf.agent
    async def child(n: int) -> int:
        return sum([await think(number) for number in range(n)])

    @hf.agent(budget=hf.Budget(cost=4 * COST))
    async def parent(n: int) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(stay())
            value = group.create_task(child(n))
        return int(value.result())

    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[parent, child]) as app:
            run = await app.start(parent(9), id="run")
            infos = await seen(
                app.runs,
                lambda infos: any(info.status == "blocked" for info in infos),
                what=lambda infos: f"{infos}",
            )
            assert {info.status.value for info in infos} == {"running", "blocked"}
            await run.resume(budget=hf.Budget(cost=50))
            await seen(
                app.runs,
                lambda infos: any(info.status == "done" for info in infos),
                what=lambda infos: f"{infos}",
            )
            may_end.set()
            assert await run.result(timeout=60) == 36

    asyncio.run(story())


def test_a_child_that_is_blocked_while_the_budget_is_raised_looks_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had read the old limit, and was not blocked yet when those that were blocked were woken up."""

    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[outer, inner]) as app:
            store, raises = app._store, 0
            look = store.family_use

            async def look_too_early(owner: RunId, asks: RunId) -> FamilyUse:
                nonlocal raises
                found = await look(owner, asks)
                row = await store.run(asks)
                if owner != asks and not raises and row is not None and Used.of(row.summary).cost >= 4 * COST:
                    raises += 1
                    await change_budget(store, owner, hf.Budget(cost=50), by="ann", note="")  # and nobody is woken up
                    await seen(lambda: store.run(owner), has_more, what=lambda row: f"{row}")
                return found

            def has_more(row: Any) -> bool:
                return bool(row.summary["budget"] == {"cost": 50})

            monkeypatch.setattr(store, "family_use", look_too_early)
            run = await app.start(outer(9), id="run")
            assert await run.result(timeout=60) == 36
            assert raises == 1

    asyncio.run(story())
