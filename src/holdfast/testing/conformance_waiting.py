"""What every store must do with runs that wait: parking, claiming in batches, loading in batches, amending."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

from holdfast.errors import RunFinished
from holdfast.model import (
    Applied,
    Claim,
    Kind,
    Limit,
    Loaded,
    MailKind,
    Outgoing,
    RunId,
    RunRow,
    Sent,
    Status,
    WorkerId,
    reasons,
)
from holdfast.store.contract import Store
from holdfast.store.lines import place
from holdfast.testing import conformance_turns
from holdfast.testing.samples import (
    ALICE,
    BOB,
    START,
    Case,
    MakeStore,
    alone,
    amended,
    append,
    extend,
    left,
    mail_for,
    new_run,
    opened,
    parked,
    taken_over,
    woken,
)


async def _queued(store: Store, run_id: str | None = None, **changes: object) -> RunRow:
    state: dict[str, object] = {"status": Status.queued, "wake_at": START}
    return await store.create(new_run(run_id, **state | changes), owner=None)


def _claim(row: RunRow) -> Claim:
    return Claim(taken_over(row, wake_at=None), expected_epoch=row.epoch, expected_owner=row.owner)


async def _ready(store: Store, **changes: object) -> list[str]:
    which: dict[str, object] = {"agents": ["agent"], "queues": None, "now": START, "limit": 100}
    return [row.id for row in await store.ready(**which | changes)]  # type: ignore[arg-type]


# parking


async def a_parked_run_is_unowned_and_keeps_its_time(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(queue="mail", queue_key="k", priority=3), owner=ALICE)
        step = parked(row, Kind.started, status=Status.sleeping, wake_at=START + 7, mail=0)
        assert await append(store, step) == [Applied.committed]
        assert await store.run(row.id) == dataclasses.replace(step.row, owner=None)
        assert await store.next_wake() == START + 7


async def unread_mail_keeps_a_run_from_parking(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await store.create(new_run(), owner=ALICE) for _ in range(5)]
        assert await store.send(mail_for(rows[2].id), wake=woken) == Sent(1, is_new=True)
        steps = [parked(row, Kind.noted, mail=0) for row in rows]
        expected = [Applied.unread if index == 2 else Applied.committed for index in range(5)]
        assert await append(store, *steps) == expected
        assert await alone(store, steps[2]) in (None, Applied.unread)
        assert await store.load(rows[2].id) == (dataclasses.replace(rows[2], mail=1), await store.records(rows[2].id))
        assert len(await store.records(rows[2].id)) == 1
        seen = dataclasses.replace(steps[2], mail=1)
        assert await append(store, seen) == [Applied.committed]
        assert (await _owners(store, *rows)) == [None] * 5


async def other_reasons_come_before_unread_mail(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        await store.send(mail_for(row.id), wake=left)
        foreign = parked(dataclasses.replace(row, owner=BOB), mail=0, digest="other")
        assert await append(store, foreign) == [Applied.fenced]
        step = extend(row, Kind.done)
        assert await append(store, step) == [Applied.committed]
        assert await append(store, parked(row, Kind.failed, mail=0)) == [Applied.diverged]
        assert await append(store, parked(step.row, mail=0, digest="other")) == [Applied.unread]


async def _owners(store: Store, *rows: RunRow) -> list[WorkerId | None]:
    return [stored.owner for row in rows if (stored := await store.run(row.id)) is not None]


async def between_parking_and_mail_no_wake_up_is_lost(make: MakeStore) -> None:
    """Whichever comes first: the run is claimable, or the park is refused."""
    async with opened(make) as worker, opened(make) as sender:
        outcomes: Counter[Applied | BaseException] = Counter()
        for number in range(60):
            row = await worker.create(new_run(), owner=ALICE)
            parking = append(worker, parked(row, Kind.started, mail=0))
            sending = sender.send(mail_for(row.id), wake=woken)
            if number % 3 == 0:
                results, _ = await asyncio.gather(parking, sending)
            elif number % 3 == 1:
                results = await parking
                await sending
            else:
                await sending
                results = await parking
            stored = await worker.run(row.id)
            assert stored is not None
            assert stored.mail == 1
            if results == [Applied.unread]:
                assert (stored.owner, stored.status) == (ALICE, Status.running)
            else:
                assert results == [Applied.committed]
                assert (stored.owner, stored.status, stored.wake_at) == (None, Status.queued, START)
            outcomes[results[0]] += 1
        assert outcomes.keys() == {Applied.unread, Applied.committed}


# telling


async def what_is_told_comes_with_the_append_or_not_at_all(make: MakeStore) -> None:
    async with opened(make) as store:
        mother = await store.create(new_run(), owner=ALICE)
        assert await append(store, parked(mother, Kind.started)) == [Applied.committed]
        children = [await store.create(new_run(parent_id=mother.id), owner=ALICE) for _ in range(4)]
        ends = [
            dataclasses.replace(
                extend(child, Kind.finished, status=Status.done, release=True),
                outgoing=Outgoing(mail_for(mother.id, kind=MailKind.child, key=child.id), woken),
            )
            for child in children
        ]
        ends[2] = dataclasses.replace(ends[2], row=dataclasses.replace(ends[2].row, epoch=9))
        assert await append(store, *ends) == [Applied.committed] * 2 + [Applied.fenced, Applied.committed]
        inbox = await store.mail(mother.id, after=0)
        assert sorted(mail.key for mail in inbox) == sorted(children[i].id for i in (0, 1, 3))
        stored = await store.run(mother.id)
        assert stored is not None
        assert (stored.status, stored.wake_at, stored.mail) == (Status.queued, START, 3)
        assert await append(store, ends[0]) == [Applied.committed], "submitted again"
        assert len(await store.mail(mother.id, after=0)) == 3


async def an_append_stands_though_nobody_can_be_told(make: MakeStore) -> None:
    async with opened(make) as store:
        finished = await store.create(new_run(status=Status.done), owner=None)

        def refuse(row: RunRow) -> RunRow | None:
            raise RunFinished(f"{row.id} has ended", status=row.status)

        for mail in (mail_for(RunId("r_nobody")), mail_for(finished.id)):
            row = await store.create(new_run(), owner=ALICE)
            end = extend(row, Kind.finished, status=Status.done, release=True)
            end = dataclasses.replace(end, outgoing=Outgoing(mail, refuse))
            assert await append(store, end) == [Applied.committed]
            assert await store.run(row.id) == dataclasses.replace(end.row, owner=None)
        assert await store.run(finished.id) == finished
        assert await store.mail(finished.id, after=0) == []


# claims


async def many_runs_are_claimed_at_once(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await _queued(store) for _ in range(30)]
        taken = await store.create(new_run(), owner=BOB)
        claims = [_claim(row) for row in rows]
        claims[3] = dataclasses.replace(claims[3], expected_epoch=7)
        claims[4] = dataclasses.replace(claims[4], expected_owner=BOB)
        claims[5] = dataclasses.replace(claims[5], row=dataclasses.replace(claims[5].row, head_seq=9))
        claims[6] = dataclasses.replace(claims[6], row=dataclasses.replace(claims[6].row, epoch=1))
        claims.append(_claim(new_run().row))
        claims.append(_claim(taken))
        claims.append(claims[0])
        expected = [index not in (3, 4, 5, 6, 30, 32) for index in range(33)]
        assert await store.claim_many(claims, owner=ALICE) == expected
        assert await store.claim_many(claims[:3], owner=BOB) == [False] * 3
        assert await store.claim_many([], owner=ALICE) == []
        for index, row in enumerate(rows):
            won = dataclasses.replace(claims[index].row, owner=ALICE, claims=1)
            assert await store.run(row.id) == (won if expected[index] else row)
        assert await _owners(store, taken) == [ALICE]


async def of_a_run_claimed_twice_the_first_claim_that_fits_wins(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await _queued(store)
        stale = dataclasses.replace(_claim(row), expected_epoch=5)
        assert await store.claim_many([stale, _claim(row), _claim(row)], owner=ALICE) == [False, True, False]


async def limits_hold_for_queues_and_keys(make: MakeStore) -> None:
    async with opened(make) as store:
        await store.create(new_run(queue="a", queue_key="k1"), owner=BOB)
        rows = [await _queued(store, queue="a", queue_key=f"k{number % 3}") for number in range(9)]
        free = [await _queued(store, queue="b", queue_key="k1") for _ in range(3)]
        limits = {"a": Limit(concurrency=5, per_key=2), "other": Limit(concurrency=0)}
        stale = dataclasses.replace(_claim(rows[0]), expected_epoch=9)  # takes no room
        claims = [stale, *map(_claim, rows), *map(_claim, free)]
        won = await store.claim_many(claims, owner=ALICE, limits=limits)
        # Of k0 the first two, of k1 one more, of k2 one: then the queue has five.
        assert won == [False, *(index in (0, 1, 2, 3) for index in range(9)), *[True] * 3]
        assert await store.claim_many([_claim(rows[8])], owner=ALICE, limits=limits) == [False]
        assert await store.claim_many([_claim(rows[8])], owner=ALICE, limits={"a": Limit(per_key=2)}) == [True]
        ended = await store.run(rows[0].id)
        assert ended is not None
        assert await append(store, parked(ended)) == [Applied.committed]
        assert await store.claim_many([_claim(rows[6])], owner=ALICE, limits={"a": Limit(6, 2)}) == [True]


async def a_run_that_changes_hands_takes_no_more_room(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(queue="a"), owner=BOB)
        waits = await _queued(store, queue="a")
        claims = [_claim(row), _claim(waits)]
        assert await store.claim_many(claims, owner=ALICE, limits={"a": Limit(1)}) == [True, False]


async def two_claimers_never_exceed_a_limit(make: MakeStore) -> None:
    async with opened(make) as one, opened(make) as two:
        rows = [await _queued(one, queue="a", queue_key=f"k{number % 2}") for number in range(40)]
        limits = {"a": Limit(concurrency=7, per_key=4)}
        claims = [_claim(row) for row in rows]
        results = await asyncio.gather(
            *(
                store.claim_many(part, owner=owner, limits=limits)
                for start in range(0, 40, 8)
                for store, owner, part in (
                    (one, ALICE, claims[start : start + 8]),
                    (two, BOB, claims[start : start + 8][::-1]),
                )
            )
        )
        assert sum(map(sum, results)) == 7
        stored = [row for loaded in await one.load_many([row.id for row in rows]) if (row := loaded.row).owner]
        assert len(stored) == 7
        assert max(Counter(row.queue_key for row in stored).values()) <= 4


# reading many


async def many_runs_are_loaded_at_once(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await store.create(new_run(), owner=ALICE) for _ in range(20)]
        for number, row in enumerate(rows):
            if number % 3:
                await append(store, extend(row, *[Kind.done] * (number * 17)))
            for body in range(number % 4):
                await store.send(mail_for(row.id, str(body), dedup=str(body) if body else None), wake=left)
        long = await store.create(new_run(), owner=ALICE)
        await append(store, extend(long, *[Kind.done] * 3000))
        ids = [row.id for row in [*reversed(rows), long]]
        expected = []
        for run_id in ids:
            loaded = await store.load(run_id)
            assert loaded is not None
            expected.append(Loaded(*loaded, await store.mail(run_id, after=0)))
        assert await store.load_many([*ids[:7], RunId("r_nobody"), *ids[7:]]) == expected
        assert await store.load_many([]) == []


async def mail_counts_tell_what_a_worker_has_to_look_at(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await store.create(new_run(), owner=ALICE if number % 2 else BOB) for number in range(6)]
        await store.send(mail_for(rows[1].id), wake=left)
        await store.send(mail_for(rows[1].id), wake=left)
        assert await store.claim(taken_over(rows[3]), owner=ALICE, expected_epoch=1, expected_owner=ALICE)
        assert await store.mail_counts(ALICE) == {rows[1].id: (1, 2), rows[3].id: (2, 0), rows[5].id: (1, 0)}
        assert await store.mail_counts(WorkerId("w_nobody")) == {}


async def runs_of_queues_are_counted(make: MakeStore) -> None:
    async with opened(make) as store:
        for queue, status, owner in (
            *((queue, Status.queued, None) for queue in ("mail", "mail", "it's", "other")),
            *((queue, Status.running, ALICE) for queue in ("mail", "it's", "it's")),
            ("mail", Status.waiting, None),
            ("mail", Status.done, None),
        ):
            await store.create(new_run(queue=queue, status=status), owner=owner)
        assert await store.queue_counts(["mail", "it's", "empty"]) == {
            "mail": {Status.queued: 2, Status.running: 1},
            "it's": {Status.queued: 1, Status.running: 2},
            "empty": {Status.queued: 0, Status.running: 0},
        }
        assert await store.queue_counts([]) == {}


# who may be claimed


async def only_runs_whose_time_has_come_are_ready(make: MakeStore) -> None:
    async with opened(make) as store:
        for status in Status:
            for name, wake_at in (("due", START), ("early", START + 1), ("never", None)):
                await store.create(new_run(f"r_{status}_{name}", status=status, wake_at=wake_at), owner=None)
            await store.create(new_run(f"r_{status}_owned", status=status, wake_at=START), owner=ALICE)
        await _queued(store, agent="another")
        due = {"r_queued_due", "r_sleeping_due", "r_waiting_due", "r_in_doubt_due"}
        assert set(await _ready(store)) == due
        assert set(await _ready(store, now=START + 1)) == due | {name.replace("due", "early") for name in due}
        assert await _ready(store, now=START - 1) == []
        assert await _ready(store, agents=[]) == []
        assert len(await _ready(store, agents=["agent", "another", "nobody"])) == 5
        assert await _ready(store, limit=0) == []
        (found,) = await store.ready(agents=["another", "x"], queues=["default"], now=START, limit=5)
        assert found == await store.run(found.id)


async def a_run_is_ready_when_its_time_comes_though_nothing_is_written(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        late = await _queued(store, wake_at=START + 10)
        for _ in range(2):  # whoever asks often, and whatever the clock does meanwhile
            assert await _ready(store) == []
            assert await _ready(store, now=START + 9) == []
            assert await _ready(store, now=START + 10) == [late.id]
            assert await _ready(store, now=START + 10, closed=["default"]) == []
            assert await store.next_wake() == START + 10
        soon = await _queued(other, wake_at=START + 5)
        assert await _ready(store, now=START + 9) == [soon.id]
        assert await store.next_wake() == START + 5


async def a_line_is_ordered_by_priority_and_time(make: MakeStore) -> None:
    for count in (60, 5000):  # a store may go different ways about few and many
        async with opened(make) as store:
            expected = await asyncio.gather(
                *(
                    _queued(
                        store,
                        f"r_{count}_{number * 7 % count:04}",
                        agent=f"agent {count}",
                        priority=number % 3,
                        wake_at=START - number % 10,
                    )
                    for number in range(count)
                )
            )
            expected.sort(key=lambda row: (-row.priority, row.wake_at or 0, row.id))
            for limit in (3, 20, 60, 100):
                found = await _ready(store, agents=[f"agent {count}"], limit=limit)
                assert found == [row.id for row in expected[:limit]], (count, limit)
            await store.claim_many(list(map(_claim, expected)), owner=ALICE)


async def keys_are_served_evenly_from_behind_the_cursor(make: MakeStore) -> None:
    await _served_evenly(make, many=200)


async def keys_of_a_long_line_are_served_evenly(make: MakeStore) -> None:
    await _served_evenly(make, many=5000)


async def _served_evenly(make: MakeStore, *, many: int) -> None:
    """Key a has many runs, the others few."""
    async with opened(make) as store:
        await asyncio.gather(
            *(_queued(store, f"r_a{i:03}", queue_key="a", wake_at=START - 10_000 + i) for i in range(many))
        )
        for key in ("b", "c", "d"):
            for number in range(3):
                await _queued(store, f"r_{key}{number:03}", queue_key=key)
        assert await _ready(store, limit=4) == ["r_a000", "r_b000", "r_c000", "r_d000"]
        assert await _ready(store, limit=4, after="b") == ["r_c000", "r_d000", "r_a000", "r_b000"]
        assert await _ready(store, limit=2, after="bb") == ["r_c000", "r_d000"]
        assert await _ready(store, limit=6, after="d") == [
            "r_a000", "r_b000", "r_c000", "r_d000", "r_a001", "r_b001",
        ]  # fmt: skip
        if many < 1000:
            everything = await _ready(store, limit=1000)
            assert len(everything) == len(set(everything)) == many + 9
        filled = await _ready(store, limit=40)
        assert Counter(run_id[2] for run_id in filled) == {"a": 31, "b": 3, "c": 3, "d": 3}


async def queues_are_chosen_and_take_turns(make: MakeStore) -> None:
    async with opened(make) as store:
        for number in range(100):
            await _queued(store, f"r_big{number:03}", queue="big", queue_key=f"k{number:03}")
        await _queued(store, "r_small", queue="small", queue_key="z")
        await _queued(store, "r_sleeping", queue="small", status=Status.sleeping)
        assert set(await _ready(store, limit=10)) >= {"r_small", "r_sleeping"}
        assert await _ready(store, queues=["small"]) == ["r_sleeping", "r_small"]
        assert len(await _ready(store, queues=["big", "none"], limit=200)) == 100
        assert await _ready(store, queues=[]) == []


async def neither_the_line_nor_those_who_slept_keep_the_others_out(make: MakeStore) -> None:
    async with opened(make) as store:
        for number in range(20):
            await _queued(store, f"r_line{number:02}")
            await _queued(store, f"r_slept{number:02}", status=Status.sleeping, wake_at=START - number)
        found = await _ready(store, limit=10)
        assert found == [
            *(f"r_slept{number}" for number in (19, 18, 17, 16, 15)),
            *(f"r_line{number:02}" for number in range(5)),
        ]
        assert len(await _ready(store, limit=30)) == 30
        assert len(await _ready(store, limit=50)) == 40


async def closed_queues_are_left_out(make: MakeStore) -> None:
    for many in (1, 60):  # a store may go different ways about few and many
        async with opened(make) as store:
            names = [f"q{many}_{number:02}" for number in range(40)]
            for name in names:
                await asyncio.gather(*(_queued(store, f"r_{name}_{number}", queue=name) for number in range(many)))
                await store.create(new_run(f"s_{name}", queue=name, status=Status.sleeping, wake_at=START), owner=None)
            shut = [name for name in names if name != f"q{many}_33"]
            found = await _ready(store, closed=shut, queues=names, limit=10)
            assert {run_id.rsplit("_", 1)[0] for run_id in found} == {f"r_q{many}_33", f"s_q{many}"}
            assert await _ready(store, closed=names, queues=names) == []


async def the_cursor_comes_to_every_queue_however_many_there_are(make: MakeStore) -> None:
    for many in (1, 60):
        async with opened(make) as store:
            # The later a queue's name, the earlier its key: neither order alone would come to all of them.
            lines = {f"q{many}_{number:02}": f"k{99 - number}" for number in range(40)}
            for name, key in lines.items():
                runs = (_queued(store, f"r_{name}_{number}", queue=name, queue_key=key) for number in range(many))
                await asyncio.gather(*runs)
            cursor, came = "", []
            for _ in lines:
                first = (await _ready(store, queues=list(lines), limit=7, after=cursor))[0].removeprefix("r_")
                came.append(first.rsplit("_", 1)[0])
                cursor = place(lines[came[-1]], came[-1])
            assert came == sorted(lines, reverse=True)


async def the_next_wake_is_the_earliest_of_unowned_runs(make: MakeStore) -> None:
    async with opened(make) as store:
        assert await store.next_wake() is None
        await store.create(new_run(status=Status.paused), owner=None)
        await store.create(new_run(status=Status.sleeping, wake_at=START - 99), owner=ALICE)
        assert await store.next_wake() is None
        row = await store.create(new_run(status=Status.sleeping, wake_at=START + 50), owner=None)
        await _queued(store, agent="another", queue="q", wake_at=START + 60)
        assert await store.next_wake() == START + 50
        assert await store.claim_many([_claim(row)], owner=ALICE) == [True]
        assert await store.next_wake() == START + 60


async def a_run_becomes_ready_again_and_again(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await _queued(store, queue_key="k")
        for _ in range(3):
            assert await _ready(store) == [row.id]
            assert await store.claim_many([_claim(row)], owner=ALICE) == [True]
            assert await _ready(store) == []
            stored = await store.run(row.id)
            assert stored is not None
            step = parked(stored, Kind.started, status=Status.sleeping, wake_at=START)
            assert await append(store, step) == [Applied.committed]
            row = dataclasses.replace(step.row, owner=None)


# amending


async def an_unowned_run_is_amended_at_once(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        paused = amended(row, Kind.noted, status=Status.paused, reason=reasons.Other({"by": "me"}), wake_at=None)
        assert not await store.amend(paused), "somebody owns it"
        assert await append(store, parked(row, wake_at=START, status=Status.sleeping)) == [Applied.committed]
        assert not await store.amend(dataclasses.replace(paused, base_seq=9))
        assert not await store.amend(dataclasses.replace(paused, row=dataclasses.replace(paused.row, epoch=1)))
        assert not await store.amend(dataclasses.replace(paused, row=dataclasses.replace(paused.row, epoch=3)))
        assert not await store.amend(dataclasses.replace(paused, mail=1))
        assert not await store.amend(amended(new_run().row, Kind.noted))
        assert await store.amend(dataclasses.replace(paused, mail=0, blobs=(("d", b"1"),)))
        assert await store.run(row.id) == dataclasses.replace(paused.row, owner=None)
        assert (await store.records(row.id))[1:] == list(paused.records)
        assert await store.blobs(row.id, ["d"]) == {"d": b"1"}
        assert not await store.amend(paused), "it is done"


async def amending_fences_whoever_had_the_run(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        row = await store.create(new_run(), owner=ALICE)
        step = parked(row, Kind.started, wake_at=START)
        assert await append(store, step) == [Applied.committed]
        unowned = dataclasses.replace(step.row, owner=None)
        results = await asyncio.gather(
            store.claim_many([_claim(unowned)], owner=BOB),
            other.amend(amended(unowned, Kind.noted, status=Status.paused, wake_at=None)),
        )
        assert sorted((results[0][0], results[1])) == [False, True]
        assert await append(store, extend(step.row, Kind.done)) == [Applied.fenced]


async def a_run_can_be_seized_from_its_owner(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        assert await store.claim(taken_over(row), owner=ALICE, expected_epoch=1, expected_owner=ALICE)
        row = taken_over(row)
        killed = amended(row, Kind.finished, status=Status.cancelled)
        assert await store.amend(killed, seize=True)
        assert await store.run(row.id) == dataclasses.replace(killed.row, owner=None, claims=0)
        assert await append(store, extend(row, Kind.done)) == [Applied.fenced]
        assert await store.mail_counts(ALICE) == {}


async def amending_can_tell_another_run(make: MakeStore) -> None:
    async with opened(make) as store:
        mother = await store.create(new_run(status=Status.waiting), owner=None)
        child = await store.create(new_run(status=Status.waiting), owner=None)
        end = amended(child, Kind.finished, status=Status.cancelled)
        end = dataclasses.replace(end, outgoing=Outgoing(mail_for(mother.id, kind=MailKind.child), woken))
        assert not await store.amend(dataclasses.replace(end, mail=5))
        assert await store.mail(mother.id, after=0) == []
        assert await store.amend(end)
        stored = await store.run(mother.id)
        assert stored is not None
        assert (stored.status, stored.mail) == (Status.queued, 1)


async def a_quarantined_run_is_never_ready(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await _queued(store)
        await store.quarantine(row.id, "altered")
        assert await _ready(store) == []
        assert await store.next_wake() is None


CASES: tuple[Case, ...] = (
    *conformance_turns.CASES,
    a_parked_run_is_unowned_and_keeps_its_time,
    unread_mail_keeps_a_run_from_parking,
    other_reasons_come_before_unread_mail,
    between_parking_and_mail_no_wake_up_is_lost,
    what_is_told_comes_with_the_append_or_not_at_all,
    an_append_stands_though_nobody_can_be_told,
    many_runs_are_claimed_at_once,
    of_a_run_claimed_twice_the_first_claim_that_fits_wins,
    limits_hold_for_queues_and_keys,
    a_run_that_changes_hands_takes_no_more_room,
    two_claimers_never_exceed_a_limit,
    many_runs_are_loaded_at_once,
    mail_counts_tell_what_a_worker_has_to_look_at,
    runs_of_queues_are_counted,
    only_runs_whose_time_has_come_are_ready,
    a_run_is_ready_when_its_time_comes_though_nothing_is_written,
    a_line_is_ordered_by_priority_and_time,
    keys_are_served_evenly_from_behind_the_cursor,
    keys_of_a_long_line_are_served_evenly,
    queues_are_chosen_and_take_turns,
    neither_the_line_nor_those_who_slept_keep_the_others_out,
    closed_queues_are_left_out,
    the_cursor_comes_to_every_queue_however_many_there_are,
    the_next_wake_is_the_earliest_of_unowned_runs,
    a_run_becomes_ready_again_and_again,
    an_unowned_run_is_amended_at_once,
    amending_fences_whoever_had_the_run,
    a_run_can_be_seized_from_its_owner,
    amending_can_tell_another_run,
    a_quarantined_run_is_never_ready,
)
