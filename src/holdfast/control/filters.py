"""Which runs are meant: the filters of `runs()`, and of what is done to many at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, TypedDict, TypeVar

from holdfast.base.clock import in_seconds, now_us
from holdfast.durations import Duration
from holdfast.errors import UsageError
from holdfast.model import RunFilter, RunId, Status, ThreadId

T = TypeVar("T")

StatusName: TypeAlias = Literal[
    "queued",
    "running",
    "sleeping",
    "waiting",
    "paused",
    "in_doubt",
    "blocked",
    "quarantined",
    "done",
    "failed",
    "cancelled",
]


class Filters(TypedDict, total=False):
    """What runs must have in common; None, or nothing, means any."""

    status: Status | StatusName | None
    agent: str | None
    thread_id: str | None
    queue: str | None
    tags: Mapping[str, str] | None  #: all of them; it is fastest if what few runs have comes first
    since: Duration | datetime | None  #: created since then, or not longer ago than that


def run_filter(
    filters: Filters, *, limit: int = 50, after: str | None = None, among: frozenset[Status] = frozenset(Status)
) -> RunFilter:
    """The filter as a store takes it; UsageError says what of it cannot be. `among`: none but these are meant."""
    thread_id, status, since = filters.get("thread_id"), filters.get("status"), filters.get("since")
    statuses = among if status is None else among & {_status(status)}
    return RunFilter(
        status=None if statuses == frozenset(Status) else statuses,
        agent=checked_text("agent", filters.get("agent")),
        thread_id=None if thread_id is None else ThreadId(checked_text("thread_id", thread_id)),
        queue=checked_text("queue", filters.get("queue")),
        since=None if since is None else _since_us(since),
        tags=tuple(as_tags(filters.get("tags") or {}).items()),
        limit=checked_limit(limit),
        before_id=None if after is None else RunId(checked_text("after", after)),
    )


def as_tags(given: Mapping[str, str]) -> Mapping[str, str]:
    """What was given as tags, of a new run or to look for."""
    if not isinstance(given, Mapping):
        raise UsageError(f"tags= takes names with their texts, like {{'team': 'sales'}}; got {given!r}.")
    for name, value in given.items():
        for each in (name, value):
            if not isinstance(each, str) or len(each) > 200 or not each.isprintable():
                raise UsageError(f"tags= takes texts of at most 200 printable characters; got {name!r}: {value!r}.")
    return given


def checked_text(what: str, given: T) -> T:
    """What was given to look for, if it can be one; `what` names the argument."""
    if given is not None and not isinstance(given, str):
        raise UsageError(f"{what}= takes a text{', the name of an agent' if what == 'agent' else ''}; got {given!r}.")
    return given


def checked_limit(given: int) -> int:
    """How many are wanted, if it is a number."""
    if not isinstance(given, int) or given < 0:
        raise UsageError(f"limit= takes a number; got {given!r}.")
    return given


def _status(given: str) -> Status:
    try:
        return Status(given)
    except ValueError:
        raise UsageError(f"status= takes one of {', '.join(Status)}; got {given!r}.") from None


def _since_us(since: Duration | datetime) -> int:
    if not isinstance(since, datetime):
        return now_us() - int(in_seconds(since, "since=") * 1_000_000)
    if since.tzinfo is None:
        raise UsageError(f"since= takes a datetime with a time zone; got {since!r}.")
    return (since - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
