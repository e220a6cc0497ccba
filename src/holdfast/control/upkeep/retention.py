"""How long runs are kept once they have ended: pruning what is older, and rules that have workers do it.

What was said in a thread goes when the last of its runs is pruned, if nothing was said there for as long.

Pruning removes what a run did and leaves its tombstone: a row that says who it was and how it ended, so that a start
with the same id, or a message that comes a second time, still meets what it met before. It goes in small commits, with
pauses in between, so that others are not held up; cut off anywhere, it can be done again.

A rule is a definition of kind `retention` (its name: the agent, or `*` for all agents without a rule of their own).
It is due once a minute. Whichever worker moves that time ahead does the work, in the background and for a while.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.base.clock import in_seconds, monotonic_us, now_us
from holdfast.base.data import data
from holdfast.base.telemetry import info, warn
from holdfast.codec import said_by
from holdfast.control.filters import checked_text
from holdfast.control.upkeep.filing import drop_left_files
from holdfast.durations import Duration
from holdfast.errors import HoldfastError, StoreError, UsageError
from holdfast.journal.tombstones import is_empty, tombstone
from holdfast.model import FINAL, Act, Definition, Removal, RunId, RunRow, Status, reasons
from holdfast.store.contract import Store

KIND = "retention"
EVERY_OTHER = "*"

_AT_ONCE = 500  # runs in a commit
_LEAST, _FIRST, _MOST = 100, 1000, 20_000  # rows removed in a commit
_SHORT_US, _LONG_US = 8_000, 20_000  # a commit that is faster, or slower, than this is followed by another size
_REST = 1.0  # pauses, as a share of the time that the work takes
_QUIET_REST = 4.0  # the same for a worker, which has other things to do
_EVERY_US = 60_000_000
_TURN_S = 20.0  # how long a worker prunes at a time
_ATTEMPTS = 100


@data
class PruneResult:
    """What a prune removed, or would remove.

    Example: `print((await app.prune(older_than=timedelta(days=30), dry_run=True)).runs)`
    """

    runs: int  #: that became tombstones
    records: int  #: that they had
    kept: int  #: that are old enough, and that something alive may need
    forgotten: int  #: tombstones that were removed
    dry_run: bool
    threads: int = 0  #: that were idle for as long, and that no run is part of which has anything left


@data
class RetentionInfo:
    """For how long the runs of an agent are kept once they have ended."""

    agent: str  #: `*`: all agents that have no rule of their own
    keep: timedelta | None  #: None: for ever
    last_at: datetime | None  #: when a worker pruned last by this rule
    last_runs: int  #: how many runs


#: Told after each commit: runs pruned so far.
Progress = Callable[[int], None]


async def prune(
    store: Store,
    older_than: Duration,
    *,
    agent: str | None = None,
    statuses: Sequence[Status] = (),
    forget: bool = False,
    progress: Progress | None = None,
    act: Act | None,
) -> PruneResult:
    """Remove what runs did that ended longer ago than that; with `forget`, also tombstones that are so old.

    Nothing is removed that something alive may need: see `Store.ended`. Who does it is kept before anything is removed;
    without an act, it is only told what would be.
    """
    checked_text("agent", agent)
    statuses = [Status(each) for each in statuses]  # an app is given strings as well
    unfinished = [status.value for status in statuses if status not in FINAL]
    if unfinished:
        raise UsageError(f"Only runs that have ended can be pruned, not those that are {', '.join(unfinished)}.")
    before = now_us() - int(in_seconds(older_than, "older_than=") * 1_000_000)
    wanted = frozenset(statuses) or FINAL
    dry_run = act is None
    if act is not None:
        await store.add_act(act)
    agents = await store.ended_agents() if agent is None else [agent]
    pruner = _Pruner(store, before, progress=progress, rest=_REST)
    for each in agents:
        await pruner.prune(each, wanted, dry_run=dry_run)
    forgotten = 0
    if forget:
        async for page in _old_tombstones(store, before, agent, frozenset(statuses or Status)):
            forgotten += len(page) if dry_run else await store.forget_runs([row.id for row in page])
    await pruner.prune_threads(strays=agent is None, dry_run=dry_run)
    if not dry_run:
        await drop_left_files(store)
    return PruneResult(pruner.runs, pruner.records, pruner.kept, forgotten, dry_run, pruner.threads)


async def _old_tombstones(
    store: Store, before: int, agent: str | None, statuses: frozenset[Status]
) -> AsyncIterator[list[RunRow]]:
    after: RunId | None = None
    while page := await store.tombstones(before=before, agent=agent, after=after, limit=_AT_ONCE):
        yield [row for row in page if row.status in statuses]
        after = page[-1].id


class _Pruner:
    """Prunes in commits that take a few hundredths of a second, with pauses as long as that."""

    def __init__(
        self, store: Store, before: int, *, rest: float, progress: Progress | None = None, until_us: int | None = None
    ) -> None:
        self._store = store
        self._before = before
        self._rest = rest
        self._progress = progress
        self._until_us = until_us
        self._size = _FIRST
        self.runs = self.records = self.kept = self.threads = 0

    @property
    def is_over(self) -> bool:
        return self._until_us is not None and monotonic_us() >= self._until_us

    async def prune(self, agent: str, statuses: frozenset[Status], *, dry_run: bool) -> None:
        after: tuple[int, RunId] | None = None
        while not self.is_over:
            page = await self._store.ended(agent, before=self._before, after=after, limit=_AT_ONCE)
            if not page:
                return
            last = page[-1].row
            after = (last.created_at, last.id)
            old = [each for each in page if each.row.status in statuses]
            self.kept += sum(not each.is_free for each in old)
            free = [each.row for each in old if each.is_free]
            if dry_run:
                self.runs += len(free)
                self.records += sum(row.head_seq for row in free if not is_empty(row))
                continue
            while free and not self.is_over:
                few = self._few(free)
                free = free[len(few) :]
                await self._entomb(few)

    async def prune_threads(self, *, strays: bool, dry_run: bool) -> None:
        """Remove what was said in threads that outlived their runs. `strays`: and in those that never had one."""
        while not self.is_over:
            idle = await self._store.idle_threads(before=self._before, strays=strays, limit=_AT_ONCE)
            if dry_run or not idle:
                self.threads += len(idle)
                return
            for thread_id in idle:
                began = monotonic_us()
                self.threads += await self._store.forget_thread(thread_id, before=self._before, strays=strays)
                await asyncio.sleep((monotonic_us() - began) * self._rest / 1e6)

    def _few(self, rows: Sequence[RunRow]) -> list[RunRow]:
        """As many as go into one commit; at least one."""
        few: list[RunRow] = []
        left = self._size
        for row in rows:
            if few and row.head_seq + 1 > left:
                break
            few.append(row)
            left -= row.head_seq + 1
        return few

    async def _entomb(self, rows: Sequence[RunRow]) -> None:
        now = now_us()
        # One that was begun before is gone on with as it is stored.
        stones = [row if is_empty(row) else tombstone(row, reasons.Pruned(now)) for row in rows]
        counted = {row.id for row in rows if not is_empty(row)}
        first = True
        while stones and not self.is_over:
            began = monotonic_us()
            became = await self._store.prune(stones, before=self._before, most=self._size, now=now)
            took = monotonic_us() - began
            if first:
                self.kept += became.count(Removal.kept)
                removed = [row for row, what in zip(stones, became, strict=True) if what is not Removal.kept]
                self.runs += len(removed)
                self.records += sum(row.head_seq for row in removed if row.id in counted)
            first = False
            stones = [row for row, what in zip(stones, became, strict=True) if what is Removal.partly]
            if took < _SHORT_US:
                self._size = min(self._size * 2, _MOST)
            elif took > _LONG_US:
                self._size = max(self._size // 2, _LEAST)
            if self._progress is not None:
                self._progress(self.runs)
            await asyncio.sleep(took * self._rest / 1e6)


# rules


def _keep_of(definition: Definition) -> int | None:
    """For how many microseconds; None: for ever. ValueError if it cannot be read: then nothing is removed."""
    keep = json.loads(definition.body)["keep_us"]
    if keep is not None and (not isinstance(keep, int) or keep < 0):
        raise ValueError(f"{keep!r} is no time")
    return keep


class Retention:
    """The rules of a store, and what a worker does about them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._working: asyncio.Task[None] | None = None
        self._told: set[tuple[str, int]] = set()

    async def set(self, agent: str, keep: Duration | None, act: Act | None = None) -> None:
        """Make, change or (None) remove the rule of an agent; `timedelta.max`: its runs are kept for ever."""
        if not agent or not isinstance(agent, str):
            raise UsageError(f"retain() takes the name of an agent, or '*' for all others; got {agent!r}.")
        if keep is None:
            await self._store.forget(KIND, [agent], act=act)
            return
        keep_us = None if keep == timedelta.max else int(in_seconds(keep, "keep=") * 1_000_000)
        for _ in range(_ATTEMPTS):
            found = await self._store.definitions(KIND, names=[agent])
            body = json.dumps({**_read(found[0] if found else None), "keep_us": keep_us})
            revision = found[0].revision + 1 if found else 1
            due_at = None if keep_us is None else now_us()
            if (await self._store.define([Definition(KIND, agent, body, revision, due_at)], act=act))[0]:
                self._store.ring()
                return
        raise StoreError(f"The rule for {agent!r} was changed by others {_ATTEMPTS} times in a row; try again.")

    async def infos(self) -> list[RetentionInfo]:
        """All rules, by agent."""
        infos = []
        for definition in await self._store.definitions(KIND):
            try:
                keep_us, body = _keep_of(definition), _read(definition)
            except (ValueError, KeyError, TypeError) as error:
                self._warn(definition, error)
                continue
            last = body.get("last_at")
            infos.append(
                RetentionInfo(
                    agent=definition.name,
                    keep=None if keep_us is None else timedelta(microseconds=keep_us),
                    last_at=None if last is None else datetime.fromtimestamp(last / 1e6, UTC),
                    last_runs=int(body.get("last_runs", 0)),
                )
            )
        return infos

    def _warn(self, definition: Definition, error: Exception) -> None:
        if (definition.name, definition.revision) not in self._told:
            self._told.add((definition.name, definition.revision))
            warn("retention.unreadable", agent=definition.name, error=said_by(error))

    # by a worker

    async def prune_due(self, now: int) -> int:
        """Begin to prune by the rules that are due and that no other worker takes; 0, since no run comes of it."""
        if self._working is not None and not self._working.done():
            return 0
        for definition in await self._store.definitions(KIND, due=now, limit=100):
            try:
                _keep_of(definition)
            except (ValueError, KeyError, TypeError) as error:
                self._warn(definition, error)
                continue
            claim = replace(definition, revision=definition.revision + 1, due_at=now + _EVERY_US)
            if (await self._store.define([claim]))[0]:
                self._working = asyncio.create_task(self._work(claim))
                return 0
        return 0

    async def stop(self) -> None:
        """Let go; what is not removed by then is removed by whoever comes next."""
        task, self._working = self._working, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})

    async def _work(self, rule: Definition) -> None:
        try:
            keep_us = _keep_of(rule)
            assert keep_us is not None
            until_us = monotonic_us() + int(_TURN_S * 1e6)
            pruner = _Pruner(self._store, now_us() - keep_us, rest=_QUIET_REST, until_us=until_us)
            for agent in await self._agents(rule.name):
                await pruner.prune(agent, FINAL, dry_run=False)
            await pruner.prune_threads(strays=rule.name == EVERY_OTHER, dry_run=False)
            await drop_left_files(self._store)
            if pruner.runs:
                info("runs.pruned", agent=rule.name, runs=pruner.runs)
                body = json.dumps({**_read(rule), "last_at": now_us(), "last_runs": pruner.runs})
                await self._store.define([replace(rule, body=body, revision=rule.revision + 1)])
        except HoldfastError as error:
            warn("prune.failed", agent=rule.name, error=str(error))

    async def _agents(self, name: str) -> list[str]:
        if name != EVERY_OTHER:
            return [name]
        own = {each.name for each in await self._store.definitions(KIND)}
        return [agent for agent in await self._store.ended_agents() if agent not in own]


def _read(definition: Definition | None) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(definition.body) if definition is not None else {}
        return found if isinstance(found, dict) else {}
    return {}
