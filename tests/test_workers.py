"""The worker processes of the tests themselves: a test must never take one for another."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.forkserver import Forked, ForkServer
from tests.waiting import agents
from tests.waiting.scene import Scene

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def worker_with_pid(scene: Scene, pid: int) -> Forked:
    for _ in range(50):
        try:
            LAST_PID.write_text(str(pid - 1))
        except OSError:
            pytest.skip("the next pid can be chosen by root only")
        worker = scene.worker()
        if worker.pid == pid:
            return worker
        worker.kill()  # somebody else was faster
    pytest.skip(f"pid {pid} is never free")


def test_a_worker_with_the_pid_of_a_dead_one_lives(tmp_path: Path, forkserver: ForkServer) -> None:
    with Scene(tmp_path, forkserver) as scene:
        old = scene.worker()
        old.kill()
        new = worker_with_pid(scene, old.pid)
        old.kill()
        old.send(signal.SIGKILL)

        async def work() -> list[int]:
            async with scene.client() as app:
                return await (await app.start(agents.collect(0))).result(timeout=60)

        assert asyncio.run(work()) == []
        assert new.code is None
        assert old.code == -9


def test_no_worker_outlives_the_process_that_asked_for_it(tmp_path: Path) -> None:
    forkserver = ForkServer()
    worker = Scene(tmp_path, forkserver).worker()
    forkserver.close()
    asyncio.run(eventually(lambda: not Path(f"/proc/{worker.pid}").exists()))
