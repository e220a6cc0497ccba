"""What the writes do inside a transaction that somebody else begins and commits.

Each statement costs the writer thread the interpreter lock, and a busy event loop gives it back only every 5 ms. So a
batch of appends is a handful of statements with many rows each, not a statement per row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import apsw

from holdfast.base import clock
from holdfast.errors import CorruptJournal, Fenced, HoldfastError
from holdfast.model import (
    Act,
    Append,
    Applied,
    Definition,
    Fence,
    KnownMail,
    Landing,
    Mail,
    QuestionRow,
    QuestionState,
    RunId,
    RunRow,
    Sent,
    WorkerId,
    reasons,
)
from holdfast.store import rows
from holdfast.store.carrier import AcceptedMail
from holdfast.store.queries import chunk_sizes, load_queries
from holdfast.store.sqlite.rows import read_rows


class Transaction:
    """The statements of the store on one connection. The caller begins, commits and rolls back."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.execute = connection.cursor().execute  # one cursor: making one costs as much as a small statement
        self._queries = load_queries("sqlite")
        self._keep_one = self._queries["append_keep_one"]
        self._record = self._queries.rows("append_records", 1)
        self._two_records = self._queries.rows("append_records", 2)
        self.accepted: list[AcceptedMail] = []  #: mail of this transaction; the caller empties it when it begins

    # appends

    def append_all(self, appends: Sequence[Append]) -> bool:
        """Apply appends of different runs. False: at least one did not match; the transaction must be rolled back."""
        keeping: list[rows.Values] = []
        moving: list[rows.Values] = []
        for append in appends:
            if rows.keeps_status(append):
                keeping.append(rows.keep_parameters(append))
            else:
                moving.append(rows.move_parameters(append))
        if not self.write("append_keep", keeping, exact=True) or not self.write("append_move", moving, exact=True):
            return False
        self._write_records(appends)
        return True

    def appendable(self, appends: Sequence[Append]) -> set[RunId]:
        """The runs that are as these appends expect them."""
        return set(self.found("appendable", [rows.match_parameters(append) for append in appends]))

    def append_inline(self, append: Append) -> bool:
        """Apply one append with the fewest statements; same answer as `append_all`."""
        execute, run_id = self.execute, append.row.id
        if rows.keeps_status(append):
            execute(self._keep_one, rows.keep_parameters(append))
        else:
            execute(self._queries["append_move_one"], rows.move_parameters(append))
        if self.connection.changes() != 1:
            return False
        records = append.records
        if len(records) == 2:  # mostly: what an effect ended with, and what the next one intends
            execute(self._two_records, (run_id, *records[0], run_id, *records[1]))
        elif len(records) == 1:
            execute(self._record, (run_id, *records[0]))
        else:
            self.write("append_records", [(run_id, *record) for record in records])
        if append.blobs:
            self._write_blobs((append,))
        return True

    def append_one(self, append: Append, *, again: bool) -> tuple[Applied, bool]:
        """Apply one append, and say why if it does not match; whether it was applied now, not by an earlier commit."""
        self.execute(self._queries["append_move_one"], rows.move_parameters(append))
        if self.connection.changes():
            self._write_records((append,))
            return Applied.committed, True
        row = append.row
        found = self.execute(self._queries["head"], (row.id,)).fetchall()
        if not found or found[0][0] != row.epoch:
            return Applied.fenced, False
        _, seq, hash_, owner, digest = found[0]
        is_own_head = (seq, hash_) == (row.head_seq, row.head_hash)
        # The next one of the same batch may be there already.
        if append.records and int(seq) > row.head_seq:  # type: ignore[arg-type]
            is_own_head = self.value("is_record", (row.id, row.head_seq, row.head_hash)) is not None
        # Without records the head says nothing. Only its owner gives a run up, so that is what an earlier commit did.
        if is_own_head and (append.records or digest == row.digest or (again and append.release and owner is None)):
            # It was committed before, by a commit whose outcome nobody learned. Known to be on disk is only what a
            # later commit has synced, so make this one write something.
            self.execute(self._queries["touch_run"], (row.id,))
            return Applied.committed, False
        if owner is None or owner != row.owner:
            return Applied.fenced, False
        return (Applied.unread if (seq, hash_) == (append.base_seq, append.base_hash) else Applied.diverged), False

    def write(self, name: str, values: list[rows.Values], *, exact: bool = False) -> bool:
        """Execute a row template for all rows. False: `exact`, and one did not match."""
        start = 0
        for size in chunk_sizes(len(values)):
            self.execute(self._queries.rows(name, size), tuple(chain.from_iterable(values[start : start + size])))
            if exact and self.connection.changes() != size:
                return False
            start += size
        return True

    def found(self, name: str, values: list[rows.Values]) -> list[Any]:
        """What a row template that reads finds for all rows."""
        found: list[Any] = []
        start = 0
        for size in chunk_sizes(len(values)):
            parameters = tuple(chain.from_iterable(values[start : start + size]))
            cell: Any = self.execute(self._queries.rows(name, size), parameters).fetchall()[0][0]
            found += read_rows(cell)
            start += size
        return found

    def _write_records(self, appends: Sequence[Append]) -> None:
        self.write(
            "append_records",
            [(append.row.id, *record) for append in appends for record in append.records],
        )
        self._write_blobs(appends)

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
        if not self.write("create_runs", [rows.run_parameters(each.row, owner) for each, owner in new], exact=True):
            return False
        self._write_records([append for append, _ in new])
        self.write("insert_tags", [tag for each, _ in new for tag in rows.tag_parameters(each.row)])
        return True

    def existing(self, run_ids: Iterable[RunId]) -> set[RunId]:
        return set(read_rows(self.value("existing", (json.dumps(list(run_ids)),))))  # type: ignore[arg-type]

    def run(self, run_id: RunId) -> RunRow | None:
        found = read_rows(self.value("run", (run_id,)))
        return rows.read_run(found[0]) if found else None

    def runs_of(self, run_ids: Iterable[RunId]) -> dict[RunId, RunRow | HoldfastError]:
        """Those that exist; for one that cannot be read, why."""
        found: dict[RunId, RunRow | HoldfastError] = {}
        for values in read_rows(self.value("runs_of_ids", (json.dumps(list(dict.fromkeys(run_ids))),))):
            try:
                found[RunId(values[0])] = rows.read_run(values)
            except CorruptJournal as error:
                found[RunId(values[0])] = error
        return found

    def amend(self, append: Append, seize: bool, *, again: bool) -> tuple[bool, bool]:
        """Whether it is stored, and whether it was stored now, not by an earlier commit."""
        self.execute(self._queries["amend_run"], (*rows.move_parameters(append), seize))
        if self.connection.changes():
            self._write_records((append,))
            return True, True
        row = append.row
        found = self.execute(self._queries["head"], (row.id,)).fetchall() if again else []
        is_stored = bool(found) and found[0][:3] == (row.epoch, row.head_seq, row.head_hash)
        if not is_stored or not (append.records or found[0][4] == row.digest):
            return False, False
        self.execute(self._queries["touch_run"], (row.id,))
        return True, False

    def quarantine(self, run_id: RunId, reason: str) -> None:
        self.execute(
            self._queries["quarantine_run"],
            {"id": run_id, "reason": reasons.text(reasons.Corrupt(reason)), "now": clock.now_us()},
        )

    # the user's own tables

    def land(self, landing: Landing, result: str) -> bool:
        """False: another attempt has landed, or this one was given up."""
        self.execute(self._queries["land"], (landing.run_id, landing.key, landing.attempt, result, clock.now_us()))
        return self.connection.changes() == 1

    def landed(self, landing: Landing) -> str | None:
        self.execute(self._queries["give_up_landing"], (landing.run_id, landing.key, landing.attempt, clock.now_us()))
        found: str | None = self.value("landed", (landing.run_id, landing.key))
        return found

    # mail and questions

    def find_mail(self, mail: Mail) -> Sent | None:
        """This very mail, if it was accepted before."""
        number = self.value(
            "find_mail", (mail.run_id, mail.kind, mail.key, mail.body, mail.at, mail.digest, mail.dedup)
        )
        if number is None:
            return None
        self.execute(self._queries["touch_run"], (mail.run_id,))
        return Sent(int(number), is_new=True)

    def known_mail(self, ids: list[tuple[RunId, str]]) -> dict[tuple[RunId, str], KnownMail]:
        """The mail that has these dedup ids."""
        found = self.found("known_mail", list(ids))
        return {(RunId(run_id), dedup): KnownMail(*known) for run_id, dedup, *known in found}

    def decide_question(
        self,
        run_id: RunId,
        key: str,
        state: QuestionState,
        *,
        at: int,
        by: str | None = None,
        note: str = "",
        shown: str | None = None,
    ) -> bool:
        """False: it is not open, or shows something else."""
        self.execute(
            self._queries["decide_question"],
            {"run_id": run_id, "key": key, "state": state.value, "at": at, "by": by, "note": note, "shown": shown},
        )
        return self.connection.changes() == 1

    def check_fence(self, fence: Fence | None) -> None:
        """Raise Fenced if the run that something is done for is somebody else's."""
        if fence is None:
            return
        head = self.execute(self._queries["head"], (fence.run_id,)).fetchall()
        if not head or (head[0][0], head[0][3]) != (fence.epoch, fence.owner):
            raise Fenced(f"Run {fence.run_id} has another owner by now; nothing was changed for it.")

    def open_question(self, question: QuestionRow) -> None:
        self.execute(self._queries["open_question"], rows.question_parameters(question))

    def question(self, run_id: RunId, key: str) -> QuestionRow | None:
        found = read_rows(self.value("question", (run_id, key)))
        return rows.read_question(found[0]) if found else None

    # definitions

    def define_all(self, definitions: Sequence[Definition], *, again: bool, guarded: bool) -> list[bool]:
        written: list[bool] = []
        for definition in definitions:
            written.append(self.define(definition, again=again))
            if guarded and not written[0]:
                return [False] * len(definitions)
        return written

    def define(self, definition: Definition, *, again: bool) -> bool:
        values = rows.definition_parameters(definition)
        self.execute(self._queries["define_first" if definition.revision == 1 else "define_next"], values)
        return self.connection.changes() == 1 or (again and self.is_defined(definition))

    def is_defined(self, definition: Definition) -> bool:
        return self.value("is_defined", rows.definition_parameters(definition)) is not None

    def forget(self, kind: str, names: Sequence[str], bodies: Sequence[str] | None) -> bool:
        """False: there was nothing of that."""
        wanted = None if bodies is None else json.dumps(list(bodies))
        self.execute(self._queries["forget"], (kind, json.dumps(list(names)), wanted))
        return self.connection.changes() > 0

    def add_act(self, act: Act | None) -> None:
        """What somebody did, if it was a person."""
        if act is not None:
            self.execute(self._queries["insert_act"], rows.act_parameters(act))

    def value(self, name: str, parameters: tuple[Any, ...] | dict[str, Any]) -> Any:
        found = self.execute(self._queries[name], parameters).fetchall()
        return found[0][0] if found else None
