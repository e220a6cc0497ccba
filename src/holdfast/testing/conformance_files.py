"""What every store must do about the files of runs."""

from __future__ import annotations

import dataclasses
from hashlib import sha256

from holdfast.errors import Fenced
from holdfast.journal.chain import draft, linked
from holdfast.model import Append, Fence, Kind, NoteKind, Removal, RunId, Status, reasons
from holdfast.testing.samples import ALICE, BOB, START, Case, MakeStore, append, extend, new_run, opened, taken_over

_DATA = (b"", b"one", bytes(range(256)) * 1024)
_CHUNKS = {sha256(data).hexdigest(): data for data in _DATA}


async def chunks_come_back_to_the_byte_and_belong_to_one_run(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run("r_1"), owner=ALICE)
        await store.put_chunks(row.id, _CHUNKS, fence=Fence(row.id, row.epoch, ALICE))
        await store.put_chunks(row.id, {"f" * 64: b"late"}, fence=None)
        assert await store.chunks(row.id, [*_CHUNKS, "0" * 64]) == _CHUNKS
        assert await store.known_chunks(row.id, [*_CHUNKS, "0" * 64]) == set(_CHUNKS)
        assert await store.chunks(RunId("r_2"), list(_CHUNKS)) == {}
        first = await store.chunk_page(row.id, after="", limit=2)
        assert first == sorted(_CHUNKS)[:2]
        assert await store.chunk_page(row.id, after=first[-1], limit=9) == [*sorted(_CHUNKS)[2:], "f" * 64]
    async with opened(make, read_only=True) as reader:
        assert await reader.chunks(row.id, list(_CHUNKS)) == _CHUNKS


async def what_is_stored_again_replaces_what_may_be_damaged(make: MakeStore) -> None:
    async with opened(make) as store:
        digest, good = sha256(b"good").hexdigest(), b"good"
        for data in (b"bad", good):
            await store.put_chunks(RunId("r_1"), {digest: data}, fence=None)
        assert await store.chunks(RunId("r_1"), [digest]) == {digest: good}


async def who_lost_a_run_stores_no_files_for_it(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run("r_1"), owner=ALICE)
        taken = taken_over(row)
        assert await store.claim(taken, owner=BOB, expected_epoch=row.epoch, expected_owner=ALICE)
        for fence in (Fence(row.id, row.epoch, ALICE), Fence(row.id, taken.epoch, ALICE), Fence(row.id, 9, BOB)):
            try:
                await store.put_chunks(row.id, _CHUNKS, fence=fence)
            except Fenced:
                continue
            raise AssertionError("somebody else's run was written to")
        assert await store.known_chunks(row.id, list(_CHUNKS)) == set()
        await store.put_chunks(row.id, _CHUNKS, fence=Fence(row.id, taken.epoch, BOB))


async def notes_are_found_by_name_and_digest(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run("r_1"), owner=ALICE)
        drafts = [
            draft(kind, name, key=f"k#{number}", at=START, args_digest=digest, payload=str(number))
            for number, (kind, name, digest) in enumerate(
                [
                    (Kind.noted, NoteKind.artifact, "a"),
                    (Kind.noted, NoteKind.usage, "a"),
                    (Kind.done, NoteKind.artifact, "a"),
                    (Kind.noted, NoteKind.artifact, "b"),
                ]
            )
        ]
        records = linked(drafts, epoch=row.epoch, turn=row.turn, head_seq=row.head_seq, head_hash=row.head_hash)
        last = records[-1]
        after = dataclasses.replace(row, head_seq=last.seq, head_hash=last.hash, digest="after")
        await append(store, Append(after, row.head_seq, row.head_hash, records))
        assert await store.notes(row.id, NoteKind.artifact) == [records[0], records[3]]
        assert await store.notes(row.id, NoteKind.artifact, digest="b") == [records[3]]
        assert await store.notes(RunId("r_2"), NoteKind.artifact) == []


async def files_go_with_their_run(make: MakeStore) -> None:
    async with opened(make) as store:
        for name in ("r_1", "r_2"):
            row = await store.create(new_run(name), owner=ALICE)
            await store.put_chunks(row.id, _CHUNKS, fence=None)
            await append(store, extend(row, Kind.finished, status=Status.done, release=True))
        ended = await store.run(RunId("r_1"))
        assert ended is not None
        stone = dataclasses.replace(
            ended, epoch=ended.epoch + 1, reason=reasons.Pruned(START), summary={}, digest="tombstone"
        )
        assert await store.prune([stone], before=None, most=100, now=START) == [Removal.partly]
        while (await store.prune([stone], before=None, most=100, now=START)) != [Removal.gone]:
            pass
        assert await store.known_chunks(RunId("r_1"), list(_CHUNKS)) == set()
        assert await store.known_chunks(RunId("r_2"), list(_CHUNKS)) == set(_CHUNKS)


CASES: tuple[Case, ...] = (
    chunks_come_back_to_the_byte_and_belong_to_one_run,
    what_is_stored_again_replaces_what_may_be_damaged,
    who_lost_a_run_stores_no_files_for_it,
    notes_are_found_by_name_and_digest,
    files_go_with_their_run,
)
