"""A backfill, and a schedule that is declared anew meanwhile, by processes that die or stop: one time, one run."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast as hf
from tests.forkserver import Forked, ForkServer
from tests.stores import forkserver
from tests.worker import tenants

__all__ = ["forkserver"]

pytestmark = pytest.mark.postgres

#: Two hours and a half, a time each minute: more than is claimed at once. Before all that fires by itself.
FIRST, LAST, TIMES = datetime(2024, 11, 16, 9, 1, tzinfo=UTC), datetime(2024, 11, 16, 11, 30, tzinfo=UTC), 150


def backfill(url: str, generation: int) -> None:
    """Declare the schedule in a way of its own, and backfill."""

    async def main() -> None:
        async with hf.connect(url) as app:
            await declare_and_backfill(app, generation)

    asyncio.run(main())


async def declare_and_backfill(app: hf.Holdfast, generation: int) -> None:
    await app.schedule("s", tenants.quick(f"declared {generation}"), cron="* * * * *")
    await app.backfill_schedule("s", FIRST, LAST)


async def instants(app: hf.Holdfast) -> Counter[str]:
    """Those of the backfill: a minute may begin while the test runs, and have a run of its own."""
    found = (run.id.split(":")[2] for run in await app.runs(limit=5000))
    return Counter(each for each in found if each <= f"{LAST:%Y%m%dT%H%M%SZ}")


def wanted() -> Counter[str]:
    return Counter((FIRST + timedelta(minutes=n)).strftime("%Y%m%dT%H%M%SZ") for n in range(TIMES))


BEFORE, AFTER = "schedule.before_start", "schedule.after_start"
FAULTS = [f"{point}:kill@{passed}" for point in (BEFORE, AFTER) for passed in (1, 40, 100, 101, 149)]
#: Elsewhere it may be in the middle of a commit, and hold up everybody.
FAULTS += [f"{BEFORE}:stop@{passed}" for passed in (1, 101)]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_claimed_for_a_backfill_is_started_once_though_it_is_declared_anew(
    forkserver: ForkServer, tmp_path: Path, fault: str
) -> None:
    url = forkserver.store_url(tmp_path)

    async def main() -> None:
        old = forkserver.start(backfill, log=tmp_path / "log.txt", fault=fault, url=url, generation=1)
        await (old.wait_dead() if "kill" in fault else old.wait_stopped())
        async with hf.connect(url) as app:
            await declare_and_backfill(app, 2)
            assert await instants(app) == wanted()
            old.go_on()
            await old.wait_dead()
            assert await instants(app) == wanted()

    asyncio.run(main())


def test_many_that_declare_and_backfill_at_once_start_each_time_once(forkserver: ForkServer, tmp_path: Path) -> None:
    url = forkserver.store_url(tmp_path)

    async def main() -> None:
        async with hf.connect(url) as app:
            several: list[Forked] = [
                forkserver.start(backfill, log=tmp_path / "log.txt", url=url, generation=n) for n in range(1, 5)
            ]
            for each in several:
                assert await each.wait_dead() == 0, (tmp_path / "log.txt").read_text()
            assert await instants(app) == wanted()

    asyncio.run(main())
