"""What can never be a run is set aside, counted and told of; it neither comes again nor keeps anything behind it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.automation.triggers import FileChange, TriggeredStart, Triggers, refused
from holdfast.automation.triggers.events import CLAIM_US
from holdfast.base import clock
from holdfast.errors import StoreError, Undecodable, UsageError
from holdfast.model import Definition
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.worker.logged import logged
from tests.worker.nats_server import Server, server
from tests.worker.outside import World, going, process, world
from tests.worker.takers import dates, ships, shows, sums

__all__ = ["server"]

#: Rows are made up: nobody executes these runs.
pytestmark = pytest.mark.corrupts

BAD_KEY = json.dumps({"customer": "c" * 300}).encode()
SETTINGS = hf.Settings(sweep_s=0.05)


async def has_refused(here: World, count: int) -> bool:
    return (await here.triggers.list())[0].refused >= count


# messages


@pytest.mark.timeout(600)
def test_more_poison_than_the_server_gives_out_does_not_keep_the_good_message_behind_it(
    tmp_path: Path, server: Server
) -> None:
    async def main() -> None:
        await server.create_stream()
        await server.publish(*[BAD_KEY] * 1_101, b'{"customer": "c-9"}')
        async with hf.connect(str(tmp_path / "runs.db"), agents=[shows], settings=SETTINGS) as app:
            with logged():
                await app.on(server.queue(ack_wait=30.0), shows, name="t", queue_key="{data.customer}")
                (run,) = await eventually(lambda: app.runs(), timeout=300)
                assert "c-9" in await app.get(run.id).result(60)
                await eventually(server.is_all_acknowledged)

                async def is_counted() -> bool:
                    counts = (await app.triggers())[0]
                    return counts.refused >= 1_101 and counts.received >= 1_102 and counts.started >= 1

                await eventually(is_counted)
            info = (await app.triggers())[0]
            assert (info.received, info.matched, info.started, info.refused) == (1_102, 1_102, 1, 1_101)
            assert {note.what for note in info.recent} == {"refused", "started"}
            aside = await app.refused_starts("t", limit=2_000)
            assert len(aside) == 1_101
            assert {each.data for each in aside} == {BAD_KEY}
            assert sorted(int(each.what.split()[1]) for each in aside) == list(range(1, 1_102))
            assert "queue_key= takes at most 200" in aside[0].why
            await app.remove_trigger("t")
            assert await app._store.definitions("refused:t") == []

    asyncio.run(main())


def test_a_worker_killed_before_the_server_hears_that_a_message_is_set_aside_sets_it_aside_once(
    tmp_path: Path, server: Server, forkserver: ForkServer
) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t", queue_key="{data.customer}")
            await server.publish(BAD_KEY)
            with process(tmp_path, forkserver, fault="trigger.after_refusal:kill") as running:
                await running.wait_dead()
            assert len(await here.triggers.refused("t")) == 1
            assert not await server.is_all_acknowledged()
            with process(tmp_path, forkserver):
                await eventually(server.is_all_acknowledged)
            assert len(await here.triggers.refused("t")) == 1

    asyncio.run(main())


def test_a_message_that_cannot_be_set_aside_now_is_not_given_up(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(ack_wait=30.0), "take", name="t", queue_key="{data.customer}")
            define, is_full = here.store.define, [True]

            async def defined(definitions: Any, **more: Any) -> list[bool]:
                if is_full[0] and any(each.kind == "refused:t" for each in definitions):
                    raise StoreError("the disk is full")
                return await define(definitions, **more)

            here.store.define = defined  # type: ignore[method-assign]
            with logged():
                async with going(here):
                    await server.publish(BAD_KEY)
                    await eventually(lambda: has_noted(here, "failed"))
                    assert not await server.is_all_acknowledged()
                    is_full[0] = False
                    await eventually(server.is_all_acknowledged)
                    await eventually(lambda: has_refused(here, 1))

    asyncio.run(main())


async def has_noted(here: World, what: str) -> bool:
    return any(note.what == what for note in (await here.triggers.list())[0].recent)


def test_json_that_is_nested_too_deep_is_text(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            texts = ["[" * depth + "]" * depth for depth in (150, 300, 100_000)]
            async with going(here):
                await server.publish(*(text.encode() for text in texts))
                await eventually(server.is_all_acknowledged)
            assert len(await here.runs()) == 3
            assert [type(start.value.data) for start in here.starts] == [list, str, str]

    asyncio.run(main())


def test_the_url_can_come_from_the_environment_of_the_worker(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        await server.create_stream()
        await server.publish(b"1")
        async with world(tmp_path) as here:
            monkeypatch.delenv("ORDERS_NATS", raising=False)
            source = hf.NatsQueue("env:ORDERS_NATS", stream="ORDERS", subject="orders.*", durable="holdfast")
            info = await here.triggers.declare(source, "take", name="t")
            assert info.config["url"] == "env:ORDERS_NATS"
            with logged() as log:
                async with going(here):
                    await eventually(lambda: log.named("trigger.nats_failed"))
                    assert "$ORDERS_NATS" in str(log.named("trigger.nats_failed")[0]["error"])
                    monkeypatch.setenv("ORDERS_NATS", server.url)
                    await eventually(lambda: here.runs())
            (stored,) = await here.store.definitions("trigger")
            assert server.url not in stored.body
            with pytest.raises(UsageError, match="env:NAME"):
                hf.NatsQueue("env:", stream="ORDERS", subject="orders.*", durable="holdfast")

    asyncio.run(main())


# events


def test_an_event_that_can_never_be_a_run_of_a_trigger_is_set_aside_and_delivered_to_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("paid", "ship", name="bad", queue_key="{customer}")
            await here.triggers.declare("paid", "ship", name="good")
            with logged() as log:
                event = await here.triggers.emit("paid", {"customer": "c\n"})
            assert [each["run"] for each in log.named("trigger.refused")] == [f"bad:{event}"]
            assert [row.id for row in await here.runs()] == [f"good:{event}"]
            assert await here.triggers.deliver_due(clock.now_us() + 10 * CLAIM_US) == 0  # it does not come again
            bad, good = await here.triggers.list()
            assert (bad.received, bad.matched, bad.started, bad.refused) == (1, 1, 0, 1)
            assert (good.started, good.refused) == (1, 0)
            assert [(note.what, note.run) for note in bad.recent] == [("refused", f"bad:{event}")]
            (aside,) = await here.triggers.refused("bad")
            assert (aside.run, aside.what, aside.data) == (f"bad:{event}", f"event {event}", b'{"customer":"c\\n"}')
            with pytest.raises(UsageError, match="no trigger"):
                await here.triggers.refused("other")

    asyncio.run(main())


def test_an_event_that_one_trigger_refuses_and_another_cannot_take_now_is_set_aside_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("paid", "ship", name="bad", queue_key="{customer}")
            await here.triggers.declare("paid", "ship", name="good")
            here.fails = StoreError("the disk is busy")
            with logged():
                await here.triggers.emit("paid", {"customer": "c" * 300})
                assert len(await here.triggers.refused("bad")) == 1
                here.fails = None
                assert await here.triggers.deliver_due(clock.now_us() + 2_000_000) == 1
            assert len(await here.triggers.refused("bad")) == 1
            assert len(await here.runs()) == 1
            assert [info.refused for info in await here.triggers.list()] == [1, 0]

    asyncio.run(main())


def test_events_that_cannot_be_read_do_not_keep_others_from_being_delivered(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("paid", "ship", name="t", where={"total": {"ne": 5}})
            now = clock.now_us()
            unread = {"event": "paid", "value": "{", "at": 1, "until": 1, "triggers": []}
            bodies = ['{"event": "paid"}', "no json", "[]", json.dumps(unread)]
            poison = [Definition("event", f"e_{n:03}", bodies[n % 4], 1, 1) for n in range(120)]
            assert all(await here.store.define(poison))
            event = await here.triggers.emit("paid", {"total": 7})
            await here.store.define([Definition("event", "e_late", "{}", 1, now)])
            with logged() as log:
                while len(log.named("event.damaged")) < 121:
                    await here.triggers.deliver_due(now)
            assert await here.store.definitions("event", due=now) == []
            assert len(await here.store.definitions("event")) == 122  # for whoever looks into it
            assert [row.id for row in await here.runs()] == [f"t:{event}"]

    asyncio.run(main())


def test_a_file_whose_run_can_never_be_is_set_aside(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "inbox").mkdir()
        async with world(tmp_path) as here:
            long = "x" * 201
            source = FileChange(str(tmp_path / "inbox" / "*.txt"), settle=0.05)
            await here.triggers.declare(source, "read", name="t", queue_key=f"{long}{{path}}")
            (tmp_path / "inbox" / "a.txt").write_text("a")
            with logged():
                async with going(here):
                    await eventually(lambda: has_refused(here, 1))
            (aside,) = await here.triggers.refused("t")
            assert json.loads(aside.data)["path"] == str(tmp_path / "inbox" / "a.txt")
            (cursor,) = await here.store.definitions("file:t")
            assert cursor.due_at is None

    asyncio.run(main())


def test_what_was_set_aside_is_forgotten_after_a_month(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare("paid", "ship", name="t", queue_key="{customer}")
            with logged():
                await here.triggers.emit("paid", {"customer": "\n"})
                clock.shift_us(refused.KEPT_US + 1_000_000)
                second = await here.triggers.emit("paid", {"customer": "\n"})
            assert [each.what for each in await here.triggers.refused("t")] == [f"event {second}"]

    try:
        asyncio.run(main())
    finally:
        clock.reset()


def test_a_queue_that_no_run_can_wait_in_is_refused_when_the_trigger_is_declared(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            with pytest.raises(UsageError, match="queue="):
                await here.triggers.declare("paid", "ship", queue="a@b")

    asyncio.run(main())


def test_a_start_that_says_it_never_can_be_is_not_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as here:
            tries: list[str] = []

            async def start(wanted: TriggeredStart) -> bool:
                tries.append(wanted.run_id)
                raise Undecodable("it does not fit")

            triggers = Triggers(here.store, start, send=here.send)
            await triggers.declare("paid", "ship", name="t")
            with logged():
                await triggers.emit("paid", 1)
            assert await triggers.deliver_due(clock.now_us() + 100_000_000) == 0
            assert len(tries) == 1

    asyncio.run(main())


# values


def test_what_does_not_fit_the_argument_of_the_agent_is_set_aside_and_no_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[ships], settings=SETTINGS) as app:
            await app.on("paid", ships, name="t")
            await app.emit("paid", {"id": "many", "city": "Bern"})
            good = await app.emit("paid", {"id": 7, "city": "Bern"})
            assert await app.get(f"t:{good}").result(60) == "Bern"
            assert len(await app.runs()) == 1
            (aside,) = await app.refused_starts("t")
            assert "does not fit order= of agent 'ships': id: expected an integer, got 'many'" in aside.why
            assert [(info.started, info.refused) for info in await app.triggers()] == [(1, 1)]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("agent", "value", "result"),
    [
        (sums, [1, 2], 3),
        (sums, {"$set": [1, 2]}, 3),
        (sums, {1, 2}, 3),
        (dates, "2026-11-16", "2026-11-16"),
        (dates, {"$date": "2026-11-16"}, "2026-11-16"),
        (shows, {"$set": [1]}, "{'$set': [1]}"),
        (shows, {1}, "{1}"),
        (shows, {"a": {"$bytes": "AA=="}}, "{'a': {'$bytes': 'AA=='}}"),
    ],
)
def test_values_from_outside_are_plain_json_and_tags_are_read_where_the_argument_asks_for_them(
    tmp_path: Path, agent: Any, value: object, result: object
) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[agent], settings=SETTINGS) as app:
            await app.on("happened", agent, name="t")
            event = await app.emit("happened", value)
            assert await app.get(f"t:{event}").result(60) == result

    asyncio.run(main())
