"""What every store must tell of many runs at once."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from holdfast.model import Act, ActFilter, Definition, Kind, QuestionState, RunFilter, RunId, Status, Via
from holdfast.store.contract import Store
from holdfast.store.surveys import FEW, counts
from holdfast.testing.samples import (
    ALICE,
    BOB,
    START,
    Case,
    MakeStore,
    amended,
    append,
    extend,
    left,
    mail_for,
    new_run,
    new_worker,
    opened,
    question_of,
    taken_over,
    woken,
)

_SECOND = 1_000_000


async def _fill(store: Store) -> None:
    """A run each second: of two agents in two queues, one in five has failed, one in ten is running."""
    await asyncio.gather(
        *(
            store.create(
                new_run(
                    f"r_{number:03d}",
                    agent=f"agent{number % 2}",
                    queue="mail" if number < 20 else "default",
                    created_at=START + number * _SECOND,
                    status=Status.running if number % 10 == 9 else Status.failed if number % 5 == 0 else Status.done,
                ),
                owner=ALICE if number % 10 == 9 else None,
            )
            for number in range(40)
        )
    )


async def runs_are_found_by_their_tags(make: MakeStore) -> None:
    async def found(*tags: tuple[str, str], **more: Any) -> list[str]:
        return [row.id for row in await store.runs(RunFilter(tags=tags, limit=100, **more))]

    async with opened(make) as store:
        new = [
            new_run(
                f"r_{number}",
                created_at=START + number // 2,
                agent=f"agent {number % 2}",
                summary={"steps": 0, "tags": {"n": str(number), "odd": str(number % 2), "ü=“": "' \\ %"}},
            )
            for number in range(8)
        ]
        rows = [await store.create(each, owner=None) for each in new[:7]]
        every = [f"r_{number}" for number in reversed(range(7))]
        assert await found(("ü=“", "' \\ %")) == every
        assert await found(("odd", "1")) == ["r_5", "r_3", "r_1"]
        assert await found(("odd", "1"), ("n", "3")) == await found(("n", "3"), ("odd", "1")) == ["r_3"]
        assert await found(("odd", "1"), ("n", "4")) == await found(("odd", "2")) == await found(("none", "1")) == []
        assert await found(("odd", "0"), before_id=RunId("r_4")) == ["r_2", "r_0"]
        assert await found(("odd", "0"), since=START + 2) == ["r_6", "r_4"]
        assert await found(("odd", "1"), agent="agent 0") == []
        assert await found(("odd", "1"), id_prefix="r_3", status=frozenset({Status.running})) == ["r_3"]
        assert await found(("odd", "1"), status=frozenset({Status.done})) == []
        other = dataclasses.replace(new[7].row, id=rows[0].id)
        assert await store.create(dataclasses.replace(new[7], row=other), owner=None) == rows[0]
        assert await found(("n", "7")) == []
        whole = await store.whole(rows[0].id)
        assert whole is not None
        moved = dataclasses.replace(rows[0], epoch=2, summary={})
        await store.prune([moved], before=None, most=1000, now=START)
        assert await found(("odd", "0")) == ["r_6", "r_4", "r_2"]
        await store.put(whole, instead_of=moved)
        assert await found(("odd", "0")) == ["r_6", "r_4", "r_2", "r_0"]


async def runs_are_counted_by_status_up_to_a_cap(make: MakeStore) -> None:
    async with opened(make) as store:
        await _fill(store)

        async def count(which: RunFilter, cap: int = 100) -> dict[Status, int]:
            return (await counts(store.surveys, which, cap=cap))[0]

        assert await count(RunFilter()) == {Status.failed: 8, Status.done: 28, Status.running: 4}
        assert await count(RunFilter(), cap=5) == {Status.failed: 6, Status.done: 6, Status.running: 4}
        assert await count(RunFilter(status=frozenset({Status.failed, Status.paused}))) == {Status.failed: 8}
        assert await count(RunFilter(agent="agent1")) == {Status.failed: 4, Status.done: 12, Status.running: 4}
        assert await count(RunFilter(queue="mail")) == {Status.failed: 4, Status.done: 14, Status.running: 2}
        assert await count(RunFilter(queue="mail", agent="agent0")) == {Status.failed: 2, Status.done: 8}
        assert await count(RunFilter(agent="nobody")) == {}
        late = RunFilter(since=START + 30 * _SECOND, until=START + 35 * _SECOND)
        assert await count(late) == {Status.failed: 1, Status.done: 4}
        assert await counts(store.surveys, RunFilter(id_prefix="r_00"), cap=10**6) == (
            {Status.failed: 2, Status.done: 7, Status.running: 1},
            FEW,
        )


async def runs_are_binned_by_when_they_were_created(make: MakeStore) -> None:
    async with opened(make) as store:
        await _fill(store)
        span = {"since": START, "until": START + 40 * _SECOND}
        for which in (RunFilter(**span), RunFilter(**span, id_prefix="r_")):  # type: ignore[arg-type]
            bins = await store.surveys.histogram(which, width=10 * _SECOND, most=100)
            assert bins == {
                Status.failed: {0: 2, 1: 2, 2: 2, 3: 2},
                Status.done: {0: 7, 1: 7, 2: 7, 3: 7},
                Status.running: {0: 1, 1: 1, 2: 1, 3: 1},
            }
        newest = await store.surveys.histogram(RunFilter(**span), width=10 * _SECOND, most=3)  # type: ignore[arg-type]
        assert newest[Status.done] == {3: 3}, "of each status the newest"


async def agents_are_found_whatever_their_runs_do(make: MakeStore) -> None:
    async with opened(make) as store:
        assert await store.surveys.agents() == []
        await store.create(new_run("r_1", agent="b", status=Status.done), owner=None)
        await store.create(new_run("r_2", agent="b", status=Status.failed), owner=None)
        await store.create(new_run("r_3", agent="c"), owner=ALICE)
        await store.create(new_run("r_4", agent="a", status=Status.waiting), owner=None)
        assert await store.surveys.agents() == ["a", "b", "c"]
        await store.create(new_run("r_5", agent="c"), owner=BOB)
        await store.create(new_run("r_6", agent="c"), owner=BOB)
        assert await store.surveys.owned_counts() == {ALICE: 1, BOB: 2}


async def questions_come_in_pages(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        for number in range(6):
            await store.open_question(
                question_of(row.id, f"ask#{number}", id=f"q_{number}", asked_at=START + number // 2)
            )
        await store.close_question(row.id, "ask#3", QuestionState.expired, START + 9)

        async def ids(*, only_open: bool, after: tuple[int, str] | None = None) -> list[str]:
            return [each.id for each in await store.surveys.questions(only_open=only_open, limit=3, after=after)]

        assert await ids(only_open=True) == ["q_0", "q_1", "q_2"]
        assert await ids(only_open=True, after=(START + 1, "q_2")) == ["q_4", "q_5"]
        assert await ids(only_open=False) == ["q_5", "q_4", "q_3"]
        assert await ids(only_open=False, after=(START + 1, "q_3")) == ["q_2", "q_1", "q_0"]


async def an_outline_has_all_records_without_what_is_bulky(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        step = extend(row, Kind.started, Kind.done, Kind.failed, payload='{"error":"x"}')
        await append(store, step)
        found = await store.surveys.outline(row.id)
        assert found is not None
        assert found.row == step.row
        stored = await store.records(row.id)
        assert [(each.seq, each.kind, each.key, each.at, each.took) for each in found.records] == [
            (each.seq, each.kind, each.key, each.at, each.took) for each in stored
        ]
        assert [each.payload for each in found.records[1:]] == ['{"error":"x"}', None, '{"error":"x"}']
        tail = await store.surveys.outline(row.id, after=2, limit=1)
        assert tail is not None
        assert [each.seq for each in tail.records] == [3]
        assert await store.surveys.record(row.id, 3) == stored[2]
        assert await store.surveys.record(row.id, 9) is None
        assert await store.surveys.outline(RunId("r_nobody")) is None


def _act(what: str, at: int, *, by: str = "ana", run_id: RunId | None = None, note: str = "") -> Act:
    return Act(START + at, by, Via.api, what, str(run_id or "it"), run_id, note)


async def acts_are_kept_with_what_they_change(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run("r_1"), owner=None, act=_act("start", 1, run_id=RunId("r_1")))
        assert await store.create(new_run("r_1"), owner=None, act=_act("start", 2, run_id=row.id)) == row
        mail = mail_for(row.id, dedup="once")
        for _ in range(2):
            await store.send(mail, wake=left, act=_act("signal", 3, by="bob", run_id=row.id, note="“why”"))
        stored = await store.run(row.id)
        assert stored is not None
        change = amended(stored, Kind.noted)
        assert await store.amend(change, act=_act("pause", 4, run_id=row.id))
        assert not await store.amend(dataclasses.replace(change, base_seq=9), act=_act("pause", 5, run_id=row.id))
        await store.define([Definition("queue", "mail", "{}", 1)], act=_act("queue pause", 6))
        await store.define([Definition("queue", "mail", "{}", 1)], act=_act("queue pause", 7))
        await store.forget("queue", ["mail"], act=_act("queue rm", 8))
        await store.forget("queue", ["mail"], act=_act("queue rm", 9))
        await store.add_act(_act("prune", 10))

        async def told(**which: Any) -> list[str]:
            return [act.what for _, act in await store.surveys.acts(ActFilter(**which))]

        every = ["prune", "queue rm", "queue pause", "pause", "signal", "start"]
        assert await told() == every
        assert await told(run_id=row.id) == ["pause", "signal", "start"]
        assert await told(run_id=row.id, by="bob") == await told(by="bob") == ["signal"]
        assert await told(since=START + 6) == every[:3]
        (_, first), (number, second) = await store.surveys.acts(ActFilter(limit=2))
        assert first == _act("prune", 10)
        assert await told(before=(second.at, number), limit=2) == every[2:4]
        ((_, only),) = await store.surveys.acts(ActFilter(by="bob"))
        assert (only.note, only.via, only.run_id) == ("“why”", Via.api, row.id)


async def what_moves_is_told_and_what_only_goes_on_is_not(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        start = await store.surveys.moves(None)
        assert (start.rows, start.is_known) == ([], True)
        cursor = start.cursor

        async def moved() -> list[str]:
            nonlocal cursor
            found = await other.surveys.moves(cursor)
            assert found.is_known
            cursor = found.cursor
            return [row.id for row in found.rows]

        async def quiet() -> None:
            for _ in range(2):  # some come twice, where transactions are not numbered in the order of commits
                await moved()
            assert await moved() == []

        row = await store.create(new_run("r_1"), owner=ALICE)
        assert await moved() == ["r_1"]
        await quiet()
        step = extend(row, Kind.done)
        await append(store, step)
        assert await moved() == [], "a plain append moves nothing"
        assert [each.id for each in await other.surveys.owned(limit=9)] == ["r_1"]
        parked = extend(step.row, Kind.done, status=Status.waiting, release=True)
        await append(store, parked)
        assert await moved() == ["r_1"]
        await quiet()
        await store.send(mail_for(row.id), wake=left)
        assert await moved() == []
        await store.send(mail_for(row.id), wake=woken)
        assert await moved() == ["r_1"], "mail woke it"
        stored = await store.run(row.id)
        assert stored is not None
        await quiet()
        claimed = taken_over(stored)
        assert await store.claim(claimed, owner=BOB, expected_epoch=stored.epoch, expected_owner=None)
        assert await moved() == ["r_1"]
        await quiet()
        await store.quarantine(row.id, "damaged")
        assert await moved() == ["r_1"]
        await quiet()
        await asyncio.gather(*(store.create(new_run(f"r_{number}"), owner=None) for number in range(2, 9)))
        assert sorted(set(await moved())) == [f"r_{number}" for number in range(2, 9)]
        assert not (await other.surveys.moves("nonsense")).is_known
        assert not (await other.surveys.moves(cursor[:-1] + "999999999")).is_known


async def a_worker_tells_of_itself(make: MakeStore) -> None:
    async with opened(make) as store:
        worker = new_worker(ALICE, lease_until_ms=store.lease_clock_ms() + 60_000)
        await store.add_worker(dataclasses.replace(worker, told='{"agents":["ü"]}'))
        assert [each.body for each in await store.definitions("worker")] == ['{"agents":["ü"]}']
        await store.remove_worker(ALICE)
        assert await store.definitions("worker") == []


CASES: tuple[Case, ...] = (
    what_moves_is_told_and_what_only_goes_on_is_not,
    a_worker_tells_of_itself,
    acts_are_kept_with_what_they_change,
    runs_are_found_by_their_tags,
    runs_are_counted_by_status_up_to_a_cap,
    runs_are_binned_by_when_they_were_created,
    agents_are_found_whatever_their_runs_do,
    questions_come_in_pages,
    an_outline_has_all_records_without_what_is_bulky,
)
