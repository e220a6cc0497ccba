"""The server is lost for good, and its standby takes its place: nobody has to tell the workers."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.testing.postgres import PostgresServer
from tests.postgres.soak import Plan, Soaked, seed, soak

#: What is acknowledged meanwhile would be lost, if the standby did not have it.
_LAST_S = 0.2


def children(server: PostgresServer) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == server.pid:
                found.append(int(path.parent.name))
    return found


def command_of(pid: int) -> str:
    """What a process calls itself; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Pair:
    """A primary and its synchronous standby, which change places."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 1
        self.primary = PostgresServer(folder / "1")
        self.primary.start()
        self.database = self.primary.create_database("pair")
        self.standby = self._new_standby()

    @property
    def url(self) -> str:
        """Of whichever of the two takes writes."""
        one, other = self.primary.url(self.database), self.standby.url(self.database)
        who, _, rest = one.rpartition("@")
        return (
            f"{who}@{rest.partition('/')[0]},{other.rpartition('@')[2].partition('/')[0]}/{self.database}"
            "?target_session_attrs=read-write"
        )

    def _new_standby(self, port: int | None = None) -> PostgresServer:
        self._made += 1
        return self.primary.standby(self._folder / str(self._made), port=port)

    def fail_over(self) -> None:
        """The primary is killed and does not come back; in its last moments it sends nothing to the standby."""
        lost, self.primary = self.primary, self.standby
        senders = [pid for pid in children(lost) if "walsender" in command_of(pid)]
        assert senders
        for pid in senders:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(_LAST_S)
        everybody = children(lost)
        lost.kill()
        for pid in everybody:  # whoever waits for a lock that a sender had would wait for ever
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        lost.close()
        self.primary.promote()
        self.standby = lost

    def rebuild(self) -> None:
        """A new standby in place of the server that was lost."""
        shutil.rmtree(self.standby.folder)
        self.standby = self._new_standby(self.standby.port)

    def close(self) -> None:
        self.standby.close()
        self.primary.close()

    async def storm(self, found: Soaked, chance: random.Random) -> None:
        while True:
            await asyncio.sleep(chance.uniform(1.0, 3.0))
            await asyncio.to_thread(self.fail_over)
            found.crashes["lost for good"] += 1
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            await asyncio.to_thread(self.rebuild)


@contextmanager
def pair_in(folder: Path) -> Iterator[Pair]:
    pair = Pair(folder)
    try:
        yield pair
    finally:
        pair.close()


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(seed(), seconds=6, runs=40, workers=3, calm_s=60, least_crashes=1), id="6 s"),
        pytest.param(Plan(seed(), seconds=180, runs=200), id="3 min", marks=pytest.mark.prove),
    ],
)
def test_a_promoted_standby_has_everything_and_workers_find_it(tmp_path: Path, plan: Plan) -> None:
    with pair_in(tmp_path / "servers") as pair:
        found = soak(plan, tmp_path / "trial", pair.url, pair.storm)
    found.assert_well()
    assert found.crashes["lost for good"] >= plan.seconds / 8
