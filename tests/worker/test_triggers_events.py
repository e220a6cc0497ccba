"""Events: delivered to every trigger and every waiting run, once, whoever dies in between."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.automation.triggers import FileChange, Triggers, emit
from holdfast.automation.triggers.events import CLAIM_US, KEPT_US
from holdfast.base import clock
from holdfast.errors import ConflictingSend, RunFinished, StoreError, Unserialisable, UsageError
from holdfast.model import RunId, Status
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.worker.logged import logged
from tests.worker.outside import World, process, world

#: Rows are made up: nobody executes these runs.
pytestmark = pytest.mark.corrupts


@dataclass(frozen=True)
class Order:
    id: int
    total: float


def test_an_event_starts_a_run_of_every_trigger_that_wants_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            declare = here.triggers.declare
            await declare("paid", "ship", name="shipping", queue="slow", queue_key="{customer}")
            await declare("paid", "audit", name="audits", where={"total": {"gt": 100}})
            await declare("paid", "small", name="smalls", where={"total": {"lt": 100}})
            await declare("refunded", "other", name="others")
            event = await here.triggers.emit("paid", {"total": 250, "customer": "c-9"})
            runs = {row.id: row for row in await here.runs()}
            assert set(runs) == {f"shipping:{event}", f"audits:{event}"}
            ship = runs[f"shipping:{event}"]  # type: ignore[index]
            assert (ship.agent, ship.queue, ship.queue_key) == ("ship", "slow", "c-9")
            assert await here.inputs() == [{"total": 250, "customer": "c-9"}] * 2
            assert {start.tags["trigger"] for start in here.starts} == {"shipping", "audits"}
            infos = {info.name: info for info in await here.triggers.list()}
            counts = {name: (info.received, info.matched, info.started) for name, info in infos.items()}
            assert counts == {"shipping": (1, 1, 1), "audits": (1, 1, 1), "smalls": (1, 0, 0), "others": (0, 0, 0)}
            assert [(note.what, note.run) for note in infos["audits"].recent] == [("started", f"audits:{event}")]
            assert [(note.what, note.run) for note in infos["smalls"].recent] == [("ignored", None)]

    asyncio.run(main())


def test_values_are_given_as_they_were_stored(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("x", "a", name="t")
            for value in (None, 5, "text", [1, (2, 3)], {"a": b"bytes"}, Order(1, 2.5)):
                await here.triggers.emit("x", value)
            assert [start.value for start in here.starts] == [
                None,
                5,
                "text",
                [1, (2, 3)],
                {"a": b"bytes"},
                {"id": 1, "total": 2.5},
            ]
            assert json.loads(here.starts[-1].text) == {"id": 1, "total": 2.5}
            with pytest.raises(Unserialisable):
                await here.triggers.emit("x", object())
            for name, dedup in (("", None), (" x", None), ("x" * 201, None), ("x", "")):
                with pytest.raises(UsageError):
                    await here.triggers.emit(name, 1, dedup=dedup)

    asyncio.run(main())


def test_a_second_event_with_the_same_dedup_id_is_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("paid", "ship", name="t")
            await here.triggers.declare("refunded", "back", name="u")
            first = await here.triggers.emit("paid", 1, dedup="order-7")
            assert await here.triggers.emit("paid", 1, dedup="order-7") == first
            with pytest.raises(ConflictingSend, match="order-7"):
                await here.triggers.emit("paid", 2, dedup="order-7")
            other = await here.triggers.emit("refunded", 3, dedup="order-7")
            assert other != first
            assert await here.triggers.emit("paid", 4) != await here.triggers.emit("paid", 4)
            assert await here.inputs() == [1, 3, 4, 4]

    asyncio.run(main())


def test_many_processes_that_emit_the_same_event_start_one_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, world(tmp_path) as two:
            await one.triggers.declare("paid", "ship", name="t")
            emitted = [each.triggers.emit("paid", 1, dedup="order-7") for each in (one, two) for _ in range(10)]
            assert len(set(await asyncio.gather(*emitted))) == 1
            assert len(await one.runs()) == 1
            info = (await one.triggers.list())[0]
            assert (info.received, info.started) == (1, 1)

    asyncio.run(main())


def test_when_emit_returns_the_runs_are_there_however_busy_the_workers_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here, world(tmp_path) as worker:
            await here.triggers.declare("x", "a", name="t")

            async def work() -> None:
                while True:
                    await worker.triggers.deliver_due(clock.now_us())

            working = asyncio.create_task(work())
            for number in range(50):
                event = await here.triggers.emit("x", number)
                assert await here.store.run(RunId(f"t:{event}")) is not None
            working.cancel()
            assert worker.starts == []

    asyncio.run(main())


def test_a_trigger_hears_nothing_of_what_happened_before_it_was_declared_or_while_it_is_paused(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await emit(here.store, "x", value="before", dedup=None, now=clock.now_us())
            await here.triggers.declare("x", "a", name="t")
            await here.triggers.deliver_due(clock.now_us())
            assert (await here.triggers.pause("t")).paused
            await here.triggers.emit("x", "paused")
            assert not (await here.triggers.resume("t")).paused
            await here.triggers.emit("x", "resumed")
            await here.triggers.remove("t")
            await here.triggers.emit("x", "removed")
            assert await here.inputs() == ["resumed"]
            for act in (here.triggers.pause, here.triggers.resume, here.triggers.remove):
                with pytest.raises(UsageError, match="no trigger 't'"):
                    await act("t")

    asyncio.run(main())


def test_declaring_again_changes_a_trigger_and_keeps_its_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("x", "a", name="t")
            await here.triggers.emit("x", 1)
            await here.triggers.pause("t")
            revision = (await here.store.definitions("trigger"))[0].revision
            await here.triggers.declare("x", "a", name="t")
            assert (await here.store.definitions("trigger"))[0].revision == revision
            info = await here.triggers.declare("x", "b", name="t", where={".": 2}, queue="q")
            assert (info.agent, info.where, info.queue, info.paused, info.started) == ("b", {".": 2}, "q", True, 1)
            moved = await here.triggers.declare("y", "b", name="t")
            assert moved.created_at > info.created_at
            assert moved.started == 1

    asyncio.run(main())


def test_a_trigger_without_a_name_gets_the_same_one_every_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            names = [(await here.triggers.declare(event, "a")).name for event in ("x y", "x-y", "x y")]
            assert names[0] == names[2] != names[1]
            assert len(await here.triggers.list()) == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    ("source", "more"),
    [
        (7, {}),
        ("", {}),
        ("x", {"name": "a:b"}),
        ("x", {"name": ""}),
        ("x", {"name": "a" * 81}),
        ("x", {"where": {"a": {"b": 1}}}),
        ("x", {"queue_key": "{"}),
    ],
)
def test_what_cannot_be_a_trigger_is_refused(tmp_path: Path, source: Any, more: dict[str, Any]) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            with pytest.raises(UsageError):
                await here.triggers.declare(source, "a", **more)
            assert await here.triggers.list() == []

    asyncio.run(main())


# signals


def test_an_event_is_a_signal_for_every_unfinished_run_that_declares_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.declare_agent("listens", "paid", "other")
            await here.declare_agent("deaf", "other")
            for number, status in enumerate((Status.waiting, Status.running, Status.sleeping, Status.paused)):
                await here.waiting_run(f"r_{number}", "listens", status=status)
            await here.waiting_run("r_done", "listens", status=Status.done)
            await here.waiting_run("r_deaf", "deaf")
            event = await here.triggers.emit("paid", {"id": 7})
            await here.waiting_run("r_late", "listens")
            second = await here.triggers.emit("paid", 8)
            for number in range(4):
                assert await here.signals(f"r_{number}") == [("paid", {"id": 7}, event), ("paid", 8, second)]
            assert await here.signals("r_done") == await here.signals("r_deaf") == []
            assert await here.signals("r_late") == [("paid", 8, second)]

    asyncio.run(main())


def test_a_run_that_an_event_starts_does_not_get_it_as_a_signal_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.declare_agent("both", "paid")
            await here.triggers.declare("paid", "both", name="t")
            event = await here.triggers.emit("paid", 1)
            # Cut off before it was marked, it is delivered again, and the run is there.
            await deliver_again(here, event)
            assert len(here.starts) == 2
            assert await here.signals(f"t:{event}") == []

    asyncio.run(main())


def test_all_pages_of_waiting_runs_are_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.declare_agent("listens", "paid")
            await asyncio.gather(*(here.waiting_run(f"r_{number}", "listens") for number in range(1201)))
            await here.triggers.emit("paid", 1)
            counts = [len(await here.signals(f"r_{number}")) for number in range(1201)]
            assert counts == [1] * 1201

    asyncio.run(main())


def test_a_run_that_refuses_a_signal_does_not_keep_it_from_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            refusals: dict[str, Exception] = {"r_1": UsageError("wrong shape"), "r_2": RunFinished("over")}

            async def send(run_id: str, name: str, value: str, dedup: str) -> bool:
                if run_id in refusals:
                    raise refusals[run_id]
                return await here.send(run_id, name, value, dedup)

            triggers = Triggers(here.store, here.start, send=send)
            await here.declare_agent("listens", "paid")
            for number in range(4):
                await here.waiting_run(f"r_{number}", "listens")
            with logged() as log:
                await triggers.emit("paid", 1)
            assert [len(await here.signals(f"r_{number}")) for number in range(4)] == [1, 0, 0, 1]
            assert [fields["run"] for fields in log.named("event.signal_refused")] == ["r_1"]
            assert await triggers.deliver_due(clock.now_us() + CLAIM_US) == 0

    asyncio.run(main())


# failures


def test_an_event_whose_run_cannot_be_started_comes_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("x", "a", name="t")
            here.fails = UsageError("nobody knows agent a")
            with logged() as log:
                event = await here.triggers.emit("x", 1)
            assert [fields["run"] for fields in log.named("trigger.start_failed")] == [f"t:{event}"]
            info = (await here.triggers.list())[0]
            assert (info.received, info.started) == (0, 0)
            assert info.recent[-1].what == "failed"
            assert "nobody knows agent a" in info.recent[-1].detail
            assert await here.triggers.deliver_due(clock.now_us()) == 0
            now = clock.now_us() + 1_500_000
            with logged():
                assert await here.triggers.deliver_due(now) == 0  # fails again, and waits for longer
            here.fails = None
            assert await here.triggers.deliver_due(now + 1_500_000) == 0
            assert await here.triggers.deliver_due(now + 2_500_000) == 1
            assert await here.inputs() == [1]
            assert [note.what for note in (await here.triggers.list())[0].recent] == ["failed", "failed", "started"]

    asyncio.run(main())


def test_an_event_that_could_not_be_delivered_in_all_the_time_is_given_up_aloud(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("x", "a", name="t")
            here.fails = UsageError("never")
            with logged() as log:
                event = await here.triggers.emit("x", 1)
                late = clock.now_us() + KEPT_US + 10_000_000
                await here.triggers.deliver_due(late)
                # Its time alone is no reason: the clock of whoever emitted it may have been behind.
                assert log.named("event.given_up") == []
                while not log.named("event.given_up"):
                    late += 3_700_000_000
                    await here.triggers.deliver_due(late)
            assert [fields["id"] for fields in log.named("event.given_up")] == [event]
            here.fails = None
            assert await here.triggers.deliver_due(late + CLAIM_US) == 0

    asyncio.run(main())


def test_an_event_that_is_stored_is_no_failure_of_emit_when_the_store_fails_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:

            async def send(run_id: str, name: str, value: str, dedup: str) -> bool:
                raise StoreError("the disk is busy")

            await here.declare_agent("listens", "paid")
            await here.waiting_run("r_1", "listens")
            event = await Triggers(here.store, here.start, send=send).emit("paid", 1)
            assert await here.triggers.deliver_due(clock.now_us() + CLAIM_US) == 1
            assert await here.signals("r_1") == [("paid", 1, event)]

    asyncio.run(main())


def test_delivered_events_are_forgotten_after_a_week(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("x", "a", name="t")
            event = await here.triggers.emit("x", 1, dedup="one")
            now = clock.now_us()
            assert await here.triggers.forget_old(now + KEPT_US - 60_000_000) == 0
            assert [each.name for each in await here.store.definitions("event")] == [event]
            assert await here.triggers.forget_old(now + KEPT_US) == 1
            assert await here.store.definitions("event") == []
            await here.triggers.emit("x", 2)
            await here.triggers.deliver_due(clock.now_us() + KEPT_US)
            assert await here.store.definitions("event") == []
            assert len(await here.runs()) == 2

    asyncio.run(main())


# crashes


async def deliver_again(here: World, event: str) -> None:
    """As if the process that delivered it had died before it could say so."""
    stored = (await here.store.definitions("event", names=[event]))[0]
    body = {name: value for name, value in json.loads(stored.body).items() if name != "delivered"}
    now = clock.now_us()
    again = type(stored)("event", event, json.dumps(body), stored.revision + 1, now)
    assert await here.store.define([again]) == [True]
    assert await here.triggers.deliver_due(now) == 1


@pytest.mark.parametrize("point", ["event.before_delivery", "event.after_delivery", "define.after_commit"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_process_killed_while_it_delivers_leaves_nothing_undone_and_nothing_done_twice(
    tmp_path: Path, forkserver: ForkServer, point: str, count: int
) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("paid", "ship", name="t")
            await here.triggers.declare("paid", "audit", name="u")
            await here.declare_agent("listens", "paid")
            await here.waiting_run("r_1", "listens")
            events = [await emit(here.store, "paid", value=n, dedup=None, now=clock.now_us()) for n in range(3)]
            with process(tmp_path, forkserver, fault=f"{point}:kill@{count}") as killed:
                assert await killed.wait_dead() == -9
            with process(tmp_path, forkserver):
                await eventually(lambda: has_delivered(here, 3))
            assert sorted(row.id for row in await here.runs()) == sorted(f"{t}:{e}" for t in "tu" for e in events)
            assert sorted(await here.signals("r_1")) == sorted(("paid", n, e) for n, e in enumerate(events))

    asyncio.run(main())


async def has_delivered(here: World, count: int) -> bool:
    stored = await here.store.definitions("event")
    return sum("delivered" in json.loads(each.body) for each in stored) == count


def test_events_of_a_dead_emitter_are_delivered_by_a_worker_and_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.declare_agent("listens", "n")
            await here.waiting_run("r_1", "listens")
            start = clock.now_us()
            for number in range(120):
                await emit(here.store, "n", value=number, dedup=None, now=start + number)
            assert await here.triggers.deliver_due(clock.now_us()) == 120
            assert [value for _, value, _ in await here.signals("r_1")] == list(range(120))

    asyncio.run(main())


def test_a_password_in_a_url_is_not_shown(tmp_path: Path) -> None:
    from holdfast.automation.triggers.sources import NatsQueue

    async def main() -> None:
        async with world(tmp_path) as here:
            queue = NatsQueue("nats://me:se@cret@h:1,nats://tok@h:2,nats://h:3", stream="S", subject="s", durable="d")
            info = await here.triggers.declare(queue, "a")
            assert info.config["url"] == "nats://…@h:1,nats://…@h:2,nats://h:3"
            assert (await here.triggers.list())[0].config == info.config

    asyncio.run(main())


def test_a_source_says_what_is_wrong_with_it() -> None:
    for arguments, more in (
        (("",), {}),
        (("inbox/",), {}),
        (("x",), {"settle": -1}),
        (("x",), {"settle": "1"}),
        (("x",), {"kinds": ()}),
        (("x",), {"kinds": "created"}),
        (("x",), {"kinds": ("renamed",)}),
    ):
        with pytest.raises(UsageError):
            FileChange(*arguments, **more)
