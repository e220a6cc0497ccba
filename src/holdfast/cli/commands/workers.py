"""`holdfast workers`"""

from __future__ import annotations

import platform

import click

from holdfast.app import Holdfast, WorkerInfo
from holdfast.cli.clients import with_app
from holdfast.cli.failure import FAILED, OK
from holdfast.cli.lists import Listed, ago, show_list, stamp
from holdfast.cli.setup import Setup, command
from holdfast.history.words import proof_text


@command("workers")
@click.option("--here", is_flag=True, help="Only those of this machine; exit code 1 if none of them is alive.")
def workers_command(setup: Setup, here: bool) -> int:
    """List the processes that execute runs.

    A dead one is listed as long as runs are left from it. With --here it tells whether a worker of this machine is
    ready. Piped, lines of: worker, alive|dead, pid, host, started, runs, how it is known to be dead.
    """

    async def read(app: Holdfast) -> list[WorkerInfo]:
        return [worker for worker in await app.workers() if not here or worker.host == platform.node()]

    workers = with_app(setup, read)
    alive = sum(worker.alive for worker in workers)
    parts = [f"{alive} alive"] + ([f"{len(workers) - alive} dead"] if alive < len(workers) else [])
    show_list(
        setup,
        [_listed(worker) for worker in workers],
        head=("STATE", "WORKER", "PID", "HOST", "STARTED", "RUNS", ""),
        flexible=6,
        nothing="No worker. `holdfast worker FILE` starts one.",
        footer=" · ".join(parts),
    )
    return FAILED if here and not alive else OK


def _listed(worker: WorkerInfo) -> Listed:
    proof = "" if worker.alive else proof_text(worker.proof or "")
    facts = {
        "id": worker.id,
        "pid": worker.pid,
        "host": worker.host,
        "started_at": stamp(worker.started_at),
        "alive": worker.alive,
        "proof": worker.proof,
        "runs": worker.runs,
        "agents": list(worker.agents),
        "queues": None if worker.queues is None else list(worker.queues),
        "concurrency": worker.concurrency,
        "versions": dict(worker.versions),
        "holdfast": worker.holdfast,
    }
    state = "alive" if worker.alive else "dead"
    line = (worker.id, state, worker.pid, worker.host, stamp(worker.started_at), worker.runs, worker.proof)
    cells = (
        f"{'▶' if worker.alive else '↯'} {state}",
        worker.id,
        str(worker.pid),
        worker.host,
        f"{ago(worker.started_at)} ago",
        str(worker.runs),
        proof,
    )
    return Listed(facts, line, cells, "green" if worker.alive else "red")
