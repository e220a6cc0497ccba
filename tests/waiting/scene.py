"""Where the agents of these tests wait."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

import holdfast as hf
from holdfast.testing.ledger import whole_lines
from tests import workers
from tests.forkserver import Forked, ForkServer
from tests.waiting import agents

FOLDER = "HOLDFAST_TEST_FOLDER"


class Scene(workers.Scene):
    """A folder with a store, an outside world, and workers."""

    def __init__(self, folder: Path, forkserver: ForkServer) -> None:
        super().__init__(folder, forkserver, agents=agents.__name__, settings={"sweep_s": 0.1})
        self.env[FOLDER] = str(folder)

    def done(self, what: str | None = None) -> list[Any]:
        """What bodies did to the world, in order."""
        lines = [json.loads(line) for line in whole_lines(self.folder / "world.jsonl")]
        return [line["value"] for line in lines if what in (None, line["what"])]

    def open_gate(self) -> None:
        """Have bodies that are held go on, and let whoever comes to the gate later pass."""
        (self.folder / "gate").touch()

    async def stop_at_rest(self, worker: Forked) -> None:
        """SIGSTOP, but not in a commit: a process that stands still in one holds up everybody else."""
        while True:
            worker.send(signal.SIGSTOP)
            await worker.wait_stopped()
            if self._can_be_written():
                return
            worker.go_on()
            await asyncio.sleep(0.01)

    def _can_be_written(self) -> bool:
        if self.url.startswith("postgresql"):
            return True  # locks are for rows there
        with closing(apsw.Connection(self.url)) as store:
            try:
                store.execute("BEGIN IMMEDIATE; ROLLBACK")
            except apsw.BusyError:
                return False
        return True


async def others_are_done(app: hf.Holdfast) -> None:
    """Have another run come and go: whoever works has looked for all that there is to do by then."""
    assert await (await app.start(agents.collect(0))).result(timeout=60) == []
