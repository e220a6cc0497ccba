"""What is read inside a transaction that somebody else begins and ends: few statements, each with one answer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import apsw

from holdfast.errors import CorruptJournal, RunNotFound
from holdfast.model import (
    Cut,
    Definition,
    Loaded,
    Mail,
    QuestionRow,
    Record,
    RunFilter,
    RunId,
    RunRow,
    Status,
    Worker,
    WorkerId,
)
from holdfast.model.budgets import FamilyUse
from holdfast.store import rows
from holdfast.store.families import sums_of
from holdfast.store.indexes import has_choice
from holdfast.store.lines import evenly, few_records
from holdfast.store.queries import load_queries
from holdfast.store.sqlite.rows import listing, read_records, read_rows, size_parameters

_RECORDS_AT_ONCE = 1000
_FEW = 2000  # runs that are due, found faster by time than by walking past all those that are not
_QUERIES = load_queries("sqlite")


def _rows(connection: apsw.Connection, name: str, parameters: Any = ()) -> list[list[Any]]:
    cell = connection.execute(_QUERIES[name], parameters).get
    assert isinstance(cell, bytes)
    return read_rows(cell)


# runs


def run(connection: apsw.Connection, run_id: RunId) -> RunRow | None:
    found = _rows(connection, "run", (run_id,))
    return rows.read_run(found[0]) if found else None


def runs(connection: apsw.Connection, which: RunFilter) -> list[RunRow]:
    before_at = -rows.EVER if which.until is None else which.until
    if which.before_at is not None:
        before_at = which.before_at
    elif which.before_id is not None:
        before_at = connection.execute(_QUERIES["cursor_position"], (which.before_id,)).get
        if before_at is None:
            raise RunNotFound(f"There is no run {which.before_id} to list on from.")
    sizes = None
    if has_choice(which):
        found = connection.execute(_QUERIES["sizes"], size_parameters(which, before_at)).get
        assert isinstance(found, bytes)
        sizes = json.loads(found)
    name, parameters = listing(which, sizes)
    parameters["before_at"] = before_at
    return [rows.read_run(values, lenient=True) for values in _rows(connection, name, parameters)]


def records(connection: apsw.Connection, run_id: RunId, after: int, *, limit: int | None = None) -> list[Record]:
    found: list[Record] = []
    while True:
        most = _RECORDS_AT_ONCE if limit is None else min(_RECORDS_AT_ONCE, limit - len(found))
        page = _rows(connection, "records", (run_id, after, most))
        found += read_records(run_id, page)
        if len(page) < _RECORDS_AT_ONCE:
            return found
        after = found[-1].seq


def records_of_turn(connection: apsw.Connection, row: RunRow, cut: Cut) -> list[Record]:
    return read_records(row.id, _rows(connection, "records_of_turn", (row.id, cut.prologue, cut.seq)))


def checkpoints(
    connection: apsw.Connection, run_id: RunId, key: str | None, *, after: int, limit: int
) -> list[tuple[Record, bytes]]:
    found = _rows(connection, "checkpoints", (run_id, key, after, limit))
    before = [bytes.fromhex(values.pop() or "") for values in found]
    return list(zip(read_records(run_id, found), before, strict=True))


def load(connection: apsw.Connection, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
    row = run(connection, run_id)
    return None if row is None else (row, records(connection, run_id, 0))


def mail(connection: apsw.Connection, run_id: RunId, after: int, *, limit: int | None = None) -> list[Mail]:
    most = -1 if limit is None else limit
    return [rows.read_mail(values) for values in _rows(connection, "mail", (run_id, after, most))]


def mail_of_numbers(connection: apsw.Connection, run_id: RunId, numbers: Sequence[int]) -> list[Mail]:
    found = _rows(connection, "mail_of_numbers", (run_id, json.dumps(list(numbers))))
    return [rows.read_mail(values) for values in found]


def load_many(connection: apsw.Connection, run_ids: Sequence[RunId]) -> list[Loaded]:
    """Those that can be read, in the order given."""
    wanted = list(dict.fromkeys(run_ids))
    try:
        found = _load_all(connection, wanted)
    except apsw.CorruptError:  # a damaged page: whose it is, only reading one by one can say
        found = {}
        for run_id in wanted:
            try:
                if (row := run(connection, run_id)) is not None:
                    found[run_id] = _load_one(connection, row)
            except (apsw.CorruptError, CorruptJournal):
                continue
    return [found[run_id] for run_id in run_ids if run_id in found]


def _load_one(connection: apsw.Connection, row: RunRow) -> Loaded:
    cut = row.cut
    if cut is None:
        return Loaded(row, records(connection, row.id, 0), mail(connection, row.id, 0))
    return Loaded(row, records_of_turn(connection, row, cut), mail(connection, row.id, cut.mail))


def _load_all(connection: apsw.Connection, run_ids: Sequence[RunId]) -> dict[RunId, Loaded]:
    stored: dict[RunId, RunRow] = {}
    for values in _rows(connection, "runs_of_ids", (json.dumps(run_ids),)):
        try:
            stored[RunId(values[0])] = rows.read_run(values)
        except CorruptJournal:
            continue
    found: dict[RunId, Loaded] = {}
    for row in [row for row in stored.values() if row.cut is not None]:
        with suppress(CorruptJournal):
            found[row.id] = _load_one(connection, stored.pop(row.id))
    mail_of: dict[str, list[Mail]] = defaultdict(list)
    for values in _rows(connection, "mail_of_runs", (json.dumps([row.id for row in stored.values() if row.mail]),)):
        mail_of[values[0]].append(rows.read_mail(values))
    for few in few_records(stored.values(), 2 * _RECORDS_AT_ONCE):
        records_of: dict[str, list[list[Any]]] = defaultdict(list)
        if len(few) > 1:
            for values in _rows(connection, "records_of_runs", (json.dumps([row.id for row in few]),)):
                records_of[values.pop()].append(values)
        for row in few:
            try:
                own = read_records(row.id, records_of[row.id]) if len(few) > 1 else records(connection, row.id, 0)
            except CorruptJournal:
                continue
            found[row.id] = Loaded(row, own, mail_of[row.id])
    return found


def blobs(connection: apsw.Connection, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
    packed: dict[str, list[bytes]] = {}
    for digest, data in connection.execute(_QUERIES["blobs"], (run_id, json.dumps(list(digests)))):
        packed.setdefault(str(digest), []).append(data if isinstance(data, bytes) else b"")
    return {digest: rows.unpack_blob(run_id, digest, b"".join(chunks)) for digest, chunks in packed.items()}


# who may be claimed


def asked(agents: Sequence[str], queues: Sequence[str] | None, closed: Sequence[str], now: int) -> dict[str, Any]:
    return {
        "agents": json.dumps(list(agents)),
        "queues": None if queues is None else json.dumps(list(queues)),
        "closed": json.dumps(list(closed)),
        "now": now,
    }


def ready(connection: apsw.Connection, which: dict[str, Any], *, limit: int, after: str) -> list[RunRow]:
    parked: list[Any] = _rows(connection, "ready_parked", which | {"limit": limit})
    # Neither those who wait in line nor those whose time has come keep the others out.
    in_line = _in_line(connection, which, limit, after)
    chosen = parked[: max(limit // 2, limit - len(in_line))]
    chosen += in_line[: limit - len(chosen)]
    found = {}
    for values in _rows(connection, "runs_of_ids", (json.dumps(chosen),)):
        found[values[0]] = rows.read_run(values, lenient=True)
    return [found[run_id] for run_id in chosen]


def _in_line(connection: apsw.Connection, which: dict[str, Any], limit: int, after: str) -> list[Any]:
    """Ids of queued runs, evenly from all keys.

    If few are due, they are found by time, however many keys there are. If many are, there is no need to look at all
    of them: the line is walked from key to key until there are enough.
    """
    most = max(4 * limit, _FEW)
    few = connection.execute(_QUERIES["due_in_line"], which | {"most": most}).get
    if not few:
        return []
    if few < most:
        return evenly(_rows(connection, "line_of_few", which), after, limit)
    keys = _rows(connection, "keys_in_line", which | {"after": after, "most": limit})
    each = -(-limit // max(len(keys), 1))
    while True:
        line = _rows(connection, "line_of_keys", which | {"keys": json.dumps(keys), "each": each})
        if len(line) >= limit or each >= limit:
            return evenly(line, after, limit)
        each = min(4 * each, limit)  # some keys have fewer than their share: the others fill it


def next_wake(connection: apsw.Connection) -> int | None:
    found = connection.execute(_QUERIES["next_wake"]).get
    return None if found is None else int(found)


def queue_counts(connection: apsw.Connection, queues: Sequence[str]) -> dict[str, dict[Status, int]]:
    return rows.counts_of(queues, _rows(connection, "queue_counts", {"queues": json.dumps(list(queues))}))


def family_use(connection: apsw.Connection, owner: RunId, asks: RunId) -> FamilyUse:
    return sums_of(_rows(connection, "family_use", {"owner": owner, "asks": asks})[0])


def mail_counts(connection: apsw.Connection, owner: WorkerId) -> dict[RunId, tuple[int, int]]:
    return {RunId(run_id): (epoch, count) for run_id, epoch, count in _rows(connection, "mail_counts", (owner,))}


# questions and definitions


def questions(
    connection: apsw.Connection, *, run_id: RunId | None, id_prefix: str | None, only_open: bool, limit: int
) -> list[QuestionRow]:
    if run_id is not None:
        name = "questions_of_run"
    elif id_prefix:
        name = "questions_by_prefix"
    else:
        name = "questions_open" if only_open else "questions"
    which = {"run_id": run_id, "prefix": id_prefix or None, "only_open": only_open, "limit": limit}
    return [rows.read_question(values) for values in _rows(connection, name, which)]


def definitions(
    connection: apsw.Connection, kind: str, *, names: Sequence[str] | None, due: int | None, limit: int
) -> list[Definition]:
    query = "definitions" if due is None else "definitions_due"
    if names is not None:
        query = "definitions_by_name"
    which = {"kind": kind, "names": json.dumps(list(names or ())), "due": due, "limit": limit}
    return [rows.read_definition(values) for values in _rows(connection, query, which)]


# workers


def workers(connection: apsw.Connection) -> list[Worker]:
    return [rows.read_worker(values) for values in _rows(connection, "workers")]


def ownerless(connection: apsw.Connection) -> list[WorkerId]:
    found: list[Any] = _rows(connection, "ownerless")
    return [WorkerId(str(owner)) for owner in found]
