"""What the writes do inside a transaction that somebody else begins and commits.

Each statement costs the writer thread the interpreter lock, and a busy event loop gives it back only every 5 ms. So a
batch of appends is a handful of statements with many rows each, not a statement per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import apsw

from holdfast import clock
from holdfast.errors import RunNotFound
from holdfast.model import Append, Applied, Mail, RunId, RunRow, Worker, WorkerId
from holdfast.store import sqlite_rows as rows
from holdfast.store.queries import chunk_sizes, load_queries


class Transaction:
    """The statements of the store on one connection. The caller begins, commits and rolls back."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.execute = connection.cursor().execute  # one cursor: making one costs as much as a small statement
        self._queries = load_queries("sqlite")
        self._keep_one = self._queries["append_keep_one"]
        self._record = self._queries.rows("append_records", 1)

    # appends

    def append_all(self, appends: Sequence[Append]) -> bool:
        """Apply appends of different runs. False: at least one did not match; the transaction must be rolled back."""
        keeping = [rows.keep_parameters(append) for append in appends if rows.keeps_status(append)]
        moving = [rows.move_parameters(append) for append in appends if not rows.keeps_status(append)]
        if not self._write("append_keep", keeping, exact=True) or not self._write("append_move", moving, exact=True):
            return False
        self._write(
            "append_records",
            [rows.record_parameters(append.row.id, record) for append in appends for record in append.records],
        )
        self._write_blobs(appends)
        return True

    def append_inline(self, append: Append) -> bool:
        """Apply one append with the fewest statements; same answer as `append_all`."""
        execute, run_id = self.execute, append.row.id
        if rows.keeps_status(append):
            execute(self._keep_one, rows.keep_parameters(append))
        else:
            execute(self._queries["append_move_one"], rows.move_parameters(append))
        if self.connection.changes() != 1:
            return False
        if len(append.records) < 3:
            for record in append.records:
                execute(self._record, rows.record_parameters(run_id, record))
        else:
            self._write("append_records", [rows.record_parameters(run_id, record) for record in append.records])
        if append.blobs:
            self._write_blobs((append,))
        return True

    def append_one(self, append: Append) -> Applied:
        """Apply one append, and say why if it does not match."""
        self.execute(self._queries["append_move_one"], rows.move_parameters(append))
        if self.connection.changes():
            self._write("append_records", [rows.record_parameters(append.row.id, record) for record in append.records])
            self._write_blobs((append,))
            return Applied.committed
        head = self.execute(self._queries["head"], (append.row.id,)).fetchall()
        if not head or head[0][0] != append.row.epoch:
            return Applied.fenced
        if head[0][1:] == (append.row.head_seq, append.row.head_hash):
            # It was committed before, by a commit whose outcome nobody learned. Known to be on disk is only what a
            # later commit has synced, so make this one write something.
            self.execute(self._queries["touch_run"], (append.row.id,))
            return Applied.committed
        return Applied.diverged

    def _write(self, name: str, values: list[rows.Values], *, exact: bool = False) -> bool:
        start = 0
        for size in chunk_sizes(len(values)):
            self.execute(self._queries.rows(name, size), tuple(chain.from_iterable(values[start : start + size])))
            if exact and self.connection.changes() != size:
                return False
            start += size
        return True

    def _write_blobs(self, appends: Sequence[Append]) -> None:
        for append in appends:
            for digest, data in append.blobs:
                for chunk in rows.blob_parameters(append.row.id, digest, data):
                    self.execute(self._queries["append_blob"], chunk)

    # the other writes; `again` is set when an earlier commit of the same write may have succeeded

    def create(self, append: Append, owner: WorkerId | None) -> bool:
        """False: the id exists."""
        return self.create_all([(append, owner)])

    def create_all(self, new: Sequence[tuple[Append, WorkerId | None]]) -> bool:
        """Store new runs. False: at least one id exists; of several, the transaction must be rolled back then."""
        if not self._write("create_runs", [rows.run_parameters(each.row, owner) for each, owner in new], exact=True):
            return False
        appends = [append for append, _ in new]
        self._write(
            "append_records",
            [rows.record_parameters(append.row.id, record) for append in appends for record in append.records],
        )
        self._write_blobs(appends)
        return True

    def run(self, run_id: RunId) -> RunRow | None:
        found = rows.read_rows(self._value("run", (run_id,)))
        return rows.read_run(found[0]) if found else None

    def claim(
        self, row: RunRow, owner: WorkerId, expected_epoch: int, expected_owner: WorkerId | None, *, again: bool
    ) -> bool:
        state = rows.state_parameters(row) | {
            "owner": owner,
            "expected_epoch": expected_epoch,
            "expected_owner": expected_owner,
        }
        self.execute(self._queries["claim_run"], state)
        return self.connection.changes() == 1 or (again and self._value("is_claimed", state) is not None)

    def set_status(self, row: RunRow, expected_epoch: int, *, again: bool) -> bool:
        state = rows.state_parameters(row) | {"expected_epoch": expected_epoch}
        self.execute(self._queries["set_status"], state)
        return self.connection.changes() == 1 or (again and self._value("is_status_set", state) is not None)

    def quarantine(self, run_id: RunId, reason: str) -> None:
        self.execute(
            self._queries["quarantine_run"],
            {"id": run_id, "reason": rows.dump({"why": "corrupt", "detail": reason}), "now": clock.now_us()},
        )

    def send(self, mail: Mail, wake: RunRow | None, expected: int | None, *, again: bool) -> int:
        content = (mail.kind, mail.key, mail.body, mail.at, mail.digest)
        if again and (number := self._value("find_mail", (mail.run_id, *content))) is not None:
            self.execute(self._queries["touch_run"], (mail.run_id,))
            return int(number)
        if expected is not None and self._value("mail_count", (mail.run_id,)) not in (expected, None):
            return 0
        number = self._value("count_mail", (mail.run_id,))
        if number is None:
            raise RunNotFound(f"There is no run {mail.run_id} in this store.")
        self.execute(self._queries["insert_mail"], (mail.run_id, number, *content))
        if wake is not None:
            self.execute(self._queries["set_status"], rows.state_parameters(wake) | {"expected_epoch": wake.epoch})
        return int(number)

    def add_worker(self, worker: Worker) -> None:
        self.execute(
            self._queries["add_worker"],
            (worker.id, worker.pid, worker.host, worker.boot_id, worker.started_at, worker.lease_until_ms),
        )

    def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool:
        self.execute(self._queries["renew_worker"], (lease_until_ms, worker_id))
        return self.connection.changes() == 1

    def remove_worker(self, worker_id: WorkerId) -> None:
        self.execute(self._queries["remove_worker"], (worker_id,))

    def _value(self, name: str, parameters: tuple[Any, ...] | dict[str, Any]) -> Any:
        found = self.execute(self._queries[name], parameters).fetchall()
        return found[0][0] if found else None
