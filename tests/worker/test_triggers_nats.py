"""Messages of a real NATS server: each starts one run, whoever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext

from holdfast.automation.triggers import NatsQueue, TriggeredStart, Triggers, registry
from holdfast.errors import StoreError, UsageError
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.worker.logged import logged
from tests.worker.nats_server import Server, server
from tests.worker.outside import World, counted, going, process, world

__all__ = ["server"]

#: Rows are made up: nobody executes these runs.
pytestmark = pytest.mark.corrupts


async def has(here: World, *data: object) -> None:
    """Wait until exactly these messages have started runs."""

    async def is_there() -> bool:
        return len(await here.runs()) >= len(data)

    await eventually(is_there)
    assert sorted(map(str, await data_of(here))) == sorted(map(str, data))


async def data_of(here: World) -> list[object]:
    found: list[Any] = await here.inputs()
    return [each["data"] for each in found]


def test_a_message_starts_a_run_and_is_acknowledged(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            where = {"subject": {"ne": "orders.old"}}
            await here.triggers.declare(
                server.queue(), "take", name="t", where=where, queue="slow", queue_key="{data.customer}"
            )
            async with going(here):
                await server.publish(b'{"id": 7, "customer": "c-9"}', headers={"Trace": "abc"})
                await server.publish(b"no json {", b"\xff\x00", b"")
                await server.publish(b"1", subject="orders.old")
                await has(here, {"id": 7, "customer": "c-9"}, "no json {", {"$bytes": "/wA="}, "")
                await eventually(server.is_all_acknowledged)
                await counted(here, received=5, matched=4, started=4)
            value = here.starts[0].value
            assert (value.subject, value.headers, value.sequence) == ("orders.new", {"Trace": "abc"}, 1)
            assert [start.value.data for start in here.starts][2] == b"\xff\x00"
            run = (await here.runs())[0]
            assert (run.agent, run.queue, run.queue_key) == ("take", "slow", "c-9")
            assert run.id.startswith("t:ORDERS:1:")
            info = (await here.triggers.list())[0]
            assert sorted(note.what for note in info.recent) == ["ignored"] + ["started"] * 4

    asyncio.run(main())


def test_a_message_starts_its_run_at_once(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the time for a fetch is over: that is never."""
    monkeypatch.setattr("holdfast.automation.triggers.nats._FETCH_S", 3600)

    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            async with going(here):
                for number in range(3):
                    await server.publish(f"{number}".encode())
                    await has(here, *range(number + 1))

    asyncio.run(main())


def test_a_worker_killed_before_it_acknowledged_gets_the_message_again_and_starts_no_second_run(
    tmp_path: Path, forkserver: ForkServer, server: Server
) -> None:
    async def main() -> None:
        await server.create_stream()
        await server.publish(b"1")
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            with process(tmp_path, forkserver, kills=True) as killed:
                assert await killed.wait_dead() == -9
            assert await data_of(here) == [1]
            assert (await server.consumer()).num_ack_pending == 1
            async with going(here):
                await eventually(server.is_all_acknowledged)
            assert [start.run_id for start in here.starts] == [(await here.runs())[0].id]
            assert await data_of(here) == [1]

    asyncio.run(main())


def test_workers_share_the_messages(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as one, world(tmp_path) as two:
            await one.triggers.declare(server.queue(ack_wait=30.0), "take", name="t")
            async with going(one), going(two):
                await server.publish(*(f"{number}".encode() for number in range(300)))
                await has(one, *range(300))
                await eventually(server.is_all_acknowledged)
            assert len(one.starts) + len(two.starts) == 300

    asyncio.run(main())


def test_a_run_that_cannot_be_started_comes_again(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(ack_wait=30.0), "take", name="t")
            here.fails = StoreError("the disk is busy")
            with logged() as log:
                async with going(here):
                    await server.publish(b"1")

                    async def has_tried() -> bool:
                        return len(here.starts) >= 2

                    await eventually(has_tried)
                    here.fails = None
                    await has(here, 1)
                    await eventually(server.is_all_acknowledged)
                    await counted(here, received=1, matched=1, started=1)
            assert len(log.named("trigger.start_failed")) >= 2
            info = (await here.triggers.list())[0]
            assert [note.what for note in info.recent][-3:] == ["failed", "failed", "started"]

    asyncio.run(main())


def test_a_slow_start_is_no_reason_for_the_server_to_ask_another_worker(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            starts: list[str] = []

            async def start(wanted: TriggeredStart) -> bool:
                starts.append(wanted.run_id)
                await asyncio.sleep(2.5)
                return await here.start(wanted)

            here.triggers = Triggers(here.store, start, send=here.send)
            await here.triggers.declare(server.queue(ack_wait=2.0), "take", name="t")
            async with going(here):
                await server.publish(b"1")
                await has(here, 1)
                await eventually(server.is_all_acknowledged)
            assert len(starts) == 1
            delivered = (await server.consumer()).delivered
            assert delivered is not None
            assert delivered.consumer_seq == 1

    asyncio.run(main())


def test_a_server_that_is_killed_and_comes_back_loses_nothing(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            with logged():
                async with going(here):
                    await server.publish(b"1")
                    await has(here, 1)
                    for number in (2, 3):
                        server.kill()
                        server.start()
                        await server.publish(f"{number}".encode())
                        await has(here, *range(1, number + 1))
                    await eventually(server.is_all_acknowledged)

    asyncio.run(main())


def test_a_server_and_a_stream_that_come_later_are_waited_for(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        server.kill()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            with logged() as log:
                async with going(here):
                    await eventually(lambda: log.named("trigger.nats_failed"))
                    server.start()

                    async def says_what_is_missing() -> bool:
                        notes = (await here.triggers.list())[0].recent
                        return any("no stream 'ORDERS'" in note.detail for note in notes)

                    await eventually(says_what_is_missing)
                    await server.create_stream()
                    await server.publish(b"1")
                    await has(here, 1)
            assert log.named("trigger.nats_failed")

    asyncio.run(main())


def test_a_consumer_that_was_deleted_is_made_again(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            with logged():
                async with going(here):
                    await server.publish(b"1")
                    await has(here, 1)
                    await eventually(server.is_all_acknowledged)
                    async with server.connected() as context:
                        await context.delete_consumer("ORDERS", "holdfast")
                    await server.publish(b"2")
                    await has(here, 1, 2)  # the first one came again, and was known

    asyncio.run(main())


def test_a_stream_that_is_made_again_has_new_messages(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            with logged():
                async with going(here):
                    await server.publish(b"1")
                    await has(here, 1)
                    async with server.connected() as context:
                        await context.delete_stream("ORDERS")
                    await server.create_stream()
                    await server.publish(b"2")
                    await has(here, 1, 2)
            assert [row.id.split(":")[2] for row in await here.runs()] == ["1", "1"]

    asyncio.run(main())


def test_a_paused_trigger_leaves_its_messages_in_the_stream(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            async with going(here):
                await server.publish(b"1")
                await has(here, 1)
                await eventually(server.is_all_acknowledged)
                await here.triggers.pause("t")
                await eventually(server.has_nobody_waiting)
                await server.publish(b"2")
                assert (await server.consumer()).num_pending == 1
                assert len(await here.runs()) == 1
                await here.triggers.resume("t")
                await has(here, 1, 2)

    asyncio.run(main())


def test_without_the_driver_the_trigger_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    async def main() -> None:
        async with world(tmp_path) as here:
            queue = NatsQueue("nats://127.0.0.1:1", stream="S", subject="s", durable="d")
            await here.triggers.declare(queue, "take", name="t")
            with logged():
                async with going(here):

                    async def says_it() -> bool:
                        notes = (await here.triggers.list())[0].recent
                        return any("pip install 'holdfast[nats]'" in note.detail for note in notes)

                    await eventually(says_it)

    monkeypatch.setitem(sys.modules, "holdfast.automation.triggers.nats", None)
    asyncio.run(main())


@pytest.mark.parametrize("where", ["connect", "subscribe", "fetch"])
def test_it_stops_when_the_driver_swallows_the_cancellation(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    is_reached = asyncio.Event()

    def deaf(method: Any) -> Any:
        async def called(*given: Any, **more: Any) -> Any:
            result = await method(*given, **more) if where != "fetch" else None
            is_reached.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            if where == "fetch":
                raise TimeoutError
            return result

        return called

    owner, name = {
        "connect": (nats, "connect"),
        "subscribe": (JetStreamContext, "pull_subscribe"),
        "fetch": (JetStreamContext.PullSubscription, "fetch"),
    }[where]

    async def main() -> None:
        await server.create_stream()
        monkeypatch.setattr(owner, name, deaf(getattr(owner, name)))
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            async with going(here):
                await is_reached.wait()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_it_is_told_again_to_stop_if_the_driver_goes_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it tries to connect for ever, because nobody is there."""
    monkeypatch.setattr(registry, "_STOP_AGAIN_S", 0.05)
    is_reached, swallowed = asyncio.Event(), []

    async def connect(*urls: Any, **options: Any) -> None:
        for _ in range(3):
            is_reached.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            swallowed.append(options["name"])
        await asyncio.Event().wait()

    async def main() -> None:
        async with world(tmp_path) as here:
            await here.triggers.declare(
                NatsQueue("nats://127.0.0.1:1", stream="S", subject="s", durable="d"), "take", name="t"
            )
            async with going(here):
                await is_reached.wait()

    monkeypatch.setattr(nats, "connect", connect)
    asyncio.run(asyncio.wait_for(main(), 60))
    assert swallowed == ["holdfast t"] * 3


@pytest.mark.parametrize(
    "changes",
    [{"stream": ""}, {"stream": "a.b"}, {"durable": "a b"}, {"subject": "a b"}, {"ack_wait": 0}, {"ack_wait": "1"}],
)
def test_a_queue_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    config: dict[str, Any] = {"stream": "S", "subject": "s", "durable": "d"}
    with pytest.raises(UsageError):
        NatsQueue("nats://h", **config | changes)


def test_what_is_stored_of_a_message_can_be_read(tmp_path: Path, server: Server) -> None:
    async def main() -> None:
        await server.create_stream()
        async with world(tmp_path) as here:
            await here.triggers.declare(server.queue(), "take", name="t")
            async with going(here):
                await server.publish(b'{"$tuple": [1], "nan": NaN}', b"9" * 5000)
                await eventually(server.is_all_acknowledged)
                assert len(await here.runs()) == 2
            assert json.loads(here.starts[0].text)["subject"] == "orders.new"

    asyncio.run(main())
