"""What SQLite's answers in JSON become."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.errors import CorruptJournal
from holdfast.model import Record, RunFilter, RunId
from holdfast.store import indexes
from holdfast.store.shapes import RECORD, fits


def read_rows(cell: bytes) -> list[list[Any]]:
    """The rows of a JSON answer. Damaged text becomes U+FFFD, and so fails its hash or digest later on."""
    found: list[list[Any]] = json.loads(cell.decode("utf-8", "replace"))
    return found


def read_records(run_id: RunId, found: list[list[Any]]) -> list[Record]:
    unhex = bytes.fromhex
    records = []
    for values in found:
        if not fits(values, RECORD):
            seq = values[0] if isinstance(values[0], int) else None
            raise CorruptJournal(
                f"Record {seq} of run {run_id} lost a value, or has one of another kind than its column.",
                run_id=run_id,
                seq=seq,
            )
        values[13] = unhex(values[13])
        records.append(Record(*values))
    return records


def listing(which: RunFilter, sizes: Mapping[str, int | None] | None = None) -> tuple[str, dict[str, Any]]:
    """As `indexes.listing`, with lists as JSON."""
    name, parameters = indexes.listing(which, sizes)
    return name, _bindable(parameters)


def size_parameters(which: RunFilter, before_at: int) -> dict[str, Any]:
    """As `indexes.size_parameters`, with lists as JSON."""
    return _bindable(indexes.size_parameters(which, before_at))


def _bindable(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: json.dumps(each) if isinstance(each, list | tuple) else each for name, each in parameters.items()}
