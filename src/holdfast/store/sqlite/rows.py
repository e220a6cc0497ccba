"""What SQLite's answers in JSON become."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import CorruptJournal
from holdfast.model import Record, RunFilter, RunId
from holdfast.store import rows


def read_rows(cell: bytes) -> list[list[Any]]:
    """The rows of a JSON answer. Damaged text becomes U+FFFD, and so fails its hash or digest later on."""
    found: list[list[Any]] = json.loads(cell.decode("utf-8", "replace"))
    return found


def read_records(run_id: RunId, found: list[list[Any]]) -> list[Record]:
    unhex = bytes.fromhex
    records = []
    for values in found:
        if values.count(None) > (values[11] is None) + (values[12] is None):
            seq = values[0] if isinstance(values[0], int) else None
            raise CorruptJournal(f"Record {seq} of run {run_id} lost a value.", run_id=run_id, seq=seq)
        values[13] = unhex(values[13])
        records.append(Record(*values))
    return records


def listing(which: RunFilter) -> tuple[str, dict[str, Any]]:
    """As `rows.listing`, with lists as JSON."""
    name, parameters = rows.listing(which)
    for several in ("statuses", "owners", "tags"):
        if parameters[several] is not None:
            parameters[several] = json.dumps(parameters[several])
    return name, parameters
