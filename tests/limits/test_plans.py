"""The plan of a run, which it and people change at the same time."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.control.plans import change_plan
from holdfast.history.plans import changes_in, plan_of, todo_text
from holdfast.model import RunId
from holdfast.model.plans import PLAN, Op, Plan
from holdfast.testing import Life, assert_survives
from holdfast.testing.ledger import VARIABLE
from tests.forkserver import ForkServer
from tests.limits import agents
from tests.workers import Scene, asked, seen, until


def begun(*texts: str) -> Plan:
    plan = Plan()
    plan.apply({"op": "begin", "items": list(texts)})
    return plan


def shown(plan: Plan) -> list[str]:
    return [f"{item.id}{'x' if item.done else ''} {item.text}" for item in plan.items]


# operations


def test_an_operation_changes_what_it_names_and_nothing_else() -> None:
    plan = begun("one", "two", "three", "four")
    plan.apply({"op": "tick", "id": "2", "note": "well"})
    plan.apply({"op": "add", "text": "new", "after": "1"})
    plan.apply({"op": "reorder", "ids": ["4", "1"]})
    assert shown(plan) == ["4 four", "5 new", "2x two", "3 three", "1 one"]
    plan.apply({"op": "drop", "id": "3"})
    plan.apply({"op": "rewrite", "id": "1", "text": "uno"})
    plan.apply({"op": "untick", "id": "2"})
    plan.apply({"op": "add", "text": "top", "after": ""})
    assert shown(plan) == ["6 top", "4 four", "5 new", "2 two", "1 uno"]
    assert Plan(json.loads(json.dumps(plan.plain()))).plain() == plan.plain()


def test_one_on_an_item_that_is_gone_changes_nothing_and_says_so() -> None:
    plan = begun("one", "two")
    plan.apply({"op": "drop", "id": "1"})
    before = shown(plan)
    assert plan.apply({"op": "tick", "id": "1", "note": ""}) == "tick of item 1, which is gone"
    assert plan.apply({"op": "reorder", "ids": ["1", "2"]}) == "reorder of items 1, which are gone"
    assert plan.apply({"op": "of a later version"}) == "'of a later version' is not known here"
    plan.apply({"op": "add", "text": "behind it", "after": "1"})
    assert shown(plan) == [*before, "3 behind it"]


def test_items_that_people_add_have_ids_that_do_not_depend_on_when_they_are_taken() -> None:
    theirs: list[Op] = [
        {"op": "add", "text": "a", "after": "1", "as": "new-1"},
        {"op": "add", "text": "b", "after": "new-1", "as": "new-2"},
        {"op": "tick", "id": "new-2", "note": ""},
    ]
    early, late = begun("one", "two"), begun("one", "two")
    early.take(theirs, 7)
    early.apply({"op": "add", "text": "own", "after": None})
    late.apply({"op": "add", "text": "own", "after": None})
    late.take(theirs, 7)
    assert shown(early) == shown(late) == ["1 one", "e7.1 a", "e7.2x b", "2 two", "3 own"]


def edited(plan: Plan, edit: Callable[[list[str]], list[str]]) -> list[Op]:
    lines = todo_text("r", plan.items).splitlines()
    return changes_in(plan.items, "\n".join(edit(lines)))


OWN: list[Op] = [{"op": "tick", "id": "2", "note": "done"}, {"op": "add", "text": "own", "after": "1"}]
#: What a person does to the file: add, drop, move, rewrite, and tick.
EDITS: dict[str, Callable[[list[str]], list[str]]] = {
    "add": lambda lines: [*lines[:3], "- [ ] theirs", *lines[3:]],
    "drop": lambda lines: [line for line in lines if " 4: " not in line],
    "move": lambda lines: [*lines[:2], lines[4], lines[2], lines[3], *lines[5:]],
    "rewrite": lambda lines: [line.replace("3: three", "3: drei") for line in lines],
    "tick": lambda lines: [line.replace("[ ] 3", "[x] 3") for line in lines],
}


@pytest.mark.parametrize("pair", list(itertools.permutations(EDITS, 2)), ids="-".join)
def test_whatever_comes_first_nobodys_change_is_lost(pair: tuple[str, str]) -> None:
    """Two operations of the run and two edits, of what was shown before any of them, in all orders."""
    before = begun("one", "two", "three", "four")
    theirs = [edited(before, EDITS[name]) for name in pair]
    assert all(theirs)
    for order in itertools.permutations(range(4)):
        plan = begun("one", "two", "three", "four")
        missed = []
        for number in order:
            missed += [plan.apply(OWN[number])] if number < 2 else plan.take(theirs[number - 2], number)
        items = {item.id: item for item in plan.items}
        assert items["2"].done
        assert items["2"].note == "done"
        assert "own" in [item.text for item in plan.items]
        assert ("theirs" in [item.text for item in plan.items]) == ("add" in pair)
        assert ("4" not in items) == ("drop" in pair)
        assert items["3"].text == ("drei" if "rewrite" in pair else "three")
        assert items["3"].done == ("tick" in pair)
        if "move" in pair:
            ids = [item.id for item in plan.items]
            assert ids.index("3") < ids.index("1") < ids.index("2")
        assert not any(missed)


def test_only_what_differs_from_what_was_shown_is_sent() -> None:
    plan = begun("one", "two\x1b[31m", "three (of 4)")
    plan.apply({"op": "tick", "id": "1", "note": "3 failed"})
    assert edited(plan, lambda lines: lines) == []
    assert edited(plan, lambda lines: ["", "# other", *lines, "some words"]) == []
    assert edited(plan, lambda lines: [line.replace("1: one", "1: uno") for line in lines]) == [
        {"op": "rewrite", "id": "1", "text": "uno"}
    ]
    for wrong, said in (
        ("- [ ] 9: nine", "there is no item 9"),
        ("- [ ] 1: one", "item 1 is there twice"),
        ("- [ ]   ", "is an item without a text"),
    ):
        with pytest.raises(hf.UsageError, match=said):
            edited(plan, lambda lines, wrong=wrong: [*lines, wrong])  # type: ignore[misc]
    with pytest.raises(hf.UsageError, match="has no text any more"):
        edited(plan, lambda lines: [line.replace(": one (3 failed)", ":") for line in lines])


# runs


@hf.agent
async def works() -> list[str]:
    todo = await hf.plan(["one", "two"])
    again = await hf.plan(["other"])
    assert [item.text for item in again.items] == ["one", "two"]
    await todo.tick(1, "well")
    await hf.ask("go on?")
    assert [item.text for item in todo.items] == ["one", "two"], "what people did is there after the next call"
    await todo.refresh()
    await hf.ask("and now?")  # what was taken is not taken again
    seen = [todo.prompt()]
    while item := todo.next():
        await todo.tick(item)
    return [*seen, todo.prompt()]


@hf.agent
async def confused() -> str:
    todo = await hf.plan(["one"])
    for act in (
        lambda: todo.tick(0),
        lambda: todo.tick(1, 5),  # type: ignore[arg-type]
        lambda: todo.drop("e9.1"),
        lambda: todo.add(" "),
        lambda: todo.reorder("12"),
    ):
        with pytest.raises(hf.UsageError):
            await act()
    for wrong in ("one", [1], 5):
        with pytest.raises(hf.UsageError):
            await hf.plan(wrong)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(todo.add(f"item {n}"))
    return str(len(todo.remaining()))


def test_a_run_takes_what_people_have_changed_with_its_next_call(tmp_path: Path) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[works, confused]) as app:
            run = await app.start(works(), id="run")
            (question,) = await asked(run)
            await until(run, "waiting")
            store = app._store
            theirs: list[Op] = [
                {"op": "add", "text": "new", "after": "1", "as": "new-1"},
                {"op": "rewrite", "id": "2", "text": "zwei"},
            ]
            await change_plan(store, RunId("run"), theirs, by="ann", note="")
            await change_plan(store, RunId("run"), [{"op": "tick", "id": "9", "note": ""}], by="bob", note="")
            before = await plan_of(store, RunId("run"))
            assert before is not None
            assert (before.pending, before.missed) == (("ann", "bob"), ("tick of item 9, which is gone",))
            await question.answer(True)
            (question,) = await asked(run)
            await until(run, "waiting")
            await question.answer(True)
            assert await run.result(timeout=60) == [
                "- [x] 1: one (well)\n- [ ] e1.1: new\n- [ ] 2: zwei",
                "- [x] 1: one (well)\n- [x] e1.1: new\n- [x] 2: zwei",
            ]
            after = await plan_of(store, RunId("run"))
            assert after is not None
            assert ([item.done for item in after.items], after.pending) == ([True] * 3, ())
            with pytest.raises(hf.RunFinished):
                await change_plan(store, RunId("run"), [], by="bob", note="")
            assert await (await app.start(confused())).result(timeout=60) == "21"

    asyncio.run(story())


def test_what_a_person_did_before_a_call_is_part_of_it(tmp_path: Path) -> None:
    """However soon it is made: another process has sent it, and nobody has told this one yet."""

    @hf.step
    async def meddle() -> None:
        async with hf.connect(tmp_path / "runs.db") as other:
            await change_plan(other._store, RunId("run"), [{"op": "drop", "id": "1"}], by="ann", note="")

    @hf.agent
    async def hasty() -> int:
        todo = await hf.plan(["one", "two"])
        await meddle()
        await todo.tick(2)
        return len(todo.items)

    async def story() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[hasty]) as app:
            assert await (await app.start(hasty(), id="run")).result(timeout=60) == 1

    asyncio.run(story())


def told_once(life: Life) -> None:
    assert life.result == ["1 True", "2 False"]


def test_a_plan_is_the_same_whoever_dies_between_its_calls(postgres_url: str) -> None:
    points = ["plan.before_record@1", "plan.before_record@3", "plan.after_record@2", "guard.taken@1"]
    survival = assert_survives(agents.planned(), points=points, check=told_once)
    assert survival.kills >= len(points)
    survival = assert_survives(agents.planned(), points=points[2:3], url=postgres_url, check=told_once)
    assert survival.kills >= 1


@pytest.mark.prove
@pytest.mark.parametrize("sort", ["sqlite", "postgres"])
def test_a_plan_is_the_same_wherever_it_is_killed(sort: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if sort == "postgres" else None
    points = ["plan.*", "guard.*", "append.*"]
    print(assert_survives(agents.planned(), points=points, url=url, check=told_once, rounds=20))


@pytest.mark.parametrize("point", ["plan.before_record:stop@2", "guard.taken:stop@1"])
@pytest.mark.sqlite_alone("what a stopped worker may still do is told by epochs, which are the same on both stores")
def test_of_a_worker_that_stood_still_nothing_is_visible(point: str, tmp_path: Path, forkserver: ForkServer) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as app:
            stopped = scene.worker(fault=point, lease_s=1.0)
            run = await app.start(agents.planned(), id="run")
            await stopped.wait_stopped()
            scene.worker()
            assert await run.result(timeout=60) == ["1 True", "2 False"]
            records = await app._store.records(RunId("run"))
            stopped.go_on()
            await seen(app.workers, lambda found: sum(each.alive for each in found) == 2, what=str)
            assert await app._store.records(RunId("run")) == records
            assert sum(r.name == PLAN and r.kind == "done" for r in records) == 5

    settings = {"sweep_s": 0.1, "renew_s": 0.2}
    with Scene(tmp_path, forkserver, agents=agents.__name__, settings=settings) as scene:
        scene.env[VARIABLE] = str(tmp_path / "ledger.jsonl")
        asyncio.run(story(scene))
