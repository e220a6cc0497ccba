"""Webhooks to a server that is killed again and again: what it accepted has started one run, anything else nothing."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.automation.triggers.events import EVENT
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.server.signing import SHARED, signed

LARGEST = 1 << 20
SENDERS = 4


@hf.agent
async def take(order: str) -> str:
    return order


@dataclass(frozen=True, slots=True)
class Delivery:
    """What somebody sends. It is right, or it must be refused."""

    order: str
    is_right: bool
    fault: str = ""

    def request(self) -> tuple[bytes, dict[str, str]]:
        body, now = f'"{self.order}"'.encode(), int(time.time())
        match self.fault:
            case "forged":
                return body, signed(body, self.order, secret=b"not the secret of the shop")
            case "old":
                return body, signed(body, self.order, at=now - 600)
            case "altered":
                return body, signed(b'"another"', self.order)
            case "unsigned":
                return body, {}
            case "large":
                body = b'"' + b"x" * LARGEST + b'"'
        return body, signed(body, self.order)


def deliveries(count: int, chance: random.Random) -> list[Delivery]:
    """Half of them are right and some of these come more than once; the others are each wrong in one way."""
    made: list[Delivery] = []
    for number in itertools.count():
        if len(made) >= count:
            break
        if chance.random() < 0.5:
            made += [Delivery(f"order-{number}", is_right=True)] * chance.choice([1, 1, 2, 3])
        else:
            fault = chance.choice(["forged", "old", "altered", "unsigned"] * 6 + ["large"])
            made.append(Delivery(f"order-{number}", is_right=False, fault=fault))
    chance.shuffle(made)
    return made


class Shop:
    """Those who deliver. They try again until they are answered, as such services do."""

    def __init__(self, port: int, planned: list[Delivery]) -> None:
        self._port = port
        self._planned: Iterator[Delivery] = iter(planned)
        self._next = threading.Lock()
        self.answered = 0
        self.accepted: set[str] = set()
        self.wrong: list[tuple[Delivery, int]] = []

    def deliver_all(self) -> None:
        while (delivery := self._take()) is not None:
            status = self._deliver(delivery)
            with self._next:
                self.answered += 1
                if status == 202:
                    self.accepted.add(delivery.order)
                if (status == 202) != delivery.is_right:
                    self.wrong.append((delivery, status))

    def _take(self) -> Delivery | None:
        with self._next:
            return next(self._planned, None)

    def _deliver(self, delivery: Delivery) -> int:
        give_up = time.monotonic() + 300
        while True:
            body, headers = delivery.request()
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
                try:
                    connection.request("POST", "/hooks/shop", body, {"Content-Type": "application/json"} | headers)
                    status = connection.getresponse().status
                finally:
                    connection.close()
                if status < 500:
                    return status
            if delivery.fault == "large":
                return 413  # it is refused before all of it was read, so perhaps the answer is not
            assert time.monotonic() < give_up, f"{delivery} was never answered"
            time.sleep(0.02)


def storm(commands: Commands, planned: list[Delivery], kills: int, chance: random.Random) -> Shop:
    """Deliver all that, to a server that is killed as often while it is under way."""
    (commands.folder / "hooks.toml").touch(0o600)
    (commands.folder / "hooks.toml").write_text(f'[shop]\nevent = "paid"\nsecret = "{SHARED}"\n')
    port = "0"
    shop: Shop | None = None
    senders: list[Future[None]] = []
    moments = sorted(chance.sample(range(1, len(planned) - 50), kills))
    with ThreadPoolExecutor(SENDERS) as pool:
        for moment in (*moments, None):
            server = commands.start("serve", "--port", port, "--hooks", "hooks.toml")
            try:
                assert server.stdout is not None
                line = server.stdout.readline()
                assert line.startswith("http://"), server.communicate(timeout=60)
                if shop is None:
                    port = line.split(":")[2].split("/")[0]
                    shop = Shop(int(port), planned)
                    senders = [pool.submit(shop.deliver_all) for _ in range(SENDERS)]
                while shop.answered < moment if moment is not None else not all(each.done() for each in senders):
                    for each in senders:
                        if each.done():
                            each.result()  # what ended it, if anything did
                    assert server.poll() is None, server.communicate()
                    time.sleep(0.005)
            finally:
                server.kill()
                server.communicate()
    assert shop is not None
    return shop


async def _all_of(app: hf.Holdfast, count: int) -> list[hf.RunInfo]:
    runs = await app.runs(agent="take", limit=2 * count)
    return runs if len(runs) >= count else []


@pytest.mark.parametrize(
    ("count", "kills"),
    [pytest.param(250, 3, id="few"), pytest.param(10_000, 60, id="many", marks=pytest.mark.prove)],
)
def test_each_delivery_that_was_accepted_started_one_run_and_no_other_any(
    tmp_path: Path, forkserver: ForkServer, count: int, kills: int
) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED", "7"))
    chance = random.Random(seed)
    planned = deliveries(count, chance)
    commands = Commands(tmp_path, forkserver, writes_agents=False)

    async def listen() -> None:
        async with hf.connect(commands.store) as app:
            await app.on("paid", take, name="ship")

    async def orders(events: int) -> list[str]:
        """What the runs of so many events have taken. Those of a server that died are found a little later."""
        async with hf.connect(commands.store, agents=[take]) as app:
            assert len(await app._store.definitions(EVENT)) == events
            runs = await eventually(lambda: _all_of(app, events), timeout=600)
            return sorted(await asyncio.gather(*(app.get(run.id, take).result() for run in runs)))

    asyncio.run(listen())
    shop = storm(commands, planned, kills, chance)
    assert shop.wrong == [], f"seed {seed}"
    assert shop.accepted == {each.order for each in planned if each.is_right}
    assert asyncio.run(orders(len(shop.accepted))) == sorted(shop.accepted), f"seed {seed}"
