"""From which index a list of runs is read.

Every order of a list is an index's, so a page is bounded, unless next to nothing fits a filter that the index does not
have. Where a list has several filters, the entries of each are counted, up to a number, and the smallest is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model import RunFilter, Status
from holdfast.store.rows import EVER

#: So many entries of an index are walked past without thinking of another.
FEW_ENTRIES = 2_000


def listing(which: RunFilter, sizes: Mapping[str, int | None] | None = None) -> tuple[str, dict[str, Any]]:
    """The query whose index fits a filter best, and its parameters, except where a cursor stands.

    `sizes`: what the query of that name found, which is worth asking if `has_choice`.
    """
    name = _best_index(which) if sizes is None else _smallest(which, sizes)
    statuses = which.status
    if statuses is None and name in ("runs_by_queue", "runs_by_agent"):
        statuses = frozenset(Status)
    return name, {
        "statuses": None if statuses is None else sorted(statuses),
        "agent": which.agent,
        "thread_id": which.thread_id,
        "parent_id": which.parent_id,
        "queue": which.queue,
        "since": EVER if which.since is None else which.since,
        "before_at": -EVER if which.until is None else which.until,
        "before_id": which.before_id or "",
        "limit": which.limit,
        "owners": sorted(which.orphaned_from) if which.orphaned_from else None,
        "prefix": which.id_prefix or None,
        "tag": which.tags[0][0] if which.tags else "",
        "tag_value": which.tags[0][1] if which.tags else "",
        "tags": which.tags or None,
    }


def size_parameters(which: RunFilter, before_at: int) -> dict[str, Any]:
    """Those of the query `sizes`."""
    _, filters = listing(which)
    taken = ("agent", "thread_id", "parent_id", "queue", "since", "prefix", "tag", "tag_value")
    return {
        "statuses": sorted(Status if which.status is None else which.status),
        **{each: filters[each] for each in taken},
        "before_at": before_at,
        "most": FEW_ENTRIES,
    }


def has_choice(which: RunFilter) -> bool:
    """Whether several indexes have the runs that are meant, and which of them is small is not known."""
    return not which.orphaned_from and len(_indexes(which)) > 1


def _best_index(which: RunFilter) -> str:
    if which.orphaned_from and not which.tags and not which.id_prefix:
        return "runs_by_owner"
    return _indexes(which)[0]


def _smallest(which: RunFilter, sizes: Mapping[str, int | None]) -> str:
    """The index with the fewest entries; among those with too many to be counted, the one that is likely to fit."""
    indexes = _indexes(which)
    name = min(indexes, key=lambda each: _size(sizes, each))
    if name != "runs_by_prefix" or _size(sizes, name) < FEW_ENTRIES:
        return name
    return "runs_of_prefix" if indexes[1] == "runs_newest" else indexes[1]


def _size(sizes: Mapping[str, int | None], index: str) -> int:
    found = sizes["runs_by_statuses" if index == "runs_newest" else index]
    return FEW_ENTRIES if found is None else found


def _indexes(which: RunFilter) -> list[str]:
    """Indexes that a list may be read from; some status of an agent or of a queue has entries of its own in theirs."""
    asked = {
        "runs_by_tag": which.tags,
        "runs_by_prefix": which.id_prefix,
        "runs_by_parent": which.parent_id is not None,
        "runs_by_thread": which.thread_id is not None,
        "runs_by_queue": which.queue is not None,
        "runs_by_agent": which.agent is not None,
    }
    found = [name for name, is_asked in asked.items() if is_asked]
    if which.status is not None and found not in (["runs_by_queue"], ["runs_by_agent"]):
        found.append("runs_by_statuses")
    if not found or found == ["runs_by_prefix"]:
        found.append("runs_newest")
    return found
