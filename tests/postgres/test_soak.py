"""Nothing is lost and nothing happens twice while workers are killed and PostgreSQL crashes."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.postgres import PostgresServer
from tests.eventually import eventually
from tests.postgres.soak import CRASH_S, Plan, crashing, seed, soak


@pytest.mark.parametrize(
    ("plan", "crash_s"),
    [
        pytest.param(Plan(seed(), seconds=5, runs=40, calm_s=60, least_kills=2, least_crashes=1), (1.0, 2.5), id="5 s"),
        pytest.param(Plan(seed(), seconds=600), CRASH_S, id="10 min", marks=pytest.mark.prove),
    ],
)
def test_a_storm_of_kills_and_crashes_loses_nothing_and_repeats_nothing(
    tmp_path: Path, plan: Plan, crash_s: tuple[float, float]
) -> None:
    with PostgresServer(tmp_path / "server") as server:
        url = server.url(server.create_database("soak"))
        found = soak(plan, tmp_path / "trial", url, crashing(server, crash_s))
    found.assert_well()
    assert found.kills >= plan.seconds / plan.kill_s[1] / 2
    assert found.crashes.total() >= plan.seconds / crash_s[1] / 3


class SlowServer:
    """Takes its time to stop, and tells when it was told what."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.stops = threading.Event()

    def stop(self, how: str = "") -> None:
        self.stops.set()
        time.sleep(0.3)
        self.told.append("stopped")

    kill = stop

    def start(self) -> None:
        self.told.append("started")


def test_a_storm_that_is_cancelled_while_it_stops_the_server_starts_it_behind_that() -> None:
    server: Any = SlowServer()

    async def main() -> None:
        found: Any = None  # it is cancelled before it has counted anything
        storm = asyncio.create_task(crashing(server, (0.0, 0.0))(found, random.Random(1)))
        await eventually(server.stops.is_set)
        storm.cancel()
        await asyncio.wait({storm})

    asyncio.run(main())
    assert server.told == ["stopped", "started"]
