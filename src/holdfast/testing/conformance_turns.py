"""What every store must do with runs that have turns: read what a resume needs, and nothing else."""

from __future__ import annotations

import dataclasses

from holdfast.journal.chain import draft, linked
from holdfast.journal.checkpoints import TURN, turn_path
from holdfast.model import CUT, Applied, Cut, Kind, Loaded, RunId, RunRow
from holdfast.store.contract import Store
from holdfast.testing.samples import ALICE, START, Case, MakeStore, append, extend, left, mail_for, new_run, opened


async def with_turns(store: Store, turns: int) -> RunRow:
    """A run with a prologue of three records, and turns of two each; mail up to number 3 was read."""
    row = await store.create(new_run(), owner=ALICE)
    prologue = extend(row, Kind.done, Kind.done)
    assert await append(store, prologue) == [Applied.committed]
    row = prologue.row
    end = row.head_seq, row.head_hash
    for turn in range(1, turns + 1):
        head = draft(Kind.checkpoint, TURN, key=turn_path(turn), at=START + turn, args=f'"state {turn}"')
        done = draft(Kind.done, "search", key=f"{turn_path(turn)}/search#1", at=START + turn, payload="1")
        records = linked((head, done), epoch=row.epoch, turn=turn, head_seq=row.head_seq, head_hash=row.head_hash)
        cut = Cut(*end, records[0].seq, row.head_hash, 3)
        added = extend(row, turn=turn, summary={CUT: cut.plain()})
        head_row = dataclasses.replace(added.row, head_seq=records[-1].seq, head_hash=records[-1].hash)
        grown = dataclasses.replace(added, row=head_row, records=records)
        assert await append(store, grown) == [Applied.committed]
        row = grown.row
    return row


async def a_run_with_turns_is_loaded_by_its_cut(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await with_turns(store, 5)
        other = await store.create(new_run(), owner=ALICE)
        for number in range(1, 6):
            await store.send(mail_for(row.id, str(number), dedup=str(number)), wake=left)
        records, mail = await store.records(row.id), await store.mail(row.id, after=3)
        stored = await store.run(row.id)
        assert stored is not None
        assert (stored.turn, stored.cut) == (row.turn, row.cut)
        loaded = await store.load_many([other.id, row.id])
        assert loaded[1] == Loaded(stored, [*records[:3], *records[-2:]], mail)
        assert [record.seq for record in loaded[1].records] == [1, 2, 3, 12, 13]
        assert [each.number for each in loaded[1].mail] == [4, 5]
        assert loaded[0].row.id == other.id
        assert await store.load(row.id) == (stored, records)


async def checkpoints_are_read_by_themselves(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await with_turns(store, 5)
        records = await store.records(row.id)
        heads = [record for record in records if record.kind == Kind.checkpoint]
        expected = [(head, records[head.seq - 2].hash) for head in heads]
        assert await store.checkpoints(row.id) == expected
        assert await store.checkpoints(row.id, after=heads[1].seq, limit=2) == expected[2:4]
        assert await store.checkpoints(row.id, turn=4) == expected[3:4]
        assert await store.checkpoints(row.id, turn=6) == []
        assert await store.checkpoints(RunId("r_nobody")) == []


async def some_mail_is_read_by_its_numbers(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        for number in range(1, 6):
            await store.send(mail_for(row.id, str(number), dedup=str(number)), wake=left)
        inbox = await store.mail(row.id, after=0)
        assert await store.mail_of_numbers(row.id, [4, 2, 9]) == [inbox[1], inbox[3]]
        assert await store.mail_of_numbers(row.id, []) == []


async def a_difference_comes_with_what_it_is_a_difference_to(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        first, second, third = "0" * 32, f"{'1' * 32}~{'a' * 16}", f"{'2' * 32}~{'b' * 16}"
        blobs = {
            first: b'"text"',
            second: f"~{first}\n1 1\n~1 6 7 0+6\nx".encode(),
            third: f"~{second}\n2 2\n~1 7 8 0+7\nx".encode() + b"y" * 600_000,
            "3" * 32: b'"other"',
        }
        stored = dataclasses.replace(extend(row, Kind.done), blobs=tuple(blobs.items()))
        assert await append(store, stored) == [Applied.committed]
        assert await store.blobs(row.id, [first]) == {first: blobs[first]}
        assert await store.blobs(row.id, [third]) == {name: blobs[name] for name in (first, second, third)}


CASES: tuple[Case, ...] = (
    a_run_with_turns_is_loaded_by_its_cut,
    checkpoints_are_read_by_themselves,
    some_mail_is_read_by_its_numbers,
    a_difference_comes_with_what_it_is_a_difference_to,
)
