"""Where workers are taken over from: a store, a ledger, and agents that are held at gates."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import apsw

import holdfast as hf
from holdfast.model import Record, RunId, RunRow
from holdfast.testing import Ledger
from holdfast.testing.ledger import VARIABLE
from holdfast.testing.postgres import run_client
from tests import workers
from tests.forkserver import Forked, ForkServer, eventually
from tests.ownership import agents
from tests.workers import seen

#: Long, so that nobody loses its runs because the machine is slow. Who dies is noticed without it.
LEASE_S = 10.0
#: For a worker that will be stopped, and is alone until then: others wait for the end of its lease.
BRIEF_S = 1.0
PATIENCE_S = 60.0
QUICK: dict[str, Any] = {"lease_s": LEASE_S, "renew_s": 0.2, "sweep_s": 0.1, "block_warning_s": 0.4}


def is_postgres(url: str) -> bool:
    return url.startswith("postgresql:")


def psql(url: str, statement: str) -> str:
    return run_client("psql", "--no-psqlrc", "--tuples-only", "--no-align", f"--command={statement}", url).strip()


def is_free(url: str) -> bool:
    """Can everybody else write to the store?"""
    if is_postgres(url):
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        return psql(url, waiting) == "0"
    connection = apsw.Connection(url)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


class Scene(workers.Scene):
    """A folder with a store, a ledger and workers; use it with `async with`."""

    def __init__(self, folder: Path, forkserver: ForkServer) -> None:
        super().__init__(folder, forkserver, agents=agents.__name__, settings=QUICK, level="INFO")
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.env[VARIABLE] = str(self.ledger.path)
        self.app = self.client()

    async def __aenter__(self) -> Self:
        await self.app.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.__exit__(*error)
        await self.app.__aexit__(*error)

    async def stop(self, worker: Forked) -> None:
        """SIGSTOP, but not inside a transaction: what it locked would stay so until the process goes on."""
        while True:
            worker.send(signal.SIGSTOP)
            await worker.wait_stopped()
            if is_free(self.url):
                return
            worker.go_on()
            await asyncio.sleep(0.01)

    # gates in agents

    def reached(self, name: str) -> list[int]:
        """The processes that came to a gate, in order."""
        path = self.folder / f"{name}.reached"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    async def wait_reached(self, name: str, worker: Forked, timeout_s: float = PATIENCE_S) -> None:
        await eventually(lambda: worker.pid in self.reached(name), timeout_s, what=f"worker {worker.pid} at {name}")

    def open(self, name: str, worker: Forked | None = None) -> None:
        """Let a worker pass a gate; None: everybody."""
        (self.folder / (f"{name}.open" if worker is None else f"{name}.open.{worker.pid}")).touch()

    def damage(self, run: hf.Run[Any], key: str) -> None:
        """Change what is stored of a call."""
        records = "holdfast.records" if is_postgres(self.url) else "records"
        statement = f"UPDATE {records} SET payload = '11' WHERE run_id = '{run.id}' AND key = '{key}'"
        if is_postgres(self.url):
            assert psql(self.url, statement) == "UPDATE 1"
            return
        connection = apsw.Connection(self.url)
        connection.execute(statement)
        assert connection.changes() == 1
        connection.close()

    # what is known

    async def row(self, run: hf.Run[Any]) -> RunRow:
        row = await self.app._store.run(RunId(run.id))
        assert row is not None
        return row

    async def records(self, run: hf.Run[Any]) -> list[Record]:
        return await self.app._store.records(RunId(run.id))

    async def owners(self, run: hf.Run[Any]) -> list[int]:
        """The processes that had a run, in order."""
        return [json.loads(r.payload or "{}")["pid"] for r in await self.records(run) if r.kind == "claimed"]

    async def is_at(self, run: hf.Run[Any], *statuses: str, timeout_s: float = PATIENCE_S) -> RunRow:
        """Wait until a run has one of these states."""
        return await seen(
            lambda: self.row(run),
            lambda row: row.status in statuses,
            timeout_s=timeout_s,
            what=lambda row: f"{run.id} is {row.status} ({row.reason}), not {' or '.join(statuses)}",
        )

    async def at_work(self, *workers: Forked) -> None:
        wanted = {each.pid for each in workers}
        await seen(
            self.app.workers,
            lambda infos: wanted <= {each.pid for each in infos if each.alive},
            timeout_s=PATIENCE_S,
            what=lambda infos: f"of {wanted} not all work: {infos}",
        )

    async def lease_until_ms(self, worker: Forked) -> int:
        return {each.pid: each.lease_until_ms for each in await self.app._store.workers()}[worker.pid]

    async def renewed(self, *workers: Forked, for_s: float) -> None:
        """Wait until the leases of workers last for so much longer than they do now."""
        for worker, until_ms in [(each, await self.lease_until_ms(each)) for each in workers]:
            await seen(
                lambda worker=worker: self.lease_until_ms(worker),  # type: ignore[misc]
                lambda now_ms, until_ms=until_ms: now_ms >= until_ms + for_s * 1000,  # type: ignore[misc]
                timeout_s=PATIENCE_S,
                what=lambda now_ms: f"a lease lasts until {now_ms}",
            )

    async def is_expired(self, worker: Forked) -> None:
        """Wait until the lease of a worker that was stopped is over."""
        until_ms = await self.lease_until_ms(worker)
        await eventually(lambda: self.app._store.lease_clock_ms() > until_ms, PATIENCE_S, what="the end of a lease")

    async def has(self, worker: Forked) -> list[str]:
        """The runs that a worker believes to have, `/leaving` if it is about to hand them over; none if it ended."""

        def said() -> list[str]:
            return [line for line in self.log_of(worker) if line.split()[:1] == ["has"]]

        before = len(said())
        worker.send(signal.SIGUSR1)
        await eventually(lambda: worker.code is not None or len(said()) > before, PATIENCE_S, what="an answer")
        return said()[-1].split()[1:] if worker.code is None else []

    async def lost(self, worker: Forked, *runs: hf.Run[Any]) -> None:
        """Wait until a worker that was stopped knows that runs are not its own: it wanted to write for them."""
        wanted = {run.id for run in runs}
        await seen(
            lambda: self.has(worker),
            lambda ids: not wanted & set(ids),
            timeout_s=PATIENCE_S,
            what=lambda ids: f"worker {worker.pid} has {ids}",
        )

    async def is_leaving(self, worker: Forked, run: hf.Run[Any]) -> None:
        """Wait until a worker that was told to go waits for the end of a body alone."""
        await seen(
            lambda: self.has(worker),
            lambda ids: f"{run.id}/leaving" in ids,
            timeout_s=PATIENCE_S,
            what=lambda ids: f"worker {worker.pid} has {ids}",
        )

    def at_work_on(self, worker: Forked) -> set[str]:
        """The runs in which a worker began the body of a call."""
        return {line.run for line in self.ledger.lines() if line.what == "begin" and line.pid == worker.pid}

    def begun(self, key: str, run: hf.Run[Any] | None = None) -> list[int]:
        """The processes in which the body of a call began."""
        lines = [line for line in self.ledger.lines() if line.what == "begin" and line.key == key]
        return [line.pid for line in lines if run is None or line.run == run.id]

    def log_of(self, worker: Forked) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{worker.pid} ")]

    async def finished(self, runs: Iterable[hf.Run[Any]], timeout_s: float = PATIENCE_S) -> list[Any]:
        async with asyncio.timeout(timeout_s):
            return list(await asyncio.gather(*(run.result() for run in runs)))
