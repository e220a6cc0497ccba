"""`holdfast watch`"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import click

from holdfast.base.clock import as_time, now_us
from holdfast.cli.failure import FAILED, INTERRUPTED, OK
from holdfast.cli.frames import run_lines, snapshot_lines
from holdfast.cli.lists import line_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import existing_store, run_argument
from holdfast.cli.text import to_json
from holdfast.cli.timeline import Line, painted
from holdfast.history.info import RunInfo, info_of
from holdfast.history.lookup import find, row_of
from holdfast.history.pages import timeline_pages
from holdfast.history.snapshot import Snapshot, Watcher
from holdfast.history.timeline import TimelineItem
from holdfast.history.waiting import now_of
from holdfast.journal.pages import source_of
from holdfast.model import RunId, RunRow, Status
from holdfast.store.contract import Store

_REFRESH_S = 0.25
_LAST = 10_000  #: things that happened to a run, of those that a terminal may show


@command("watch")
@run_argument(required=False)
@click.option("--once", is_flag=True, help="Show how it is now, and end.")
def watch_command(setup: Setup, run: str | None, once: bool) -> int:
    """Watch runs as they go on.

    All that are under way or have just ended; or one run, with its history, until it ends (exit code 1 if it failed).
    q or Ctrl-C leaves. Piped, a line for each change: time, run, status, agent, now, calls; for one run the lines of
    `holdfast show`. With --json each line is a JSON object.
    """

    async def go() -> int:
        async with existing_store(setup) as store:
            if run is None:
                return await _watch_all(setup, store, once=once)
            return await _watch_one(setup, store, (await find(store, run)).id, once=once)

    try:
        return asyncio.run(go())
    except KeyboardInterrupt:
        return INTERRUPTED


# all runs


async def _watch_all(setup: Setup, store: Store, *, once: bool) -> int:
    watcher = Watcher(store)
    if setup.is_table:
        if once:
            size = shutil.get_terminal_size()
            _print_lines(setup, snapshot_lines(await watcher.look(), size.columns, 10_000))
            return OK

        async def frame(columns: int, rows: int) -> list[Line]:
            return snapshot_lines(await watcher.look(), columns, rows)

        await _draw(setup, frame)
        return OK
    seen: dict[str, tuple[Any, ...]] = {}
    while True:
        snapshot = await watcher.look()
        for info in reversed(snapshot.runs):
            state = (info.status, info.is_lost, info.now, info.steps + info.effects, str(info.reason))
            if seen.get(info.id) != state and (seen or not info.status.is_final or once):
                _print_change(setup, snapshot, info)
            seen[info.id] = state
        if once:
            return OK
        sys.stdout.flush()
        await asyncio.sleep(_REFRESH_S)


def _print_change(setup: Setup, snapshot: Snapshot, info: RunInfo) -> None:
    at = snapshot.at.isoformat(timespec="milliseconds")
    if setup.is_json:
        print(to_json({"at": at, **info.as_dict()}))
        return
    status = "cut_off" if info.is_lost else info.status.value
    print(line_of((at, info.id, status, info.agent, now_of(info), info.steps + info.effects)))


# one run


@dataclass(slots=True)
class _Story:
    """One run; its records are read when there are new ones, page by page."""

    store: Store
    run_id: RunId
    source: str | None = None  #: the file that it was last executed from
    _seen: tuple[object, ...] | None = None
    _last: deque[TimelineItem] = field(default_factory=lambda: deque(maxlen=_LAST))

    async def look(self) -> tuple[RunInfo, list[TimelineItem]]:
        """How it is now, and what happened last: no terminal shows more."""
        row, is_lost = await self._row()
        if self._is_new(row, is_lost=is_lost):
            self.source = await source_of(self.store, row)
            self._last.clear()
            async for items in self._pages(row):
                self._last.extend(items)
        return info_of(row, is_lost=is_lost), list(self._last)

    async def pages(self) -> tuple[RunInfo, AsyncIterator[list[TimelineItem]]]:
        """How it is now, and all that happened; nothing if that is as it was."""
        row, is_lost = await self._row()
        pages = self._pages(row) if self._is_new(row, is_lost=is_lost) else _no_pages()
        return info_of(row, is_lost=is_lost), pages

    def _is_new(self, row: RunRow, *, is_lost: bool) -> bool:
        before, self._seen = self._seen, (row.head_seq, row.epoch, row.status, is_lost)
        return before != self._seen

    async def _row(self) -> tuple[RunRow, bool]:
        row = await row_of(self.store, self.run_id)
        return row, row.owner is not None and row.owner in await self.store.dead_workers()

    async def _pages(self, row: RunRow) -> AsyncIterator[list[TimelineItem]]:
        asked = await self.store.questions(run_id=self.run_id, only_open=False)
        async for items in timeline_pages(self.store, row, asked=asked):
            yield items


async def _no_pages() -> AsyncIterator[list[TimelineItem]]:
    for page in list[list[TimelineItem]]():
        yield page


async def _watch_one(setup: Setup, store: Store, run_id: RunId, *, once: bool) -> int:
    story = _Story(store, run_id)
    if setup.is_table:
        return await _show_one(setup, story, once=once)
    seen: set[tuple[int, str]] = set()
    while True:
        info, pages = await story.pages()
        async for timeline in pages:
            for item in timeline:
                if (item.seq, item.status) not in seen:
                    seen.add((item.seq, item.status))
                    _print_item(setup, info, item)
        sys.stdout.flush()
        if once or info.status.is_final:
            return _code(info, once=once)
        await asyncio.sleep(_REFRESH_S)


async def _show_one(setup: Setup, story: _Story, *, once: bool) -> int:
    if not once:
        ended = asyncio.Event()

        async def frame(columns: int, rows: int) -> list[Line]:
            info, timeline = await story.look()
            if info.status.is_final:
                ended.set()
            return run_lines(info, timeline, as_time(now_us()), columns, rows, source=story.source)

        await _draw(setup, frame, until=ended)
        info, _ = await story.look()
        return _code(info, once=False)
    info, timeline = await story.look()
    columns = shutil.get_terminal_size().columns
    _print_lines(setup, run_lines(info, timeline, as_time(now_us()), columns, 10_000, source=story.source))
    return OK


def _code(info: RunInfo, *, once: bool) -> int:
    return FAILED if info.status in (Status.failed, Status.cancelled) and not once else OK


def _print_item(setup: Setup, info: RunInfo, item: TimelineItem) -> None:
    if setup.is_json:
        print(to_json({"run": info.id, **item.as_dict()}))
        return
    took = None if item.took_s is None else f"{item.took_s:.6f}"
    at = item.at.isoformat(timespec="milliseconds")
    print(line_of((at, item.key or item.name, item.kind, item.status, took, item.attempt, item.detail)))


# drawing

Frame = Callable[[int, int], Awaitable[list[Line]]]  #: of columns and rows


async def _draw(setup: Setup, frame: Frame, *, until: asyncio.Event | None = None) -> None:
    """Draw frames until q, Ctrl-C or the event; the last one stays."""
    from holdfast.cli.live import Screen

    screen = Screen(setup)
    try:
        with screen.shown():
            async for _ in screen.ticks(_REFRESH_S):
                screen.draw([*await frame(*screen.size), [("q ends", "dim")]])
                if until is not None and until.is_set():
                    break
    finally:
        _print_lines(setup, await frame(*screen.size))


def _print_lines(setup: Setup, lines: list[Line]) -> None:
    for line in lines:
        print(painted(line, setup.has_color(sys.stdout)).rstrip())
