"""Which runs are meant by the filters of a list."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from holdfast.base.data import data
from holdfast.model import RunFilter, RunId, Status, ThreadId, WorkerId
from holdfast.server.objects import as_us
from holdfast.server.pages import Position
from holdfast.server.problems import Problem


@data
class Which:
    """Runs that are meant; None, or nothing, means any."""

    status: tuple[Status, ...] = ()
    agent: str | None = None
    thread: str | None = None
    queue: str | None = None
    parent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    prefix: str | None = None
    cut_off: bool | None = None
    tag: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """As a client wrote it: what a cursor belongs to."""
        return {**asdict(self), "status": sorted(self.status), "tag": sorted(self.tag)}

    def filter(self, dead: frozenset[WorkerId], *, limit: int = 50, after: Position | None = None) -> RunFilter:
        """As a store takes it; `dead` are the workers that `cut_off` means."""
        return RunFilter(
            status=frozenset(self.status) or None,
            agent=self.agent,
            thread_id=None if self.thread is None else ThreadId(self.thread),
            queue=self.queue,
            parent_id=None if self.parent is None else RunId(self.parent),
            since=None if self.since is None else as_us(self.since),
            until=None if self.until is None else as_us(self.until),
            id_prefix=self.prefix,
            tags=tuple(_tag(each) for each in self.tag),
            before_id=None if after is None else RunId(after.id),
            before_at=None if after is None else after.at,
            limit=limit,
            orphaned_from=dead if self.cut_off else frozenset(),
        )


def _tag(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise Problem("invalid_parameter", f"A tag is NAME=VALUE; got {given[:100]!r}.")
    return name, value
