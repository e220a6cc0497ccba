"""What every store must do about threads."""

from __future__ import annotations

import asyncio
import dataclasses

from holdfast.errors import Fenced
from holdfast.journal.integrity import is_sound, message_digest
from holdfast.model import Fence, Kind, Said, Saying, Status, ThreadId
from holdfast.testing.samples import ALICE, BOB, START, Case, MakeStore, append, extend, new_run, opened, taken_over

CHAT = ThreadId("chat “7”")


def saying(*bodies: str, dedup: str, thread: ThreadId = CHAT, covers: int | None = None, at: int = START) -> Saying:
    digests = tuple(message_digest(thread, body, at=at, author="run", covers=covers, dedup=dedup) for body in bodies)
    return Saying(thread, bodies, digests, at, "run", dedup, covers)


async def what_is_said_is_numbered_in_order_and_stays(make: MakeStore) -> None:
    async with opened(make) as store:
        assert await store.thread(CHAT) is None
        assert await store.messages(CHAT) == []
        assert await store.say(saying('"a"', '"\\u0000“b”"', dedup="1")) == Said(1, 2, True)
        assert await store.say(saying('"c"', dedup="2", at=START + 5)) == Said(3, 3, True)
        assert await store.say(saying('"d"', dedup="1", thread=ThreadId("other"))) == Said(1, 1, True)
    async with opened(make) as store:
        found = await store.messages(CHAT)
        assert [(each.number, each.body, each.dedup) for each in found] == [
            (1, '"a"', "1"),
            (2, '"\\u0000“b”"', "1"),
            (3, '"c"', "2"),
        ]
        assert all(map(is_sound, found))
        row = await store.thread(CHAT)
        assert row == (CHAT, 3, 0, 0, START, START + 5)
        assert [each.number for each in await store.messages(CHAT, after=1, upto=2)] == [2]
        assert [each.number for each in await store.messages(CHAT, limit=2)] == [1, 2]
        assert [each.number for each in await store.messages(CHAT, after=1, limit=5, newest=True)] == [3, 2]
        assert [each.id for each in await store.threads()] == [CHAT, "other"]
        assert [each.id for each in await store.threads(id_prefix="ch")] == [CHAT]
        assert [each.id for each in await store.threads(after=CHAT)] == ["other"]


async def a_dedup_id_is_said_once(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        first = await store.say(saying('"a"', '"b"', dedup="x"))
        assert first == Said(1, 2, True)
        assert await other.say(saying('"a"', '"b"', dedup="x")) == Said(1, 2, False)
        assert await store.say(saying('"else"', dedup="x", at=START + 9)) == Said(1, 2, False)
        assert len(await store.messages(CHAT)) == 2
        both = await asyncio.gather(*(each.say(saying('"c"', dedup="y")) for each in (store, other, store, other)))
        assert sorted(both) == [(3, 3, False)] * 3 + [(3, 3, True)]


async def many_speak_at_once_and_nobody_is_lost(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        said = await asyncio.gather(
            *((store, other)[n % 2].say(saying(f'"{n}"', f'"{n}!"', dedup=str(n))) for n in range(60))
        )
        assert sorted(each.first for each in said) == list(range(1, 121, 2))
        found = await store.messages(CHAT)
        assert [each.number for each in found] == list(range(1, 121))
        by_dedup = {each.dedup: each for each in found[::2]}
        for n, each in enumerate(said):
            assert by_dedup[str(n)].number == each.first
            assert found[each.first].body == f'"{n}!"'


async def a_summary_says_up_to_where_it_goes(make: MakeStore) -> None:
    async with opened(make) as store:
        await store.say(saying('"a"', '"b"', '"c"', dedup="1"))
        assert await store.say(saying('"sum"', dedup="2", covers=2)) == Said(4, 4, True)
        await store.say(saying('"d"', dedup="3"))
        row = await store.thread(CHAT)
        assert row is not None
        assert (row.last, row.summary, row.covers) == (5, 4, 2)
        assert [each.covers for each in await store.messages(CHAT)] == [None, None, None, 2, None]


async def who_lost_the_run_says_nothing(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        fence = Fence(row.id, row.epoch, ALICE)
        assert (await store.say(saying('"a"', dedup="1"), fence=fence)).is_new
        assert await store.claim(taken_over(row), owner=BOB, expected_epoch=row.epoch, expected_owner=ALICE)
        for zombie in (saying('"b"', dedup="2"), saying('"a"', dedup="1")):
            try:
                await store.say(zombie, fence=fence)
            except Fenced:
                continue
            raise AssertionError("somebody else has the run")
        assert len(await store.messages(CHAT)) == 1


async def messages_are_taken_over_under_their_numbers(make: MakeStore) -> None:
    async with opened(make) as store:
        await store.say(saying('"a"', '"b"', '"c"', dedup="1"))
        found = await store.messages(CHAT)
        row = await store.thread(CHAT)
        assert row is not None
        there = ThreadId("there")
        moved = [each._replace(thread_id=there) for each in found]
        assert await store.put_messages(moved[:2], row._replace(id=there, last=2))
        assert not await store.put_messages(moved[:2], row._replace(id=there, last=2))
        assert await store.put_messages(moved[2:], row._replace(id=there))
        assert await store.messages(there) == moved
        assert await store.thread(there) == row._replace(id=there)
        assert await store.say(saying('"d"', dedup="2", thread=there)) == Said(4, 4, True)


async def idle_threads_go_with_the_last_of_their_runs(make: MakeStore) -> None:
    later = START + 1000
    async with opened(make) as store:
        first = await store.create(new_run(thread_id=CHAT), owner=ALICE)
        await append(store, last := extend(first, Kind.finished, status=Status.done, release=True))
        await store.say(saying('"a"', dedup="1"))
        await store.say(saying('"b"', dedup="1", thread=ThreadId("stray")))
        await store.say(saying('"c"', dedup="1", thread=ThreadId("lively"), at=later))

        async def idle(strays: bool = True) -> list[ThreadId]:
            return await store.idle_threads(before=later, strays=strays, limit=10)

        assert await idle() == ["stray"]
        assert not await store.forget_thread(CHAT, before=later, strays=True)
        stone = dataclasses.replace(last.row, epoch=last.row.epoch + 1, owner=None, summary={}, digest="stone")
        await store.prune([stone], before=None, most=1000, now=later)
        assert await idle(strays=False) == [CHAT]
        assert await idle() == [CHAT, "stray"]
        assert await store.forget_thread(CHAT, before=later, strays=False)
        assert not await store.forget_thread(CHAT, before=later, strays=False)
        assert not await store.forget_thread(ThreadId("stray"), before=later, strays=False)
        assert await store.forget_thread(ThreadId("stray"), before=later, strays=True)
        assert await store.messages(CHAT) == []
        assert await store.thread(CHAT) is None
        assert [each.id for each in await store.threads()] == ["lively"]


CASES: tuple[Case, ...] = (
    what_is_said_is_numbered_in_order_and_stays,
    a_dedup_id_is_said_once,
    many_speak_at_once_and_nobody_is_lost,
    a_summary_says_up_to_where_it_goes,
    who_lost_the_run_says_nothing,
    messages_are_taken_over_under_their_numbers,
    idle_threads_go_with_the_last_of_their_runs,
)
