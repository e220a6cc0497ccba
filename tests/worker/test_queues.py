"""Which runs of which queues may go, in which order, and how fast."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.base import clock
from holdfast.errors import UsageError
from holdfast.model import Definition, Limit, RunRow, Status
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import new_run, opened
from holdfast.worker import choosing, queue_state
from holdfast.worker.choosing import choose, next_cursor
from holdfast.worker.queue_state import QueueState
from holdfast.worker.queues import QueueInfo, Queues

# The runs here are rows that nobody executes.
pytestmark = pytest.mark.corrupts

NOW = 1_800_000_000_000_000
SECOND = 1_000_000


@pytest.fixture(autouse=True)
def frozen() -> Iterator[None]:
    clock.freeze(NOW)
    yield
    clock.reset()


def run(run_id: str, *, key: str = "", queue: str = "q", records: int = 1, **changes: Any) -> RunRow:
    row = new_run(run_id, queue=queue, queue_key=key, status=Status.queued, wake_at=NOW).row
    return replace(row, head_seq=records, **changes)


def ids(rows: list[RunRow]) -> str:
    return " ".join(row.id for row in rows)


def chosen(
    ready: list[RunRow], *states: QueueState, slots: int = 100, cursor: str = "", now: int = NOW
) -> list[RunRow]:
    return choose(ready, states={state.name: state for state in states}, slots=slots, now=now, cursor=cursor)


# choosing


def test_keys_take_turns() -> None:
    ready = [run("a1", key="a"), run("a2", key="a"), run("a3", key="a"), run("b1", key="b"), run("c1", key="c")]
    assert ids(chosen(ready)) == "a1 b1 c1 a2 a3"
    assert ids(chosen(ready, slots=2)) == "a1 b1"
    assert ids(chosen(ready, slots=0)) == ids(chosen(ready, slots=-1)) == ids(chosen([])) == ""


def test_the_cursor_moves_on_so_that_with_one_slot_every_key_and_queue_has_its_turn() -> None:
    ready = [run(f"{queue}{key}{n}", key=key, queue=queue) for queue in "pq" for key in ("", "a", "b") for n in (1, 2)]
    cursor, order = "", []
    for _ in range(12):
        first = chosen(ready, slots=1, cursor=cursor)
        cursor = next_cursor(first, cursor)
        ready.remove(first[0])
        order.append(first[0].id)
    assert order == ["p1", "q1", "pa1", "qa1", "pb1", "qb1", "p2", "q2", "pa2", "qa2", "pb2", "qb2"]
    assert next_cursor([], "kept") == "kept"


def test_a_key_with_a_thousand_runs_does_not_keep_others_waiting() -> None:
    crowd = [run(f"x{n:04}", key="crowd") for n in range(1000)]
    assert "y" in ids(chosen([*crowd, run("y", key="single")], slots=2)).split()


def test_higher_priorities_go_first_among_those_whose_turn_it_is() -> None:
    ready = [
        run("a", key="a"),
        run("b", key="b", priority=5),
        run("b2", key="b", priority=9),
        run("c", key="c", priority=-1),
    ]
    assert ids(chosen(ready)) == "b2 a c b"
    assert ids(chosen(ready, slots=1)) == "b2"


def test_within_a_key_priority_counts_first_then_who_goes_on_then_who_waits_longest() -> None:
    ready = [
        run("late", wake_at=NOW - 1),
        run("early", wake_at=NOW - 9),
        run("woken", wake_at=NOW, records=7),
        run("urgent", priority=1),
    ]
    assert ids(chosen(ready)) == "urgent woken early late"


@pytest.mark.parametrize("closed", [QueueState("q", paused=True), QueueState("q", held_until=NOW + 1)])
def test_a_paused_or_held_queue_keeps_back_new_runs_and_woken_ones(closed: QueueState) -> None:
    ready = [run("new"), run("woken", records=5), run("other", queue="p")]
    assert ids(chosen(ready, closed)) == "other"


def test_a_hold_ends_by_itself() -> None:
    held = QueueState("q", held_until=NOW)
    assert ids(chosen([run("r")], held, now=NOW - 1)) == ""
    assert ids(chosen([run("r")], held)) == "r"


def test_a_rate_keeps_back_starts_and_lets_those_pass_that_go_on() -> None:
    limited = QueueState("q", rate=(2, 10.0), allowance=1.0, allowance_at=NOW)
    ready = [run("n1"), run("n2"), run("n3"), run("w1", records=2), run("w2", records=2), run("o", queue="p")]
    assert sorted(ids(chosen(ready, limited)).split()) == ["n1", "o", "w1", "w2"]
    assert len(chosen(ready, limited, now=NOW + 5 * SECOND)) == 5


def test_a_queue_that_is_full_does_not_use_up_the_slots_of_others() -> None:
    small, keyed = QueueState("q", concurrency=1), QueueState("p", per_key=1)
    ready = [run(f"q{n}", key=str(n)) for n in range(5)]
    ready += [run(f"p{key}{n}", key=key, queue="p") for key in "ab" for n in range(3)]
    ready += [run(f"z{n}", queue="z") for n in range(3)]
    assert Counter(row.queue for row in chosen(ready, small, keyed, slots=6)) == {"q": 1, "p": 2, "z": 3}


def test_limits_name_the_queues_that_the_store_has_to_count() -> None:
    states = {
        "a": QueueState("a", concurrency=3),
        "b": QueueState("b", per_key=1),
        "c": QueueState("c", rate=(1, 1.0), paused=True),
    }
    assert choosing.limits(states) == {"a": Limit(3, None), "b": Limit(None, 1)}


def test_permits_are_for_starts_and_what_has_none_is_left_out() -> None:
    rows = [run("n1"), run("w", records=3), run("n2"), run("p1", queue="p")]
    assert choosing.starts(rows) == {"q": 2, "p": 1}
    assert ids(choosing.permitted(rows, {"q": 1, "p": 1})) == "n1 w p1"
    assert ids(choosing.permitted(rows, {})) == "w"


# permits


def test_permits_come_back_evenly_and_never_exceed_the_count() -> None:
    state = QueueState("q", rate=(10, 60.0), allowance=10.0, allowance_at=NOW)
    granted, state = queue_state.take_permits(state, 25, NOW)
    assert (granted, queue_state.permits_left(state, NOW)) == (10, 0)
    assert [queue_state.permits_left(state, NOW + s * SECOND) for s in (5, 6, 12, 59, 60, 6000)] == [0, 1, 2, 9, 10, 10]


def test_permits_taken_one_by_one_add_up_to_the_rate() -> None:
    state, total = QueueState("q", rate=(7, 3.0), allowance=7.0, allowance_at=NOW), 0
    for step in range(30_001):
        granted, state = queue_state.take_permits(state, 1, NOW + step * 1000)
        total += granted
    assert total == 7 + 70


def test_a_clock_that_was_put_back_gives_and_takes_nothing() -> None:
    state = QueueState("q", rate=(10, 10.0), allowance=3.0, allowance_at=NOW)
    granted, state = queue_state.take_permits(state, 1, NOW - 3600 * SECOND)
    assert (granted, state.allowance, state.allowance_at) == (1, 2.0, NOW)


def test_permits_given_back_do_not_overflow() -> None:
    state = QueueState("q", rate=(5, 10.0), allowance=4.0, allowance_at=NOW)
    assert queue_state.return_permits(state, 3, NOW).allowance == 5.0
    assert queue_state.return_permits(QueueState("q"), 3, NOW) == QueueState("q")


# stored queues


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_paused_queue_with_many_keys_does_not_hide_another_one(tmp_path: Path, slots: int) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "s.db")) as store:
            names = [(f"r{n}", "closed", f"k{n:02}") for n in range(20)] + [("open", "other", "z")]
            for run_id, queue, key in names:
                made = new_run(run_id, queue=queue, queue_key=key, status=Status.queued, wake_at=NOW)
                await store.create(made, owner=None)
            cursor, looks = "", 0
            first: list[RunRow] = []
            while not first and looks < 25:
                looks += 1
                ready = await store.ready(agents=["agent"], queues=None, now=NOW, limit=slots + 1, after=cursor)
                first = chosen(ready, QueueState("closed", paused=True), slots=slots, cursor=cursor)
                cursor = next_cursor(first, cursor, ready)
            assert ids(first) == "open"

    asyncio.run(main())


def test_limits_can_be_changed_without_opening_what_is_paused_or_held(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "s.db")) as store:
            mine, other = Queues(store), Queues(store)
            await mine.pause("mail")
            await mine.hold("mail", NOW + 9 * SECOND)
            await mine.hold("mail", NOW + 5 * SECOND)
            await mine.set("mail", concurrency=3, per_key=1, rate=(10, 60))
            expected = QueueState("mail", 3, 1, (10, 60.0), True, NOW + 9 * SECOND, 10.0, NOW, 3, NOW)
            assert await other.load() == {"mail": expected}
            await mine.set("mail", concurrency=3, per_key=1, rate=(10, 60))
            assert (await mine.load())["mail"].revision == 3
            await mine.resume("mail")
            assert (await mine.load())["mail"].is_open(NOW)

    asyncio.run(main())


def test_a_queue_without_limits_can_be_declared_and_is_listed(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "s.db")) as store:
            mine = Queues(store)
            await mine.set("plain", concurrency=None, per_key=None, rate=None)
            await mine.hold("held", NOW + SECOND)
            await store.create(new_run(queue="held", status=Status.queued), owner=None)
            until = datetime.fromtimestamp(NOW // SECOND + 1, UTC)
            assert await mine.infos() == [
                QueueInfo("held", None, None, None, False, until, queued=1, running=0),
                QueueInfo("plain", None, None, None, False, None, queued=0, running=0),
            ]
            clock.freeze(NOW + 2 * SECOND)
            assert (await mine.infos())[0].held_until is None

    asyncio.run(main())


def test_what_others_change_is_seen_when_asked_afresh_and_own_changes_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "s.db")) as store:
            mine, other = Queues(store), Queues(store)
            assert await mine.load() == {}
            await other.pause("q")
            assert (await mine.load(fresh=True))["q"].paused
            await mine.resume("q")
            assert not (await mine.load())["q"].paused

    asyncio.run(main())


NONSENSE: list[dict[str, Any]] = [
    {"concurrency": 0},
    {"concurrency": -1},
    {"concurrency": True},
    {"concurrency": 1.5},
    {"per_key": 0},
    {"per_key": "2"},
    {"rate": (0, 1)},
    {"rate": (1, 0)},
    {"rate": (1, float("inf"))},
    {"rate": (1, float("nan"))},
    {"rate": 5},
    {"rate": (1, 2, 3)},
    {"rate": (1.5, 2)},
    {"name": ""},
    {"name": " q"},
    {"name": "q\n"},
]


@pytest.mark.parametrize("given", NONSENSE, ids=str)
def test_nonsense_is_refused_and_nothing_is_stored(tmp_path: Path, given: dict[str, Any]) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "s.db")) as store:
            with pytest.raises(UsageError, match=r"takes|characters"):
                await Queues(store).set(**{"name": "q", "concurrency": None, "per_key": None, "rate": None} | given)
            assert await store.definitions("queue") == []

    asyncio.run(main())


def test_permits_reserved_by_many_at_once_are_never_more_than_there_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(lambda: SqliteStore(tmp_path / "s.db"))) for _ in range(4)]
            all_queues = [Queues(store) for store in stores]
            await all_queues[0].set("q", concurrency=None, per_key=None, rate=(20, 60))

            async def take(mine: Queues) -> int:
                return sum([(await mine.reserve({"q": 2}, NOW)).get("q", 0) for _ in range(5)])

            assert sum(await asyncio.gather(*map(take, all_queues))) == 20
            assert await all_queues[1].reserve({"q": 1}, NOW) == {"q": 0}
            await all_queues[2].give_back({"q": 3}, NOW)
            assert await all_queues[3].reserve({"q": 9}, NOW) == {"q": 3}

    asyncio.run(main())


def test_queues_without_a_rate_grant_all_and_closed_ones_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "s.db")) as store:
            mine = Queues(store)
            await mine.set("free", concurrency=1, per_key=None, rate=None)
            await mine.pause("paused")
            await mine.hold("held", NOW + 1)
            wanted = {"free": 5, "unknown": 2, "paused": 3, "held": 3, "none": 0}
            assert await mine.reserve(wanted, NOW) == {"free": 5, "unknown": 2, "paused": 0, "held": 0}
            await mine.give_back({"free": 1, "unknown": 1}, NOW)
            assert {d.name for d in await store.definitions("queue")} == {"free", "paused", "held"}

    asyncio.run(main())


def test_a_queue_that_cannot_be_read_is_paused_and_told_of_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "s.db")) as store:
            await Queues(store).set("good", concurrency=1, per_key=None, rate=None)
            body = json.loads((await store.definitions("queue"))[0].body)
            await store.define(
                [Definition("queue", "bad", "{}", 1), Definition("queue", "zero", json.dumps(body | {"per_key": 0}), 1)]
            )
            states = await Queues(store).load()
            assert [states[name].paused for name in ("bad", "good", "zero")] == [True, False, True]
            await Queues(store).set("bad", concurrency=2, per_key=None, rate=None)
            await Queues(store).resume("bad")
            assert (await Queues(store).load())["bad"].concurrency == 2

    with caplog.at_level(logging.WARNING, "holdfast"):
        asyncio.run(main())
    assert "queue.unreadable queue=bad" in caplog.text
