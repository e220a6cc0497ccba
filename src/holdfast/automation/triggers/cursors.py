"""What is known of the files of a trigger: their cursors, and how they are stored.

A cursor is a definition of kind `file:<trigger>`: {"path", "inode", "mtime_ns", "size", "digest", "change", "run",
"attempts"}. It is due while the run of its file's last change is not known to be started.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.automation.triggers.definitions import Body, body_of
from holdfast.automation.triggers.scanning import Stat
from holdfast.automation.triggers.sources import FileEvent
from holdfast.automation.triggers.starting import StartAttempt, delay_s
from holdfast.base.clock import now_us
from holdfast.codec import blob_digest
from holdfast.model import Definition
from holdfast.store.contract import Store

#: How long a process has for starting the runs of the cursors it moved, before others do.
_CLAIM_US: Final = 3_000_000
_BATCH: Final = 200
_ALL: Final = 100_000_000


class Cursor(NamedTuple):
    """What is known of a file, as stored."""

    revision: int
    stat: Stat
    digest: str
    run: str | None  #: that was started for the last change
    is_due: bool  #: it is not known to be started


class Cursors:
    """Those of one trigger: how they are stored, and what this process knows of them."""

    def __init__(self, store: Store, trigger: str) -> None:
        self._store = store
        self._kind = _kind(trigger)
        self.known: dict[str, Cursor] = {}  #: by path

    def stat(self, path: str) -> Stat | None:
        """How a file is known to be."""
        cursor = self.known.get(path)
        return None if cursor is None else cursor.stat

    def note(self, stored: Definition) -> None:
        """This is stored by now."""
        path, cursor = cursor_of(stored)
        self.known[path] = cursor

    async def stored(self, paths: Iterable[str] | None = None) -> dict[str, Cursor]:
        names = None if paths is None else [_name(path) for path in paths]
        found = await self._store.definitions(self._kind, names=names, limit=_ALL)
        return await asyncio.to_thread(lambda: dict(map(cursor_of, found)))

    async def due(self, *, limit: int) -> Sequence[Definition]:
        """Those whose runs another process, or an earlier attempt, did not get to start."""
        return await self._store.definitions(self._kind, due=now_us(), limit=limit)

    async def refresh(self, paths: Sequence[str]) -> None:
        """What others may have done meanwhile."""
        stored = await self.stored(paths)
        for path in paths:
            if path in stored:
                self.known[path] = stored[path]
            else:
                self.known.pop(path, None)

    async def forget(self, cursors: Mapping[str, Cursor]) -> None:
        """Forget what is known of files that are gone, unless another worker has found one of them again."""
        paths = list(cursors)
        for first in range(0, len(paths), _BATCH):
            some = [_name(path) for path in paths[first : first + _BATCH]]
            stored = await self._store.definitions(self._kind, names=some, limit=_BATCH)
            same = [each for each in stored if (found := cursor_of(each)) and cursors[found[0]] == found[1]]
            await self._store.forget(self._kind, [each.name for each in same], bodies=[each.body for each in same])
        for path in paths:
            self.known.pop(path, None)

    # made

    def as_known(self, path: str, stat: Stat, *, content: str, revision: int) -> Definition:
        """A cursor that nothing follows from."""
        return self.moved(FileEvent(path, "created", content, stat.size), stat, revision, run=None)

    def moved(self, event: FileEvent, stat: Stat, revision: int, *, run: str | None) -> Definition:
        body = {
            "path": event.path,
            "inode": stat.inode,
            "mtime_ns": stat.mtime_ns,
            "size": stat.size,
            "digest": event.digest,
            "change": event.change,
            "run": run,
            "attempts": 0,
        }
        due_at = None if run is None else now_us() + _CLAIM_US
        return Definition(self._kind, _name(event.path), json.dumps(body), revision, due_at)


def after(cursor: Definition, body: Body, attempt: StartAttempt) -> Definition:
    """The cursor after its run was started, or could not be."""
    due_at = None
    if not attempt.is_over:
        body = body | {"attempts": body["attempts"] + 1}
        due_at = now_us() + int(delay_s(body["attempts"]) * 1e6)
    return Definition(cursor.kind, cursor.name, json.dumps(body), cursor.revision + 1, due_at)


def cursor_of(definition: Definition) -> tuple[str, Cursor]:
    """A path, and what is known of it."""
    body = body_of(definition)
    stat = Stat(body["inode"], body["mtime_ns"], body["size"])
    is_due = definition.due_at is not None
    return str(body["path"]), Cursor(definition.revision, stat, body["digest"], body["run"], is_due)


async def forget_cursors(store: Store, trigger: str) -> None:
    """What a removed trigger leaves."""
    while names := [each.name for each in await store.definitions(_kind(trigger), limit=1_000)]:
        await store.forget(_kind(trigger), names)


def _kind(trigger: str) -> str:
    return f"file:{trigger}"


def _name(path: str) -> str:
    """What a cursor is stored under: a path may be longer than a name, and not be text."""
    return blob_digest(os.fsencode(path))
