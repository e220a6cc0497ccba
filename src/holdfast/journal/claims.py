"""What the records that begin executions say."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from holdfast.model import Kind, Record


def without_origin(records: Sequence[Record]) -> Sequence[Record]:
    """The records without the first, if whoever created the run took it at once: with which code, the claim says."""
    if len(records) < 2 or records[1].kind != Kind.claimed or records[0].kind != Kind.created:
        return records
    return records[1:] if records[0].epoch == records[1].epoch else records


@functools.lru_cache(1024)
def claim_in(payload: str) -> tuple[str, str, bool]:
    """Code and proof of a claim, and whether somebody accepts with it what changed outside.

    A worker writes the same text into all runs that it takes from the store.
    """
    note = json.loads(payload)
    return note.get("code", ""), note.get("proof", ""), bool(note.get("accepts"))
