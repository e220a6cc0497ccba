"""Who lives, as far as a SQLite store can tell: the rows of workers, and the locks that they hold.

A lock that nobody holds proves that its worker is dead, if it is the file that the worker locked. Another one under the
same name proves nothing: somebody put it there, or copied the folder. So a worker notes the number of its file in the
store, in the commit that stores its row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from holdfast.base import clock
from holdfast.model import Definition, Proof, Worker, WorkerId
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import reads
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.locks import LockState, WorkerLocks

_QUERIES = load_queries("sqlite")
_KIND = "lock"
_TOLD = "worker"


def add(transaction: Transaction, worker: Worker, inode: int, *, again: bool) -> None:
    """Store a worker's row; `inode`: of the lock that it holds."""
    transaction.execute(
        _QUERIES["add_worker"],
        (worker.id, worker.pid, worker.host, worker.boot_id, worker.started_at, worker.lease_until_ms),
    )
    transaction.define(Definition(_TOLD, worker.id, worker.told, 1), again=again)
    transaction.define(Definition(_KIND, worker.id, json.dumps({"inode": inode}), 1), again=again)


def renew(transaction: Transaction, worker_id: WorkerId, lease_until_ms: int) -> bool:
    """Extend a lease. False: the worker was removed."""
    transaction.execute(_QUERIES["renew_worker"], (lease_until_ms, worker_id))
    return transaction.connection.changes() == 1


def remove(transaction: Transaction, worker_id: WorkerId) -> None:
    """Remove the row of a worker that ended or is dead."""
    transaction.execute(_QUERIES["remove_worker"], (worker_id,))
    transaction.forget(_KIND, [worker_id], None)
    transaction.forget(_TOLD, [worker_id], None)


def others(connection: apsw.Connection, locks: WorkerLocks) -> list[Worker]:
    """Workers of other processes."""
    return [worker for worker in reads.workers(connection) if worker.id not in locks.own]


def dead(
    connection: apsw.Connection, locks: WorkerLocks, among: Sequence[Worker], lease_clock_ms: int
) -> dict[WorkerId, Proof]:
    """Workers known to be dead, with the proof: of those `among` the others, and those whose rows are gone."""
    found = dict.fromkeys(reads.ownerless(connection), Proof.gone)
    inodes = _inodes(connection) if among else {}
    for worker in among:
        proof = _proof_of_death(worker, locks, inodes.get(worker.id), lease_clock_ms)
        if proof is not None:
            found[worker.id] = proof
    return found


def replaced(connection: apsw.Connection, locks: WorkerLocks) -> list[WorkerId]:
    """Workers whose lock files are not those that they locked."""
    return [WorkerId(name) for name, inode in _inodes(connection).items() if locks.is_replaced(WorkerId(name), inode)]


def _inodes(connection: apsw.Connection) -> dict[str, int]:
    noted = reads.definitions(connection, _KIND, names=None, due=None, limit=10_000)
    return {each.name: inode for each in noted if (inode := _inode(each.body)) is not None}


def _inode(body: str) -> int | None:
    try:
        return int(json.loads(body)["inode"])
    except (ValueError, TypeError, KeyError):
        return None  # damaged: as if nothing had been noted, so that the other workers are not hidden


def _proof_of_death(worker: Worker, locks: WorkerLocks, inode: int | None, lease_clock_ms: int) -> Proof | None:
    if clock.is_of_another_boot(worker.boot_id):
        return Proof.boot
    if locks.look(worker.id, inode) is LockState.dead:
        return Proof.lock
    return Proof.lease if worker.lease_until_ms < lease_clock_ms else None
