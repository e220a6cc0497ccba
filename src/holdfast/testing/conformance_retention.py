"""What every store must do about runs that are removed, those that are taken in from elsewhere, and families."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import Any

from holdfast.model import (
    FINAL,
    Act,
    ActFilter,
    Kind,
    Landing,
    Mail,
    MailKind,
    QuestionState,
    Removal,
    RunFilter,
    RunId,
    RunRow,
    Status,
    Via,
    Whole,
    reasons,
)
from holdfast.model.budgets import BUDGET, Budget, FamilyUse, Used
from holdfast.store.contract import Store
from holdfast.store.runs import every_run, pages_of_runs
from holdfast.testing import conformance_files
from holdfast.testing.samples import (
    ALICE,
    BOB,
    START,
    Case,
    MakeStore,
    append,
    extend,
    left,
    mail_for,
    new_run,
    opened,
    parked,
    question_of,
    taken_over,
)

LATER = START + 1000
_MOST = 10_000


async def _ended(store: Store, run_id: str, status: Status = Status.done, **changes: Any) -> RunRow:
    """A run that lived and ended; `changes` are of its first row."""
    first = await store.create(new_run(run_id, **changes), owner=ALICE)
    last = extend(first, Kind.done, Kind.finished, status=status, release=True)
    await append(store, last)
    return dataclasses.replace(last.row, owner=None)


def _tombstone(row: RunRow) -> RunRow:
    return dataclasses.replace(
        row, epoch=row.epoch + 1, reason=reasons.Pruned(LATER), summary={}, digest=f"tombstone {row.id}"
    )


async def _listed(store: Store, before: int = LATER, agent: str = "agent") -> dict[str, bool]:
    return {each.row.id: each.is_free for each in await store.ended(agent, before=before, limit=100)}


async def _prune(store: Store, *rows: RunRow, before: int | None = LATER, most: int = _MOST) -> list[Removal]:
    return await store.prune([_tombstone(row) for row in rows], before=before, most=most, now=LATER)


# what can be removed


async def runs_that_have_ended_are_listed_by_agent_oldest_first(make: MakeStore) -> None:
    async with opened(make) as store:
        for number in (3, 1, 2):
            await _ended(store, f"r_{number}", created_at=START + number, updated_at=START + number)
        await _ended(store, "r_other", agent="other")
        await _ended(store, "r_new", updated_at=LATER)
        await store.create(new_run("r_live"), owner=ALICE)
        found = await store.ended("agent", before=LATER, limit=2)
        assert [each.row.id for each in found] == ["r_1", "r_2"]
        assert found[0].row == await store.run(RunId("r_1"))
        last = found[-1].row
        more = await store.ended("agent", before=LATER, limit=2, after=(last.created_at, last.id))
        assert [each.row.id for each in more] == ["r_3"]
        assert await store.ended_agents() == ["agent", "other"]
        assert await _listed(store, before=START + 1) == {}, "not over for long enough"


async def a_run_that_something_alive_may_need_is_not_free(make: MakeStore) -> None:
    async with opened(make) as store:
        grandparent = await store.create(new_run("r_0"), owner=ALICE)
        await _ended(store, "r_0.1", parent_id=grandparent.id)
        await _ended(store, "r_0.1.1", parent_id=RunId("r_0.1"))
        await _ended(store, "r_5")
        await store.create(new_run("r_5.1", parent_id=RunId("r_5")), owner=None)
        asking = await _ended(store, "r_6")
        await store.open_question(question_of(asking.id))
        await _ended(store, "r_7", parent_id=RunId("r_forgotten"))
        await _ended(store, "r_8", updated_at=LATER)
        await _ended(store, "r_8.1", parent_id=RunId("r_8"))
        assert await _listed(store) == {
            "r_0.1": False,
            "r_0.1.1": False,
            "r_5": False,
            "r_6": False,
            "r_7": True,
            "r_8.1": False,
        }
        asked = [await store.run(RunId(each)) for each in ("r_0.1", "r_0.1.1", "r_5", "r_6", "r_8.1")]
        assert await _prune(store, *[row for row in asked if row is not None]) == [Removal.kept] * 5
        assert len(await store.records(RunId("r_0.1.1"))) == 3
        end = extend(grandparent, Kind.finished, status=Status.failed, release=True)
        await append(store, end)
        await store.close_question(asking.id, "ask#1", QuestionState.withdrawn, START)
        assert await _listed(store) == {
            "r_0": True,
            "r_0.1": True,
            "r_0.1.1": True,
            "r_5": False,
            "r_6": True,
            "r_7": True,
            "r_8.1": False,
        }


# removing


async def a_tombstone_is_all_that_is_left_and_still_knows_its_mail(make: MakeStore) -> None:
    async with opened(make) as store:
        first = await store.create(new_run("r_1"), owner=ALICE)
        blob = ("d" * 32, b"x" * 1000)
        await append(store, dataclasses.replace(step := extend(first, Kind.done), blobs=(blob,)))
        await store.send(mail_for(first.id, '{"secret":1}', dedup="click-7"), wake=left)
        await store.send(mail_for(first.id, '{"secret":2}'), wake=left)
        await store.open_question(question_of(first.id, state=QuestionState.answered))
        await append(store, extend(step.row, Kind.finished, status=Status.done, release=True))
        row = await store.run(first.id)
        assert row is not None
        assert await _prune(store, row) == [Removal.gone]
        stored = await store.run(row.id)
        assert stored == dataclasses.replace(_tombstone(row), claims=0)
        assert stored.mail == 2
        assert await store.records(row.id) == []
        assert await store.blobs(row.id, [blob[0]]) == {}
        assert await store.questions(run_id=row.id, only_open=False) == []
        (mail,) = await store.mail(row.id, after=0)
        assert (mail.number, mail.kind, mail.key, mail.body, mail.digest, mail.dedup) == (
            1,
            MailKind.resolve,
            "pay#1",
            "",
            "",
            "click-7",
        )
        sent = await store.send(mail_for(row.id, '{"secret":1}', dedup="click-7"), wake=left)
        assert (sent.number, sent.is_new) == (1, False)
        again = await store.create(new_run("r_1"), owner=BOB)
        assert again == stored
        assert await _listed(store) == {}
        assert await store.ended_agents() == []
        assert [each.id for each in await store.runs(RunFilter())] == ["r_1"]


async def a_run_that_changed_meanwhile_is_kept(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        row = await _ended(store, "r_1", Status.failed)
        kept = await _ended(store, "r_2", Status.failed)
        claimed = taken_over(row)
        assert await other.claim(claimed, owner=BOB, expected_epoch=row.epoch, expected_owner=None)
        assert await _prune(store, row, kept) == [Removal.kept, Removal.gone]
        assert len(await store.records(row.id)) == 3
        late = taken_over(kept)
        assert not await other.claim(late, owner=BOB, expected_epoch=kept.epoch, expected_owner=None)
        behind = dataclasses.replace(await _ended(store, "r_3"), head_seq=1)
        assert await _prune(store, behind, before=None) == [Removal.kept]


async def much_is_removed_in_parts(make: MakeStore) -> None:
    async with opened(make) as store:
        first = await store.create(new_run("r_1"), owner=ALICE)
        blob = (hashlib.sha256(b"").hexdigest()[:32], bytes(10))
        steps = dataclasses.replace(extend(first, *[Kind.done] * 20), blobs=(blob,))
        await append(store, steps, extend(steps.row, Kind.finished, status=Status.done, release=True))
        row = await store.run(first.id)
        assert row is not None
        assert await _prune(store, row, most=15) == [Removal.partly]
        stored = await store.run(row.id)
        assert stored is not None
        assert stored.reason == reasons.Pruned(LATER)
        assert await _listed(store) == {"r_1": True}, "there is more to remove"
        assert await store.tombstones(before=LATER + 1, limit=10) == []
        assert await _prune(store, row, most=15) == [Removal.partly], "the blob does not fit"
        assert await _prune(store, row, most=60) == [Removal.gone]
        assert await _prune(store, row, most=60) == [Removal.gone], "again changes nothing"
        assert await store.run(row.id) == stored


async def tombstones_are_forgotten_and_nothing_else_is(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await _ended(store, f"r_{number}", agent=f"agent {number % 2}") for number in range(4)]
        await store.send(mail_for(rows[0].id, dedup="one"), wake=left)
        assert set(await _prune(store, *rows[:3])) == {Removal.gone}
        assert await store.tombstones(before=LATER, limit=10) == []
        found = await store.tombstones(before=LATER + 1, limit=2)
        assert [row.id for row in found] == ["r_0", "r_1"]
        found = await store.tombstones(before=LATER + 1, limit=2, after=found[-1].id)
        assert [row.id for row in found] == ["r_2"]
        assert [row.id for row in await store.tombstones(before=LATER + 1, limit=9, agent="agent 1")] == ["r_1"]
        assert await store.forget_runs([row.id for row in rows]) == 3
        assert [row.id for row in await store.runs(RunFilter())] == ["r_3"]
        assert await store.mail(rows[0].id, after=0) == []
        assert len(await store.records(rows[3].id)) == 3


async def pages_go_on_although_the_run_they_have_come_to_is_forgotten(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await _ended(store, f"r_{number}", created_at=START + number) for number in range(5)]
        found: list[RunId] = []
        async for page in pages_of_runs(store, RunFilter(status=FINAL), at_once=2):
            found += [row.id for row in page]
            if page[-1].id == rows[3].id:
                assert await _prune(store, rows[3]) == [Removal.gone]
                assert await store.forget_runs([rows[3].id]) == 1
        assert found == [row.id for row in reversed(rows)]
        assert [row.id async for row in every_run(store)] == [rows[number].id for number in (4, 2, 1, 0)]


# taking in


async def _whole(store: Store, run_id: RunId) -> Whole:
    found = await store.whole(run_id)
    assert found is not None
    return found


async def _make_whole(store: Store) -> Whole:
    first = await store.create(new_run("r_1", queue="q", queue_key="k", priority=3), owner=ALICE)
    data = b'"' + b"ab" * 300_000 + b'"'
    step = dataclasses.replace(extend(first, Kind.done, summary={"now": "“x”"}), blobs=(("a" * 32, data), ("b", b"1")))
    await append(store, step)
    await store.send(mail_for(first.id, '{"a":"ü"}', dedup="one"), wake=left)
    await store.send(mail_for(first.id), wake=left)
    assert await store.landed(Landing(first.id, "hf-1", 1)) is None
    await store.open_question(question_of(first.id))
    await store.open_question(
        question_of(first.id, "ask#2", state=QuestionState.declined, decided_at=START, decided_by="eva", note="no")
    )
    await append(store, parked(step.row, Kind.noted, wake_at=START + 7, reason=reasons.Waiting((), None, 0, False)))
    return await _whole(store, first.id)


async def a_whole_run_is_taken_in_as_it_is(make: MakeStore) -> None:
    async with opened(make) as store:
        whole = await _make_whole(store)
        assert len(whole.records) == whole.row.head_seq == 3
        assert {digest: len(data) for digest, data in whole.blobs.items()} == {"a" * 32: 600_002, "b": 1}
        assert ([m.number for m in whole.mail], len(whole.questions)) == ([1, 2], 2)
        assert [landed[:3] for landed in whole.landed] == [("hf-1", 1, None)]
        bare = Whole(row=whole.row, records=(), blobs={}, mail=(), questions=(), landed=whole.landed)
        assert await store.whole(whole.row.id, bare=True) == bare
        assert await store.whole(RunId("r_nobody"), bare=True) is None
        assert await store.whole(RunId("r_nobody")) is None
        await store.prune([_tombstone(whole.row)], before=None, most=_MOST, now=LATER)
        await store.forget_runs([whole.row.id])
        assert await store.run(whole.row.id) is None
        act = Act(LATER, "ana", Via.cli, "fork", "r0", None, "for a look")
        assert await store.put(whole, act=act) == whole.row
        assert await store.put(whole, act=act) == whole.row
        assert [each for _, each in await store.surveys.acts(ActFilter())] == [act], "with what was done, and once"
        assert await _whole(store, whole.row.id) == whole
        ready = await store.ready(agents=["agent"], queues=None, now=START + 7, limit=5)
        assert [row.id for row in ready] == ["r_1"]
        sent = await store.send(mail_for(whole.row.id, dedup="three"), wake=left)
        assert sent.number == 3
        assert [q.key for q in await store.questions(run_id=whole.row.id)] == ["ask#1"]


async def an_id_that_exists_is_not_replaced_unless_it_is_the_one_named(make: MakeStore) -> None:
    async with opened(make) as store:
        whole = await _make_whole(store)
        other = dataclasses.replace(whole, row=dataclasses.replace(whole.row, nonce="another", epoch=9))
        assert await store.put(other) == whole.row
        stale = dataclasses.replace(whole.row, epoch=7)
        assert await store.put(other, instead_of=stale) == whole.row
        assert await _whole(store, whole.row.id) == whole
        extra = Mail(whole.row.id, 3, MailKind.signal, "go", "{}", START, "d")
        newer = dataclasses.replace(
            whole,
            row=dataclasses.replace(whole.row, epoch=9, mail=3, digest="newer"),
            blobs={"b": b"1"},
            mail=(*whole.mail, extra),
            questions=whole.questions[:1],
        )
        assert await store.put(newer, instead_of=whole.row) == newer.row
        assert await _whole(store, whole.row.id) == newer
        owned = taken_over(newer.row)
        assert await store.claim(owned, owner=BOB, expected_epoch=9, expected_owner=None)
        held = await store.run(owned.id)
        assert held is not None
        assert await store.put(whole, instead_of=held) == held, "somebody has it"


async def the_largest_runs_are_named_with_what_they_take(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = {name: await store.create(new_run(name), owner=ALICE) for name in ("r_long", "r_large", "r_small")}
        await append(store, extend(rows["r_long"], *[Kind.done] * 30, payload="x" * 10))
        large = extend(rows["r_large"], Kind.done)
        await append(store, dataclasses.replace(large, blobs=(("b" * 32, os.urandom(5000)),)))
        found = await store.largest(2)
        assert [(run_id, records) for run_id, records, _ in found] == [("r_large", 2), ("r_long", 31)]
        assert found[0][2] > 5000 > found[1][2] > 300
        assert len(await store.largest(10)) == 3


async def pages_of_records_and_mail_fit_together(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run("r_1"), owner=ALICE)
        await append(store, extend(row, *[Kind.done] * 8))
        for number in range(5):
            await store.send(mail_for(row.id, key=f"k{number}"), wake=lambda _: None)
        for read, place in ((store.records, "seq"), (store.mail, "number")):
            whole, after = await read(row.id, after=0), 0
            pages: list[Any] = []
            while page := await read(row.id, after=after, limit=3):
                assert len(page) <= 3
                pages += page
                after = getattr(page[-1], place)
            assert pages == whole


async def the_schema_is_up_to_date_once_a_store_is_open(make: MakeStore) -> None:
    async with opened(make) as store:
        steps = await store.schema()
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
        assert all(step.applied_at is not None for step in steps)
        assert [step.name for step in steps][:2] == ["initial", "retention"]


async def a_family_has_used_what_its_rows_say(make: MakeStore) -> None:
    def use(owner: str, asks: str) -> Any:
        return store.family_use(RunId(owner), RunId(asks))

    async with opened(make) as store:
        used = {"input_tokens": 3, "output_tokens": 4, "cost": 0.25, "steps": 2, "effects": 1, "now": "“\u0001” ' %"}
        limits = {BUDGET: {"cost": 1.5, "steps": 9}}
        family = {"top": None, "child": "top", "other": "top", "grandchild": "child", "stranger": None}
        for name, parent in family.items():
            status = Status.done if name == "other" else Status.running
            summary = used | limits if name == "top" else {} if name == "child" else used
            await store.create(new_run(name, parent_id=parent, status=status, summary=summary), owner=None)
        limit = Budget(cost=1.5, steps=9)
        assert await use("top", "nobody") == FamilyUse(limit, Used(21, 0.75, 9), 4, 3)
        assert await use("top", "top") == FamilyUse(limit, Used(14, 0.5, 6), 3, 2)
        assert await use("top", "grandchild") == FamilyUse(limit, Used(14, 0.5, 6), 3, 2)
        assert await use("child", "child") == FamilyUse(None, Used(7, 0.25, 3), 1, 1)
        assert await use("grandchild", "grandchild") == FamilyUse(None, Used(), 0, 0)
        assert await use("nobody", "nobody") == FamilyUse(None, Used(), 0, 0)


CASES: tuple[Case, ...] = (
    *conformance_files.CASES,
    runs_that_have_ended_are_listed_by_agent_oldest_first,
    a_run_that_something_alive_may_need_is_not_free,
    a_tombstone_is_all_that_is_left_and_still_knows_its_mail,
    a_run_that_changed_meanwhile_is_kept,
    much_is_removed_in_parts,
    tombstones_are_forgotten_and_nothing_else_is,
    pages_go_on_although_the_run_they_have_come_to_is_forgotten,
    a_whole_run_is_taken_in_as_it_is,
    an_id_that_exists_is_not_replaced_unless_it_is_the_one_named,
    the_largest_runs_are_named_with_what_they_take,
    pages_of_records_and_mail_fit_together,
    the_schema_is_up_to_date_once_a_store_is_open,
    a_family_has_used_what_its_rows_say,
)
