"""What a directory holds, as objects of a store: each directory lists its own, so that a change costs little.

A list is JSON, in order, under its sha256. So two trees with the same content are the same object, and a version of a
workspace is named by one digest.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from holdfast.base.data import brisk, data
from holdfast.errors import DamagedFile
from holdfast.journal.files import Chunks, chunks_of, read_all, state_of
from holdfast.model import Kind, NoteKind, Record, RunId
from holdfast.model.files import FileRef, FileState
from holdfast.store.files import FileStore

#: Where the row of a run says which version its workspaces are.
WORKSPACES = "workspaces"


def workspaces_in(records: Iterable[Record]) -> dict[str, Any]:
    """What the row says of the workspaces of a run that has these records."""
    found: dict[str, Any] = {}
    for record in records:
        if record.kind == Kind.noted and record.name == NoteKind.workspace:
            said = json.loads(record.payload or "{}")
            found[said["name"]] = {"version": said["version"], **FileRef.of(said).plain()}
    return found


@brisk
class File:
    mode: int
    content: FileRef


@data
class Link:
    target: str


@data
class Directory:
    mode: int
    entries: Mapping[str, File | Link | Directory]
    listed: FileRef | None = None  #: the list of it in the store; None: it has none yet

    def walk(self, prefix: str = "") -> Iterator[tuple[str, File | Link | Directory]]:
        """Everything in it, by path, each directory before what it holds."""
        for name, entry in self.entries.items():
            yield f"{prefix}{name}", entry
            if isinstance(entry, Directory):
                yield from entry.walk(f"{prefix}{name}/")


EMPTY = Directory(0o755, {})


def chunks_of_list(entries: Mapping[str, File | Link | Directory], done: Callable[[FileRef], None]) -> Chunks:
    """The list of a directory whose own directories have theirs; `done` is told what it is."""
    listed: dict[str, list[Any]] = {}
    for name, entry in sorted(entries.items()):
        match entry:
            case File():
                listed[name] = ["f", entry.mode, *_plain(entry.content)]
            case Link():
                listed[name] = ["l", entry.target]
            case Directory():
                assert entry.listed is not None
                listed[name] = ["d", entry.mode, *_plain(entry.listed)]
    text = json.dumps(listed, separators=(",", ":"))
    yield from chunks_of(io.BytesIO(text.encode()), done)


async def load_tree(store: FileStore, run_id: RunId, root: FileRef | None, *, mode: int = 0o755) -> Directory:
    """The tree that a digest names; DamagedFile if a part of it is not what it was."""
    if root is None:
        return EMPTY
    entries: dict[str, File | Link | Directory] = {}
    try:
        listed = json.loads(await read_all(store, run_id, root))
        for name, (sort, *said) in listed.items():
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise ValueError(f"a name that leads elsewhere: {name!r}")
            match sort:
                case "f":
                    entries[name] = File(said[0], FileRef(*said[1:]))
                case "l":
                    entries[name] = Link(said[0])
                case "d":
                    entries[name] = await load_tree(store, run_id, FileRef(*said[1:]), mode=said[0])
                case _:
                    raise ValueError(f"an entry of a sort that is not known: {sort!r}")
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise DamagedFile(f"A directory of a workspace of run {run_id} cannot be read: {error}") from error
    return Directory(mode, entries, root)


async def tree_state(
    store: FileStore, run_id: RunId, root: FileRef, *, known: MutableMapping[FileRef, FileState]
) -> FileState:
    """Whether all of a tree is there, and what it was; `known` is what was found out before."""
    if root not in known:
        try:
            tree = await load_tree(store, run_id, root)
        except DamagedFile as error:
            known[root] = FileState.missing if error.is_missing else FileState.damaged
            return known[root]
        files = [entry.content for _, entry in tree.walk() if isinstance(entry, File)]
        states = {await state_of(store, run_id, file, known=known) for file in files}
        worst = (FileState.damaged, FileState.missing)
        known[root] = next((each for each in worst if each in states), FileState.stored)
    return known[root]


def _plain(file: FileRef) -> list[Any]:
    return [file.sha256, file.size, *([file.listed] if file.listed else [])]
