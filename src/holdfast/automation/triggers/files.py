"""Files whose changes start runs.

What is known of each file is its cursor (`cursors.py`). A scan compares all files with their cursors; so nothing is
missed while no process was there, and news from the system only say when to scan.

A change is reported in three steps: the cursor is moved by compare-and-set, with the id of the run, and becomes due;
the run is started; the cursor is due no more. Of several workers, the one that moves the cursor starts the run. If it
dies, the cursor is found to be due, and whoever finds it starts the run, under the same id.

The id is made up for each move of a cursor, and only one of several moves wins. So content that comes back later, as A
does in A, B, A, is a change as any other, even if the file system says the same of the file as before. A cursor is
forgotten only as it was when its file was found to be gone: the file may be back.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Final, NamedTuple, TypeVar

from holdfast.automation.triggers.contents import Contents, Digest
from holdfast.automation.triggers.cursors import Cursor, Cursors, after, cursor_of
from holdfast.automation.triggers.definitions import Body, Tally, Trigger, body_of, change, new_mark
from holdfast.automation.triggers.filters import matches
from holdfast.automation.triggers.refused import KEPT_US as REFUSED_KEPT_US
from holdfast.automation.triggers.refused import forget_refused, set_aside
from holdfast.automation.triggers.scanning import Pattern, Scan, Stat, differing
from holdfast.automation.triggers.sources import Change, FileEvent
from holdfast.automation.triggers.starting import Fate, Occasion, StartAttempt, StartRun, start_all
from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.telemetry import warn
from holdfast.codec import digest
from holdfast.model import Definition
from holdfast.store.contract import Store

#: How often all files are looked at when there is no news.
RESCAN_S: Final = 5.0

#: How long the first scan may go on without a sign of life.
_SCAN_CLAIM_US: Final = 30_000_000
#: A file written so shortly before may be written again without a new time, if the file system's clock is coarse.
_COARSE_NS: Final = 2_000_000_000
_LEAST_SETTLE_S: Final = 0.02
_AGAIN_US: Final = 500_000
_UNREADABLE_US: Final = 60_000_000
_BATCH: Final = 200

T = TypeVar("T")


class _Seen(NamedTuple):
    """A file that is not as it is known to be, and has settled."""

    event: FileEvent
    stat: Stat  #: of a deleted file, as it was
    is_wanted: bool
    is_match: bool
    refusal: str = ""  #: why it can never be a run


class FileTrigger:
    """Keeps one file trigger going in this process."""

    def __init__(
        self, store: Store, trigger: Trigger, *, start: StartRun, tally: Tally, rescan_s: float = RESCAN_S
    ) -> None:
        self._store = store
        self._trigger = trigger
        self._start = start
        self._tally = tally
        self._rescan_us = int(rescan_s * 1e6)
        self._pattern = Pattern(trigger.config["pattern"], links=trigger.config["links"])
        self._folder = self._pattern.folder
        self._contents = Contents(self._folder)
        self._max_size = trigger.config["max_size"]
        self._settle_us = int(max(float(trigger.config["settle"]), _LEAST_SETTLE_S) * 1e6)
        self._cursors = Cursors(store, trigger.name)
        #: files that are not as they are known to be: how they are, and since when that is so
        self._unsettled: dict[str, tuple[Stat | None, int]] = {}
        self._news = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._watched: tuple[int, int] | None = None

    async def run(self) -> None:
        """Report changes until cancelled."""
        await self.first_scan()
        self._cursors.known = await self._cursors.stored()
        next_scan = earliest = monotonic_us()
        try:
            while True:
                await self._start_due()
                began = monotonic_us()
                if began >= next_scan:
                    await self._tend_watch()
                    self._news.clear()
                    settled = await self._scan()
                    ended = monotonic_us()
                    # However much news there is, most of the time is left for others.
                    earliest = ended + 9 * (ended - began)
                    next_scan = max(ended + self._rescan_us, earliest)
                else:
                    settled = await self._glance()
                for first in range(0, len(settled), _BATCH):
                    await self._report(settled[first : first + _BATCH])
                if await self._wait(next_scan):
                    self._news.clear()
                    next_scan = min(next_scan, earliest)
        finally:
            await self._stop_watch()

    async def _wait(self, next_scan: int) -> bool:
        """Until it is time to look again, or there is news (True)."""
        settles = min((since for _, since in self._unsettled.values()), default=next_scan) + self._settle_us
        wait_us = min(settles, next_scan) - monotonic_us()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(wait_us, 1_000) / 1e6):  # not `wait_for`: it may swallow a cancellation
                await self._news.wait()
        return self._news.is_set()

    # the first scan

    async def first_scan(self) -> None:
        """Make files known that are there already, unless it was done; of several processes, one does it.

        Returns when it is done, whoever did it.
        """
        while True:
            trigger, is_ours = await change(self._store, self._trigger.name, _claim_scan)
            if trigger is None or "done" in (trigger.body["scanned"] or {}):
                return
            if is_ours:
                break
            await asyncio.sleep(0.05)
        if not self._trigger.config["existing"]:
            await self._take_as_known()
        await change(self._store, self._trigger.name, lambda body: body | {"scanned": {"done": now_us()}})

    async def _take_as_known(self) -> None:
        scan = await _in_thread(self._pattern.scan)
        known = await self._cursors.stored()
        await self._cursors.forget({path: cursor for path, cursor in known.items() if path not in scan.found})
        fresh = [
            (path, now)
            for path, now in scan.found.items()
            if (cursor := known.get(path)) is None or cursor.stat != now or cursor.is_due
        ]
        for first in range(0, len(fresh), _BATCH):
            batch = dict(fresh[first : first + _BATCH])
            while batch:
                read = await self._digests(list(batch.items()))
                new: list[Definition] = []
                for path, content in read.items():
                    now = batch.pop(path)
                    is_sure = content is not None and now_us() * 1000 - now.mtime_ns > _COARSE_NS
                    stat = now if is_sure else now._replace(mtime_ns=0)
                    revision = known[path].revision if path in known else 0
                    new.append(
                        self._cursors.as_known(
                            path, stat, content=content if isinstance(content, str) else "", revision=revision + 1
                        )
                    )
                await self._store.define(new)
                await change(self._store, self._trigger.name, lambda body: body | {"scanned": {"claimed": now_us()}})

    async def _digests(self, files: Sequence[tuple[str, Stat]]) -> dict[str, Digest]:
        """What stands for the contents of files, as many as a slice of time allows; nothing for those too large."""
        small = [(path, stat) for path, stat in files if not self._is_too_large(stat)]
        read = await _in_thread(lambda is_stopped: self._contents.read(small, is_stopped))
        return {path: "" for path, stat in files if self._is_too_large(stat)} | read

    def _is_too_large(self, stat: Stat) -> bool:
        return self._max_size is not None and stat.size > self._max_size

    # looking

    async def _scan(self) -> list[tuple[str, Stat | None]]:
        """Look at all files; those that differ and have settled."""

        def scanned(is_stopped: Callable[[], bool]) -> tuple[Scan, dict[str, Stat | None]]:
            scan = self._pattern.scan(is_stopped)
            return scan, differing(scan, {path: cursor.stat for path, cursor in self._cursors.known.items()})

        _, changed = await _in_thread(scanned)
        for path in self._unsettled.keys() - changed.keys():
            del self._unsettled[path]
        self._contents.keep(changed)
        return self._settled(changed)

    async def _glance(self) -> list[tuple[str, Stat | None]]:
        """Look only at files that have not settled yet."""
        looked = await asyncio.to_thread(self._folder.look, list(self._unsettled))
        changed: dict[str, Stat | None] = {}
        for path, now in looked.items():
            if now == self._cursors.stat(path):
                del self._unsettled[path]
            else:
                changed[path] = now
        return self._settled(changed)

    def _settled(self, changed: dict[str, Stat | None]) -> list[tuple[str, Stat | None]]:
        now = monotonic_us()
        for path, stat in changed.items():
            if path not in self._unsettled or self._unsettled[path][0] != stat:
                self._unsettled[path] = (stat, now)
        return [(path, stat) for path, stat in changed.items() if now - self._unsettled[path][1] >= self._settle_us]

    # reporting

    async def _report(self, settled: Sequence[tuple[str, Stat | None]]) -> None:
        await self._cursors.refresh([path for path, _ in settled])
        differ: list[tuple[str, Stat | None]] = []
        for path, stat in settled:
            cursor = self._cursors.known.get(path)
            if stat == self._cursors.stat(path):
                self._unsettled.pop(path, None)
            elif cursor is not None and cursor.is_due:  # the run of the change before is to be started first
                self._unsettled[path] = (stat, monotonic_us() + _AGAIN_US)
            else:
                differ.append((path, stat))
        seen = await self._read(differ)
        gone = [each.event.path for each in seen if each.event.change == "deleted" and not each.is_match]
        await self._cursors.forget({path: self._cursors.known[path] for path in gone})
        moved = [each for each in seen if each.event.change != "deleted" or each.is_match]
        cursors = [self._moved(each) for each in moved]
        won = await self._store.define(cursors) if cursors else []
        due: list[Definition] = []
        for each, new, is_ours in zip(moved, cursors, won, strict=True):
            if not is_ours:
                continue  # another worker was first; the next look tells whether anything is left to do
            self._cursors.note(new)
            self._unsettled.pop(each.event.path, None)
            if each.is_match:
                due.append(new)
            elif each.refusal:
                self._refuse(each.event.path, each.refusal)
            elif each.is_wanted:
                self._tally.note(self._trigger.name, "ignored", at=now_us(), detail=_told(each.event))
            self._tally.count(self._trigger.name, received=int(each.is_wanted), matched=int(each.is_match))
        await self._start_runs(due)

    def _moved(self, seen: _Seen) -> Definition:
        event, cursor = seen.event, self._cursors.known.get(seen.event.path)
        revision = 1 if cursor is None else cursor.revision + 1
        if not seen.is_match:
            return self._cursors.as_known(event.path, seen.stat, content=event.digest, revision=revision)
        run = f"{self._trigger.name}:{digest(os.fsencode(event.path))}:{new_mark()}"
        return self._cursors.moved(event, seen.stat, revision, run=run)

    async def _read(self, differ: Sequence[tuple[str, Stat | None]]) -> list[_Seen]:
        """What the contents say; a file whose content is the known one has only new times.

        Of those that it takes longer to read, nothing yet: they stay unsettled, and are gone on with.
        """
        read = await self._digests([(path, stat) for path, stat in differ if stat is not None])
        seen: list[_Seen] = []
        for path, stat in differ:
            cursor = self._cursors.known.get(path)
            if stat is None:
                if cursor is not None:
                    seen.append(self._judged(FileEvent(path, "deleted", cursor.digest, cursor.stat.size), cursor.stat))
                self._unsettled.pop(path, None)
                continue
            if path not in read:
                continue
            content = read[path]
            if isinstance(content, OSError):
                self._cannot_read(path, stat, content)
            elif content is None:
                self._unsettled[path] = (stat, monotonic_us())
            elif cursor is not None and content == cursor.digest:
                seen.append(_Seen(FileEvent(path, "changed", content, stat.size), stat, False, False))
            else:
                kind: Change = "created" if cursor is None else "changed"
                seen.append(self._judged(FileEvent(path, kind, content, stat.size), stat))
        return seen

    def _judged(self, event: FileEvent, stat: Stat) -> _Seen:
        is_wanted = event.change in self._trigger.config["kinds"]
        refusal = self._refusal(event, stat) if is_wanted else ""
        is_match = is_wanted and not refusal and matches(self._trigger.where, asdict(event))
        return _Seen(event, stat, is_wanted, is_match, refusal)

    def _refusal(self, event: FileEvent, stat: Stat) -> str:
        """Why no agent can be told of it."""
        if event.change != "deleted" and self._is_too_large(stat):
            return f"it has {stat.size:,} bytes, and max_size is {self._max_size:,}"
        return "its name is not text" if _shown(event.path) != event.path else ""

    def _refuse(self, path: str, why: str) -> None:
        self._tally.count(self._trigger.name, refused=1)
        self._tally.note(self._trigger.name, Fate.refused, at=now_us(), detail=f"{_shown(path)}: {why}")
        warn("trigger.refused_file", trigger=self._trigger.name, path=_shown(path), error=why)

    def _cannot_read(self, path: str, stat: Stat, error: OSError) -> None:
        self._unsettled[path] = (stat, monotonic_us() + _UNREADABLE_US)
        self._tally.note(self._trigger.name, "failed", at=now_us(), detail=f"{_shown(path)}: {error}")
        warn("trigger.unreadable_file", trigger=self._trigger.name, path=_shown(path), error=str(error))

    # starting

    async def _start_due(self) -> None:
        while due := await self._cursors.due(limit=_BATCH):
            await self._start_runs(due)

    async def _start_runs(self, cursors: Sequence[Definition]) -> None:
        if not cursors:
            return
        bodies = [body_of(cursor) for cursor in cursors]
        events = [FileEvent(body["path"], body["change"], body["digest"], body["size"]) for body in bodies]
        causes = [Occasion(self._trigger, body["run"], event) for body, event in zip(bodies, events, strict=True)]
        attempts = await start_all(self._start, causes)
        changes = [after(*each) for each in zip(cursors, bodies, attempts, strict=True)]
        aside = [
            self._set_aside(cause, event, attempt.why)
            for cause, event, attempt in zip(causes, events, attempts, strict=True)
            if attempt.fate is Fate.refused
        ]
        written = await self._store.define([*changes, *aside])
        gone: dict[str, Cursor] = {}
        for event, cursor, attempt, is_ours in zip(events, changes, attempts, written, strict=False):
            if is_ours or not attempt.is_over:
                self._told(event, str(body_of(cursor)["run"]), attempt)
            if is_ours and attempt.is_over and event.change == "deleted":
                gone[event.path] = cursor_of(cursor)[1]
        await self._cursors.forget(gone)
        if aside:
            await forget_refused(self._store, self._trigger.name, before=now_us() - REFUSED_KEPT_US)
        await self._cursors.refresh([event.path for event in events])

    def _set_aside(self, cause: Occasion, event: FileEvent, why: str) -> Definition:
        data = json.dumps(asdict(event)).encode()
        return set_aside(self._trigger.name, cause.run_id, what=_told(event), why=why, data=data, now=now_us())

    def _told(self, event: FileEvent, run: str, attempt: StartAttempt) -> None:
        name, detail = self._trigger.name, f"{_told(event)}: {attempt.why}" if attempt.why else _told(event)
        self._tally.count(name, started=attempt.fate is Fate.started, refused=attempt.fate is Fate.refused)
        self._tally.note(name, attempt.fate, at=now_us(), run=run, detail=detail)

    # news

    async def _tend_watch(self) -> None:
        """Have the folder watched while it is there; anew if it is another one by now."""
        try:
            status = await asyncio.to_thread(os.stat, self._pattern.base)
        except OSError:
            return
        folder = (status.st_dev, status.st_ino)
        if folder == self._watched:
            return
        await self._stop_watch()
        self._watched = folder
        self._watch = asyncio.create_task(self._watch_folder())

    async def _watch_folder(self) -> None:
        try:
            from holdfast.automation.triggers.watching import watch
        except ImportError:
            return  # scans alone find everything, some seconds later
        try:
            await watch(self._pattern.base, is_deep=self._pattern.is_deep, on_news=self._news.set)
        except (OSError, RuntimeError) as error:
            warn("trigger.not_watched", trigger=self._trigger.name, folder=self._pattern.base, error=str(error))

    async def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})


def _claim_scan(body: Body) -> Body | None:
    scanned = body["scanned"] or {"claimed": 0}
    if "done" in scanned or now_us() - int(scanned["claimed"]) < _SCAN_CLAIM_US:
        return None
    return body | {"scanned": {"claimed": now_us()}}


async def _in_thread(work: Callable[[Callable[[], bool]], T]) -> T:
    """Have something done in a thread, that is told when nobody waits for it any more."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(work, stop.is_set)
    finally:
        stop.set()


def _told(event: FileEvent) -> str:
    return f"{event.change} {_shown(event.path)}"


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()
