"""What is read of many runs at once, for who watches a store: how many there are, when they began, what is asked.

All of it is bounded: a count ends at a number, a list has a page. What indexes can tell is told by the database;
filters that few runs fit are listed and counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from holdfast.model import Act, ActFilter, QuestionRow, Record, RunFilter, RunId, RunRow, Status, Via, WorkerId
from holdfast.store import rows
from holdfast.store.indexes import listing

#: Rows that are listed to be counted, where no index counts.
FEW = 1_000
#: Most moves that are told at once: who is far behind reads the lists.
MOST_MOVES = 5_000
#: One bin that all times are in.
_ALL_TIMES = 2**62

Bins = dict[Status, dict[int, int]]


class Outline(NamedTuple):
    """A run's row and its records after a number, of one moment, without bulky values."""

    row: RunRow
    records: list[Record]


class Moves(NamedTuple):
    """Runs that were created, taken, parked, ended or emptied, each as it is now, in the order of commits."""

    rows: list[RunRow]
    cursor: str  #: from here on, for the next look
    is_known: bool = True  #: False: the cursor is none of this store; it begins anew from here


class Surveys(Protocol):
    """Reads over many runs."""

    async def histogram(self, which: RunFilter, *, width: int, most: int) -> Bins:
        """How many runs that fit were created when, by status: in bins of so many µs from `which.since` on.

        Of each status the newest `most` are counted. A filter by thread, parent, id, owner or tag counts the newest
        `FEW` in all.
        """
        ...

    async def agents(self) -> list[str]:
        """The agents that have runs, in order. What it costs does not grow with the number of runs."""
        ...

    async def owned_counts(self) -> dict[WorkerId, int]:
        """How many runs each worker has, of those that have any."""
        ...

    async def questions(
        self, *, only_open: bool, limit: int, after: tuple[int, str] | None = None
    ) -> list[QuestionRow]:
        """A page of questions, from behind one (asked_at, id) on: open ones oldest first, all of them newest first."""
        ...

    async def moves(self, after: str | None) -> Moves:
        """What has moved since a cursor; without one, nothing, and from where to look on.

        Nothing is missed, whoever commits when; some runs may come twice. Appends of a running run do not move it.
        """
        ...

    async def owned(self, *, limit: int) -> list[RunRow]:
        """Runs that somebody executes."""
        ...

    async def open_questions(self, *, limit: int) -> dict[str, RunId]:
        """The ids of questions that wait for an answer, oldest first, with their runs."""
        ...

    def commits(self) -> bytes | None:
        """Stays the same as long as nothing was committed; None: that is not known without looking."""
        ...

    async def acts(self, which: ActFilter) -> list[tuple[int, Act]]:
        """What people did, newest first, each with its number."""
        ...

    async def outline(self, run_id: RunId, *, after: int = 0, limit: int = 1_000_000) -> Outline | None:
        """A run and its records without hashes, arguments, results, and what else is over 20,000 characters."""
        ...

    async def record(self, run_id: RunId, seq: int) -> Record | None:
        """One record, as it is stored."""
        ...


async def counts(surveys: Surveys, which: RunFilter, *, cap: int) -> tuple[dict[Status, int], int]:
    """How many runs fit, by status, and where counting ended: a number above that means more."""
    found = await surveys.histogram(which, width=_ALL_TIMES, most=cap + 1)
    at_most = cap if is_indexed(which) else min(cap, FEW)
    total = {status: sum(bins.values()) for status, bins in found.items()}
    if not is_indexed(which) and sum(total.values()) > at_most:
        total = dict.fromkeys(total, at_most + 1)
    return total, at_most


def is_indexed(which: RunFilter) -> bool:
    """Whether an index counts these runs."""
    name, _ = listing(which)
    return name in _INDEXED


#: The histogram whose index fits a list's filter.
_INDEXED = {
    "runs_newest": "histogram_by_statuses",
    "runs_by_statuses": "histogram_by_statuses",
    "runs_by_agent": "histogram_by_agent",
    "runs_by_queue": "histogram_by_queue",
}


def survey_of(which: RunFilter) -> tuple[str, dict[str, Any]] | None:
    """The query that counts these runs, and its filters; None: they are to be listed."""
    name, filters = listing(which)
    if name not in _INDEXED:
        return None
    filters["statuses"] = sorted(which.status if which.status is not None else Status)
    return _INDEXED[name], filters


def few(which: RunFilter) -> RunFilter:
    """What is listed to be counted."""
    return replace(which, limit=FEW + 1)


def bins_of(which: RunFilter, listed: Sequence[RunRow], width: int) -> Bins:
    """The same as the database counts it, of runs that were listed."""
    since = rows.EVER if which.since is None else which.since
    return read_bins((row.status, (row.created_at - since) // width, 1) for row in listed)


def read_bins(found: Iterable[Sequence[Any]]) -> Bins:
    """From (status, bin, count)."""
    bins: dict[Status, Counter[int]] = {}
    for status, place, count in found:
        bins.setdefault(Status(status), Counter())[place] += count
    return {status: dict(each) for status, each in bins.items()}


def acts_query(which: ActFilter) -> tuple[str, dict[str, Any]]:
    """The query whose index fits best, and its filters."""
    before_at, before_number = which.before or (-rows.EVER, 0)
    name = "acts_of_run" if which.run_id is not None else "acts_by" if which.by is not None else "acts"
    return name, {
        "since": rows.EVER if which.since is None else which.since,
        "before_at": before_at,
        "before_number": before_number,
        "limit": which.limit,
        "by": which.by,
        "run_id": which.run_id,
    }


def read_act(values: Sequence[Any]) -> tuple[int, Act]:
    number, at, who, via, what, target, run_id, note = values
    return number, Act(at, who, Via(via), what, target, None if run_id is None else RunId(run_id), note)
