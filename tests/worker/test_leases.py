"""Who owns a run: a lease is kept as long as its process works, and not a moment longer."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from holdfast.base.clock import monotonic_us
from holdfast.base.config import Settings
from holdfast.errors import StoreError
from holdfast.model import WorkerId
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.processes import environment
from holdfast.worker.leases import Lease
from tests.eventually import eventually, eventually_now
from tests.worker.logged import logged

QUICK = Settings(lease_s=0.6, renew_s=0.1, block_warning_s=60)


async def opened(path: Path, settings: Settings, kind: type[SqliteStore] = SqliteStore) -> tuple[SqliteStore, Lease]:
    store = kind(str(path))
    await store.open()
    lease = Lease(store, settings)
    await lease.open()
    return store, lease


def test_a_loop_that_is_blocked_for_longer_than_a_lease_keeps_it(tmp_path: Path) -> None:
    async def main() -> None:
        store, lease = await opened(tmp_path / "s.db", Settings(lease_s=2.0, renew_s=0.1, block_warning_s=60))
        end = monotonic_us() + 2_200_000
        least = 2.0

        def look() -> bool:
            nonlocal least
            least = min(least, lease.remaining_s())
            return monotonic_us() > end

        eventually_now(look)
        assert least > 0
        await lease.close()
        await store.close()

    with logged() as log:
        asyncio.run(main())
    assert log.events == []


def test_a_loop_that_stands_still_for_too_long_loses_it_and_gets_it_back_by_turning(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(lease_s=0.6, renew_s=0.1, block_warning_s=60, stall_limit_s=0.5)
        store, lease = await opened(tmp_path / "s.db", settings)
        began = monotonic_us()
        eventually_now(lambda: lease.remaining_s() < -0.3)
        assert monotonic_us() - began > 500_000 + 300_000
        assert not lease.trusts_leases()
        await eventually(lambda: lease.remaining_s() > 0.3)
        assert not lease.is_lost
        await lease.close()
        await store.close()

    with logged() as log:
        asyncio.run(main())
    assert [event for event, _ in log.events][:2] == ["lease.stalled", "lease.late"]


def test_a_worker_whose_row_is_gone_knows_that_it_lost_everything(tmp_path: Path) -> None:
    async def main() -> None:
        store, lease = await opened(tmp_path / "s.db", QUICK)
        assert not lease.is_lost
        await store.remove_worker(lease.worker_id)
        await eventually(lambda: lease.is_lost)
        await eventually(lambda: lease.remaining_s() < -0.1)
        assert not lease.trusts_leases()
        await lease.close()
        await store.close()

    with logged() as log:
        asyncio.run(main())
    assert [event for event, _ in log.events if event != "lease.late"] == ["lease.lost"]


def test_the_store_has_answered_as_long_as_the_loop_turns_be_it_that_it_cannot(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(lease_s=0.6, renew_s=0.1, block_warning_s=60, stall_limit_s=0.5)
        store, lease = await opened(tmp_path / "s.db", settings, Refusing)
        first_us = lease.answered_us
        await eventually(lambda: lease.answered_us > first_us)
        assert lease.remaining_s() < 0.6
        eventually_now(lambda: lease.remaining_s() < -1.0)  # the loop stands still
        assert monotonic_us() - lease.answered_us > 300_000
        stalled_us = lease.answered_us
        await eventually(lambda: lease.answered_us > stalled_us)
        await lease.close()
        await store.close()

    with logged() as log:
        asyncio.run(main())
    assert {event for event, _ in log.events} == {"lease.not_renewed", "lease.stalled"}


class Refusing(SqliteStore):
    """Says that it cannot."""

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        raise StoreError("no room")


class Counting(SqliteStore):
    """Counts renewals."""

    sent: list[int]

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        self.__dict__.setdefault("sent", []).append(lease_until_ms)
        return await super().renew_worker(worker_id, lease_until_ms)


def test_the_thread_looks_often_and_renews_only_when_it_is_time(tmp_path: Path) -> None:
    async def main() -> list[int]:
        settings = Settings(lease_s=10, renew_s=0.5, block_warning_s=0.1)
        store, lease = await opened(tmp_path / "s.db", settings, Counting)
        assert isinstance(store, Counting)
        await eventually(lambda: len(store.__dict__.get("sent", ())) == 3)
        await lease.close()
        await store.close()
        return store.sent

    first, second, third = asyncio.run(main())
    assert second - first >= 500
    assert third - second >= 500


class Stuck(SqliteStore):
    """Renewals do not come back until `go`."""

    go = threading.Event()

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        await asyncio.get_running_loop().run_in_executor(None, self.go.wait, 60)
        return await super().renew_worker(worker_id, lease_until_ms)


def test_a_renewal_that_hangs_does_not_hide_a_blocked_loop(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(lease_s=0.6, renew_s=0.1, block_warning_s=0.3)
        store, lease = await opened(tmp_path / "s.db", settings, Stuck)
        await eventually(lambda: lease.remaining_s() < 0)
        assert not lease.trusts_leases()
        assert log.is_blocked.wait(60)
        Stuck.go.set()
        await eventually(lambda: lease.remaining_s() > 0)
        assert not lease.trusts_leases()  # the others were as stuck: they have as long as a lease lasts
        await eventually(lease.trusts_leases)
        await lease.close()
        await store.close()

    with logged() as log:
        asyncio.run(main())
    assert str(log.named("loop.blocked")[0]["function"]).endswith(".main")


class Failing(SqliteStore):
    """The first two renewals fail."""

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        failed = self.__dict__["failed"] = self.__dict__.get("failed", 0) + 1
        if failed <= 2:
            raise StoreError("the disk is full")
        return await super().renew_worker(worker_id, lease_until_ms)


def test_a_renewal_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        store, lease = await opened(tmp_path / "s.db", QUICK, Failing)
        await eventually(lambda: store.__dict__.get("failed", 0) > 2 and lease.remaining_s() > 0)
        await lease.close()
        await store.close()

    with logged() as log:
        asyncio.run(main())
    assert [event for event, _ in log.events if event != "lease.late"] == ["lease.not_renewed"] * 2
    assert "the disk is full" in str(log.events[0][1]["error"])


def test_closing_does_not_wait_for_the_next_look(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(lease_s=10_000, renew_s=3600, block_warning_s=3600, stall_limit_s=10_000)
        store, lease = await opened(tmp_path / "s.db", settings)
        await lease.close()
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 60))


WORKER = """
import asyncio, logging, sys
from holdfast.base.config import Settings
from holdfast.store.sqlite.store import SqliteStore
from holdfast.worker.leases import Lease

logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)

async def main():
    settings = Settings(lease_s=1.0, renew_s=0.1, block_warning_s=0.9)
    store = SqliteStore(sys.argv[1])
    await store.open()
    lease = Lease(store, settings)
    await lease.open()
    known = None
    while True:
        trusts = lease.trusts_leases()
        if trusts != known:
            print("trusts" if trusts else "distrusts", store.lease_clock_ms(), flush=True)
            known = trusts
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


def test_a_process_that_was_stopped_does_not_trust_expired_leases_for_a_while(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path / "s.db")], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert worker.stdout is not None
    try:
        assert worker.stdout.readline().startswith("trusts ")
        worker.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        worker.send_signal(signal.SIGCONT)
        word, woken_ms = worker.stdout.readline().split()
        assert word == "distrusts"
        word, again_ms = worker.stdout.readline().split()
        assert word == "trusts"
        assert int(again_ms) - int(woken_ms) >= 950
    finally:
        worker.kill()
        worker.stdout.close()
        worker.wait()
