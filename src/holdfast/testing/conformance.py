"""What every store must do, as plain async functions: the same ones run on SQLite and on PostgreSQL.

Each case gets a factory that makes an unopened store; all stores of one case share their data, as processes do.

    @pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.__name__)
    def test_my_store(case, tmp_path):
        asyncio.run(case(lambda: MyStore(tmp_path / "runs.db")))
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib

from holdfast.errors import HoldfastError, StoreError
from holdfast.model import (
    Append,
    Applied,
    Definition,
    Kind,
    Record,
    RunFilter,
    RunId,
    RunRow,
    Status,
    ThreadId,
    WorkerId,
    reasons,
)
from holdfast.store.contract import Store
from holdfast.testing import (
    conformance_landing,
    conformance_mail,
    conformance_retention,
    conformance_surveys,
    conformance_threads,
    conformance_waiting,
)
from holdfast.testing.samples import (
    ALICE,
    BOB,
    START,
    Case,
    MakeStore,
    alone,
    append,
    extend,
    left,
    mail_for,
    new_run,
    new_worker,
    opened,
    question_of,
    taken_over,
)


async def _stored(store: Store, run_id: RunId) -> tuple[RunRow, list[Record]]:
    loaded = await store.load(run_id)
    assert loaded is not None
    return loaded


async def a_created_run_is_stored_with_its_records(make: MakeStore) -> None:
    async with opened(make) as store:
        first = new_run(reason=reasons.Other({"said": ["because", 1]}), summary={"steps": 3, "now": "“quoted” \n"})
        row = await store.create(first, owner=ALICE)
        assert row == dataclasses.replace(first.row, owner=ALICE)
        assert await store.run(row.id) == row
        assert await store.load(row.id) == (row, list(first.records))
        assert await store.run(RunId("r_nobody")) is None
        assert await store.load(RunId("r_nobody")) is None
        assert await store.records(RunId("r_nobody")) == []


async def creating_an_id_that_exists_returns_what_is_stored(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run("r_1"), owner=ALICE)
        again = await store.create(new_run("r_1", agent="another"), owner=BOB)
        assert again == row
        assert len(await store.records(row.id)) == 1


async def what_was_acknowledged_is_there_after_reopening(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        step = extend(row, Kind.done, Kind.done)
        assert await append(store, step) == [Applied.committed]
    async with opened(make) as store:
        assert (await _stored(store, row.id))[0] == step.row
        assert await store.records(row.id, after=1) == list(step.records)


async def an_append_changes_the_row_and_only_what_it_may(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        changed = extend(row, Kind.done, summary={"steps": 1}, claims=9, mail=9, turn=2, reason=reasons.Other({"a": 1}))
        assert await append(store, changed) == [Applied.committed]
        stored = await store.run(row.id)
        assert stored == dataclasses.replace(changed.row, claims=0, mail=0)
        moved = extend(changed.row, Kind.done, status=Status.waiting, wake_at=START + 5, claims=9, mail=9)
        assert await append(store, moved) == [Applied.committed]
        assert await store.run(row.id) == dataclasses.replace(moved.row, claims=0, mail=0)


async def appends_of_one_run_are_applied_in_the_order_submitted(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        chain: list[Append] = []
        records: list[Record] = []
        for _ in range(20):
            chain.append(extend(row, Kind.started, Kind.done))
            row = chain[-1].row
            records += chain[-1].records
        assert await append(store, *chain) == [Applied.committed] * 20
        assert (await _stored(store, row.id)) == (row, (await store.records(row.id)))
        assert (await store.records(row.id, after=1)) == records


async def giving_a_run_up_clears_its_owner(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        final = extend(row, Kind.finished, status=Status.done, release=True)
        assert await append(store, final) == [Applied.committed]
        stored = await store.run(row.id)
        assert stored is not None
        assert (stored.owner, stored.status) == (None, Status.done)
        assert await append(store, final) == [Applied.committed], "submitted again, it is still the same"


async def an_append_without_records_can_change_the_status(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        parked = extend(row, status=Status.in_doubt, release=True, reason=reasons.Other({"effect": "pay#1"}))
        assert await append(store, parked, parked) == [Applied.committed] * 2
        assert await store.run(row.id) == dataclasses.replace(parked.row, owner=None)


# fencing


async def a_stale_epoch_is_fenced(make: MakeStore) -> None:
    async with opened(make) as zombie, opened(make) as store:
        row = await zombie.create(new_run(), owner=ALICE)
        assert await store.claim(taken_over(row), owner=BOB, expected_epoch=1, expected_owner=ALICE)
        late = extend(row, Kind.done)
        assert await append(zombie, late) == [Applied.fenced]
        assert await alone(zombie, late) in (None, Applied.fenced)
        assert len(await store.records(row.id)) == 1
        taken = dataclasses.replace(taken_over(row), owner=BOB)
        assert await append(store, extend(taken, Kind.done)) == [Applied.committed]


async def only_its_owner_appends_to_a_run(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        free = await store.create(new_run(), owner=None)
        for wrong in (
            extend(dataclasses.replace(row, owner=BOB), Kind.done),
            extend(dataclasses.replace(row, owner=None), Kind.done),
            extend(row, Kind.done, status=Status.waiting, owner=BOB),
            extend(free, Kind.done),
            extend(free, Kind.done, status=Status.waiting),
            extend(dataclasses.replace(free, owner=ALICE), Kind.done),
        ):
            assert await append(store, wrong) == [Applied.fenced]
            assert await alone(store, wrong) in (None, Applied.fenced)
        assert await store.run(row.id) == row
        assert await store.run(free.id) == free
        given_up = extend(row, Kind.done, status=Status.waiting, release=True)
        assert await append(store, given_up) == [Applied.committed]
        for late in (extend(given_up.row, Kind.done), extend(given_up.row, status=Status.done, digest="late")):
            assert await append(store, late) == [Applied.fenced]
        assert await store.run(row.id) == dataclasses.replace(given_up.row, owner=None)


async def an_append_to_an_unknown_run_is_fenced(make: MakeStore) -> None:
    async with opened(make) as store:
        assert await append(store, extend(new_run().row, Kind.done)) == [Applied.fenced]


async def a_stale_head_diverges(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        mine, other = extend(row, Kind.done), extend(row, Kind.failed)
        assert await append(store, mine) == [Applied.committed]
        assert await append(store, other) == [Applied.diverged]
        assert await _stored(store, row.id) == (mine.row, [*(await store.records(row.id))[:1], *mine.records])


async def an_append_submitted_again_is_committed_once(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        row = await store.create(new_run(), owner=ALICE)
        step = extend(row, Kind.done, Kind.done)
        assert await append(store, step, step) == [Applied.committed] * 2
        assert await append(other, step) == [Applied.committed]
        assert (await _stored(store, row.id))[1][1:] == list(step.records)


async def appends_submitted_again_together_are_committed_once(make: MakeStore) -> None:
    """A batch whose outcome nobody learned: what is stored is the head of the last one."""
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        chain = [extend(row, Kind.started, Kind.done)]
        for _ in range(3):
            chain.append(extend(chain[-1].row, Kind.done))
        assert await append(store, *chain) == [Applied.committed] * 4
        assert await append(store, *chain) == [Applied.committed] * 4
        stranger = extend(row, Kind.failed)
        assert await append(store, stranger) == [Applied.diverged]
        assert (await _stored(store, row.id))[0] == chain[-1].row
        assert len(await store.records(row.id)) == 6


async def a_lone_commit_is_as_good_as_any(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        for number in range(50):
            step = extend(
                row, *[Kind.done] * (number % 5 + 1), status=Status.running if number < 49 else Status.waiting
            )
            applied = await alone(store, step)
            assert applied in (None, Applied.committed)
            if applied is None:
                assert await append(store, step) == [Applied.committed]
            row = step.row
            async with opened(make) if number == 25 else contextlib.nullcontext(store) as reader:
                assert await reader.run(row.id) == row
        assert [record.seq for record in await store.records(row.id)] == list(range(1, row.head_seq + 1))


async def what_is_refused_takes_nothing_else_with_it(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await store.create(new_run(), owner=ALICE) for _ in range(5)]
        good = [extend(row, Kind.done) for row in rows]
        fenced = dataclasses.replace(good[1], row=dataclasses.replace(good[1].row, epoch=7))
        double = dataclasses.replace(good[2], records=good[2].records * 2)  # the same seq twice
        invalid = dataclasses.replace(good[3], records=(good[3].records[0]._replace(name="\ud800"),))
        results = await append(store, good[0], fenced, double, invalid, good[4])
        assert results[:2] == [Applied.committed, Applied.fenced]
        assert isinstance(results[2], StoreError)
        assert isinstance(results[3], HoldfastError)
        assert results[4] is Applied.committed
        assert [len(await store.records(row.id)) for row in rows] == [2, 1, 1, 1, 2]
        for index in (1, 2, 3):  # untouched, so the right append still fits
            assert await store.run(rows[index].id) == rows[index]
            assert await append(store, good[index]) == [Applied.committed]


async def many_runs_at_once_keep_apart(make: MakeStore) -> None:
    async with opened(make) as store:

        async def live(number: int) -> RunRow:
            row = await store.create(new_run(created_at=START + number), owner=ALICE)
            for _ in range(10):
                step = extend(row, Kind.started, Kind.done)
                assert await append(store, step) == [Applied.committed]
                row = step.row
            return row

        rows = await asyncio.gather(*map(live, range(40)))
        for row in rows:
            stored, records = await _stored(store, row.id)
            assert stored == row
            assert [record.seq for record in records] == list(range(1, 22))


# claims


async def of_two_claims_one_wins(make: MakeStore) -> None:
    async with opened(make) as one, opened(make) as two:
        row = await one.create(new_run(), owner=ALICE)
        won = await asyncio.gather(
            one.claim(taken_over(row), owner=BOB, expected_epoch=1, expected_owner=ALICE),
            two.claim(taken_over(row), owner=WorkerId("w_carol"), expected_epoch=1, expected_owner=ALICE),
        )
        assert sorted(won) == [False, True]
        stored = await one.run(row.id)
        assert stored is not None
        assert (stored.epoch, stored.owner) == (2, BOB if won[0] else "w_carol")


async def a_claim_needs_epoch_owner_and_head_as_expected(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        assert not await store.claim(taken_over(row), owner=BOB, expected_epoch=1, expected_owner=None)
        assert not await store.claim(taken_over(row), owner=BOB, expected_epoch=1, expected_owner=BOB)
        assert not await store.claim(taken_over(row, epoch=3), owner=BOB, expected_epoch=2, expected_owner=ALICE)
        assert not await store.claim(taken_over(row, epoch=1), owner=BOB, expected_epoch=1, expected_owner=ALICE)
        step = extend(row, Kind.done)
        assert await append(store, step) == [Applied.committed]
        assert not await store.claim(taken_over(row), owner=BOB, expected_epoch=1, expected_owner=ALICE)
        assert await store.run(row.id) == step.row
        assert await store.claim(taken_over(step.row), owner=BOB, expected_epoch=1, expected_owner=ALICE)
        assert not await store.claim(taken_over(new_run().row), owner=BOB, expected_epoch=1, expected_owner=None)


async def claims_are_counted_until_there_is_progress(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        for claims in (1, 2, 3):
            assert await store.claim(taken_over(row), owner=ALICE, expected_epoch=row.epoch, expected_owner=ALICE)
            row = dataclasses.replace(taken_over(row), claims=claims)
            assert await store.run(row.id) == row
            step = extend(row, Kind.claimed, Kind.noted)
            assert await append(store, step) == [Applied.committed]
            row = step.row
            assert await store.run(row.id) == row
        step = extend(row, Kind.noted, Kind.done)
        assert await append(store, step) == [Applied.committed]
        assert await store.run(row.id) == dataclasses.replace(step.row, claims=0)
        row = step.row
        for _ in range(3):  # nobody dies of a wait
            assert await store.claim(taken_over(row), owner=ALICE, expected_epoch=row.epoch, expected_owner=row.owner)
            step = extend(dataclasses.replace(taken_over(row), owner=ALICE), Kind.noted, release=True)
            assert await append(store, step) == [Applied.committed]
            row = dataclasses.replace(step.row, owner=None, claims=0)
            assert await store.run(row.id) == row


async def quarantine_takes_a_run_from_its_owner(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        for _ in range(2):
            await store.quarantine(row.id, "record 3 was altered")
            stored = await store.run(row.id)
            assert stored is not None
            assert (stored.status, stored.owner, stored.epoch) == (Status.quarantined, None, 2)
            assert stored.reason is not None
            assert "record 3 was altered" in str(stored.reason)
        assert await append(store, extend(row, Kind.done)) == [Applied.fenced]
        await store.quarantine(RunId("r_nobody"), "not there")


# reads


async def runs_are_listed_newest_first_and_filtered(make: MakeStore) -> None:
    async with opened(make) as store:
        rows: list[RunRow] = []
        for number in range(30):
            status = (Status.running, Status.done, Status.waiting)[number % 3]
            one = new_run(
                f"r_{number % 10}{number:03}",
                agent=f"agent {number % 2}",
                thread_id=ThreadId(f"t_{number % 5}"),
                parent_id=RunId("r_mother") if number % 6 == 0 else None,
                created_at=START + number // 2,
                status=status,
                queue=f"queue {number % 3}",
            )
            rows.append(await store.create(one, owner=ALICE if number % 4 == 0 else BOB if number % 4 == 1 else None))
        rows.sort(key=lambda row: (row.created_at, row.id), reverse=True)
        everything = RunFilter(limit=100)
        assert await store.runs(everything) == rows
        for which, fits in (
            ({"status": frozenset({Status.done})}, lambda row: row.status is Status.done),
            ({"status": frozenset({Status.running, Status.waiting})}, lambda row: row.status is not Status.done),
            ({"status": frozenset({Status.running, Status.done})}, lambda row: row.status is not Status.waiting),
            ({"status": frozenset()}, lambda row: False),
            ({"agent": "agent 1"}, lambda row: row.agent == "agent 1"),
            ({"thread_id": ThreadId("t_3")}, lambda row: row.thread_id == "t_3"),
            ({"parent_id": RunId("r_mother")}, lambda row: row.parent_id == "r_mother"),
            ({"queue": "queue 2"}, lambda row: row.queue == "queue 2"),
            ({"queue": "queue 1", "agent": "agent 1"}, lambda row: (row.queue, row.agent) == ("queue 1", "agent 1")),
            ({"since": START + 9}, lambda row: row.created_at >= START + 9),
            ({"id_prefix": "r_7"}, lambda row: row.id.startswith("r_7")),
            ({"id_prefix": "r_%"}, lambda row: False),
            ({"orphaned_from": frozenset({ALICE})}, lambda row: row.owner == ALICE),
            (
                {"orphaned_from": frozenset({ALICE, BOB}), "id_prefix": "r_4", "agent": "agent 0"},
                lambda row: row.owner is not None and row.id.startswith("r_4") and row.agent == "agent 0",
            ),
            (
                {"status": frozenset({Status.done}), "agent": "agent 0", "thread_id": ThreadId("t_4")},
                lambda row: row.status is Status.done and row.agent == "agent 0" and row.thread_id == "t_4",
            ),
        ):
            listed = await store.runs(dataclasses.replace(everything, **which))
            assert listed == [row for row in rows if fits(row)], which


async def a_listing_goes_on_where_it_was(make: MakeStore) -> None:
    async with opened(make) as store:
        for number in range(25):
            await store.create(new_run(f"r_{number:02}", created_at=START + number // 4), owner=None)
        seen: list[RunId] = []
        while page := await store.runs(RunFilter(limit=7, before_id=seen[-1] if seen else None)):
            seen += [row.id for row in page]
        assert seen == [f"r_{number:02}" for number in reversed(range(25))]


async def many_records_come_back_in_order(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        big = extend(row, *[Kind.done] * 2500)
        assert await append(store, big) == [Applied.committed]
        assert await store.records(row.id, after=1) == list(big.records)
        assert await store.records(row.id, after=2498) == list(big.records[2497:])
        assert await store.records(row.id, after=2501) == []


async def text_is_stored_as_it_is(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        texts = [
            "",
            "null",
            '{"a": "\\u0000 \\ud800"}',
            "it's 100% “fine”; -- \n\t\r\x1f\x7f",
            "𝕏 \U0010ffff",
            "[[(?)]] {x}",
            "9" * 40,
        ]
        step = extend(row, *[Kind.done] * len(texts), payload=None)
        records = tuple(
            record._replace(payload=text, args=text, name=text, key=text, args_digest=text)
            for record, text in zip(step.records, texts, strict=True)
        )
        assert await append(store, dataclasses.replace(step, records=records)) == [Applied.committed]
        assert await store.records(row.id, after=1) == list(records)


async def large_values_are_kept_apart_and_come_back(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        noise = b"".join(hashlib.sha256(str(i).encode()).digest() for i in range(40_000))  # does not compress
        values = {"d1": b'"' + b"x" * 3_000_000 + b'"', "d2": noise, "d3": b""}
        step = dataclasses.replace(extend(row, Kind.done), blobs=tuple(values.items()))
        assert await append(store, step) == [Applied.committed]
        again = dataclasses.replace(extend(step.row, Kind.done), blobs=(("d1", values["d1"]),))
        assert await append(store, again) == [Applied.committed]
        assert await store.blobs(row.id, ["d1", "d2", "d3", "d4"]) == values
        assert await store.blobs(row.id, ["d2"]) == {"d2": noise}
        assert await store.blobs(RunId("r_other"), ["d1"]) == {}


# workers


async def a_worker_lives_until_its_lease_ends(make: MakeStore) -> None:
    async with opened(make) as one, opened(make) as two:
        now = one.lease_clock_ms()
        worker = new_worker(ALICE, lease_until_ms=now + 60_000)
        await one.add_worker(worker)
        assert await two.workers() == [worker]
        assert ALICE not in await two.dead_workers()
        assert ALICE not in await one.dead_workers()
        assert await one.renew_worker(ALICE, now - 1)
        assert (await two.dead_workers()).keys() == {ALICE}
        assert await one.renew_worker(ALICE, now + 60_000)
        assert not await two.dead_workers()
        await one.remove_worker(ALICE)
        assert await two.workers() == []
        assert not await one.renew_worker(ALICE, now + 60_000)


async def a_worker_whose_process_let_go_is_dead_at_once(make: MakeStore) -> None:
    async with opened(make) as store:
        gone = make()
        await gone.open()
        await gone.add_worker(new_worker(ALICE, lease_until_ms=store.lease_clock_ms() + 60_000))
        assert not await store.dead_workers()
        await gone.close()
        assert (await store.dead_workers()).keys() == {ALICE}
        await store.remove_worker(ALICE)
        assert not await store.dead_workers()


async def an_owner_without_a_row_is_dead_while_its_run_is_open(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        assert (await store.dead_workers()).keys() == {ALICE}
        assert [orphan.id for orphan in await store.runs(RunFilter(orphaned_from=frozenset({ALICE})))] == [row.id]
        assert await append(store, extend(row, Kind.finished, status=Status.done)) == [Applied.committed]
        assert not await store.dead_workers()


# the store itself


async def a_closed_store_says_so(make: MakeStore) -> None:
    store = make()
    await store.open()
    await store.close()
    await store.close()
    for use in (store.run(RunId("r_1")), store.create(new_run(), owner=None)):
        try:
            await use
        except StoreError:
            continue
        raise AssertionError("a closed store was used")


async def a_store_opened_to_read_does_not_write(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        async with opened(make, read_only=True) as reader:
            assert await reader.run(row.id) == row
            step = extend(row, Kind.done)
            assert await append(store, step) == [Applied.committed]
            assert await reader.load(row.id) == await store.load(row.id)
            try:
                await reader.create(new_run(), owner=None)
            except StoreError:
                pass
            else:
                raise AssertionError("a store opened read-only was written to")
    async with opened(make, read_only=True) as reader:
        assert await reader.run(row.id) == step.row


async def a_sound_store_has_no_problems(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=None)
        await store.send(mail_for(row.id), wake=left)
        await store.open_question(question_of(row.id))
        await store.define([Definition("agent", "a", "{}", 1)])
        assert await store.check() == []
        assert store.trouble is None
        assert store.durability == "full"
        assert (await store.statistics())["runs"] == 1


CASES: tuple[Case, ...] = (
    a_created_run_is_stored_with_its_records,
    creating_an_id_that_exists_returns_what_is_stored,
    what_was_acknowledged_is_there_after_reopening,
    an_append_changes_the_row_and_only_what_it_may,
    appends_of_one_run_are_applied_in_the_order_submitted,
    giving_a_run_up_clears_its_owner,
    an_append_without_records_can_change_the_status,
    a_stale_epoch_is_fenced,
    only_its_owner_appends_to_a_run,
    an_append_to_an_unknown_run_is_fenced,
    a_stale_head_diverges,
    an_append_submitted_again_is_committed_once,
    appends_submitted_again_together_are_committed_once,
    a_lone_commit_is_as_good_as_any,
    what_is_refused_takes_nothing_else_with_it,
    many_runs_at_once_keep_apart,
    of_two_claims_one_wins,
    a_claim_needs_epoch_owner_and_head_as_expected,
    claims_are_counted_until_there_is_progress,
    quarantine_takes_a_run_from_its_owner,
    runs_are_listed_newest_first_and_filtered,
    a_listing_goes_on_where_it_was,
    many_records_come_back_in_order,
    text_is_stored_as_it_is,
    large_values_are_kept_apart_and_come_back,
    *conformance_waiting.CASES,
    *conformance_mail.CASES,
    *conformance_landing.CASES,
    *conformance_retention.CASES,
    *conformance_surveys.CASES,
    *conformance_threads.CASES,
    a_worker_lives_until_its_lease_ends,
    a_worker_whose_process_let_go_is_dead_at_once,
    an_owner_without_a_row_is_dead_while_its_run_is_open,
    a_closed_store_says_so,
    a_store_opened_to_read_does_not_write,
    a_sound_store_has_no_problems,
)
