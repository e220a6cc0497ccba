"""The workspaces of one execution: directories of this machine that hold what the journal says.

A body that is given one has it for itself, as the journal's version is, whatever the directory held before. What it
leaves is stored before its outcome, and named in a note of the same append. So an attempt that fails or is cut off has
left nothing, on this machine or another.

Each execution has directories of its own, under a lock that ends with the process: who lost the run may still write,
and writes elsewhere. One that was let go in good order is used again; one that a crash left is not, since something
that the dead process began may still write to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.base import faults
from holdfast.base.ids import new_uuid
from holdfast.errors import Fenced, HoldfastError, UsageError
from holdfast.journal.files import Filing, Patiently, name_digest
from holdfast.journal.journal import Journal
from holdfast.journal.replay import Replay
from holdfast.journal.ticks import Ticks
from holdfast.journal.trees import EMPTY, WORKSPACES, Directory, load_tree
from holdfast.model import Fence, NoteKind, RunId
from holdfast.model.files import FileRef
from holdfast.running.activity import Activity
from holdfast.running.bodies import LateThread
from holdfast.running.directories import Ignored, Known, WorkingDirectory
from holdfast.running.outputs import OutputNote
from holdfast.running.scopes import StepInfo
from holdfast.store.files import FileStore

T = TypeVar("T")

_IDLE = "idle"  # a file that says: let go in good order


class Owner(Protocol):
    """The execution that they are of."""

    id: RunId
    journal: Journal
    activity: Activity
    replay: Replay
    ticks: Ticks

    @property
    def fence(self) -> Fence: ...

    @property
    def patiently(self) -> Patiently: ...

    async def fenced(self) -> Any: ...


class Workspace:
    """A directory that goes with a run: hand it to steps and effects, which find in it what the last one left.

    `path` is where it lies on this machine, `version` which one it is: 0 is the empty directory. In an agent both are
    of the moment; in a body the path is where to work, and the version what that starts from.

    Example:
        repo = await hf.workspace("repo")
        await clone(repo, url)
    """

    __slots__ = ("_path", "_room", "_version", "name")

    def __init__(self, room: Room, path: str | None = None, version: int | None = None) -> None:
        self.name = room.name
        self._room = room
        self._path = path
        self._version = version

    @property
    def path(self) -> Path:
        """The directory, on this machine. In an agent it may hold anything: what counts is what bodies find and leave.

        Example: `subprocess.run(["make"], cwd=repo.path, check=True)`
        """
        return Path(self._path or self._room.place().path)

    @property
    def version(self) -> int:
        """Which one it is; each body that changes something makes the next one."""
        return self._room.known() if self._version is None else self._version

    def __repr__(self) -> str:
        return f"<workspace {self.name} version {self.version}>"


class Room:
    """One workspace: its version, its directory here, and who has it."""

    def __init__(
        self,
        name: str,
        ignored: Ignored,
        home: str,
        *,
        version: int,
        tree: FileRef | None,
        told: Callable[[str], int | None],
    ) -> None:
        self.name = name
        self.ignored = ignored
        self.version = version  #: that the next body starts from
        self.tree = tree
        self.turn = asyncio.Lock()  #: one body at a time
        self._loaded: tuple[FileRef | None, Directory] = (None, EMPTY)
        self._home = home
        self._place: WorkingDirectory | None = None
        self._lock = -1
        self._told = told
        self._left = 0  # by this execution

    def known(self) -> int:
        """The version that the code knows of: while it is replayed, what its calls had left by then."""
        told = self._told(self.name)
        return self.version if told is None else max(told, self._left)

    def keep(self, version: int, tree: FileRef, found: Directory) -> None:
        """A body has left this, and that is recorded."""
        self.version = self._left = version
        self.tree, self._loaded = tree, (tree, found)

    def place(self) -> WorkingDirectory:
        """The directory of this execution."""
        if self._place is None:
            folder, self._lock = _taken(self._home)
            self._place = WorkingDirectory(folder, self.ignored)
        return self._place

    async def loaded(self, files: FileStore, run_id: RunId) -> Directory:
        """What it holds in its version."""
        tree = self.tree
        if self._loaded[0] != tree:
            self._loaded = tree, await load_tree(files, run_id, tree)
        return self._loaded[1]

    def leave(self) -> Callable[[], None]:
        """Somebody may still write to the directory: another one is taken next; to be called when nobody does."""
        place, lock = self.place(), self._lock
        self._place, self._lock = None, -1
        return lambda: _removed(place.folder, lock)

    def let_go(self, *, is_over: bool) -> None:
        """The execution is over; so is the run, or it may go on here."""
        place, lock = self._place, self._lock
        if place is None:
            return
        self._place, self._lock = None, -1
        if is_over or self.turn.locked():
            self._remove(place.folder, lock)
        else:
            with contextlib.suppress(OSError):
                Path(place.folder, _IDLE).touch()
            os.close(lock)

    def _remove(self, folder: str, lock: int) -> None:
        """By another thread: it may hold many files."""
        asyncio.get_running_loop().run_in_executor(None, _removed, folder, lock)


class Workspaces:
    """Of one execution."""

    def __init__(self, run: Owner, files: FileStore, *, home: str, nonce: str) -> None:
        self.run = run
        self.files = files
        self._home = home
        self._nonce = nonce
        self._rooms: dict[str, Room] = {}

    def open(self, name: str, ignore: tuple[str, ...]) -> Workspace:
        """The workspace of this name."""
        room = self._rooms.get(name)
        if room is None:
            said = self.run.journal.summary.get(WORKSPACES, {}).get(name)
            version, tree = (0, None) if said is None else (int(said["version"]), FileRef.of(said))
            place = sha256(f"{self._nonce}/{name}".encode()).hexdigest()[:32]
            home = os.path.join(self._home, place)
            room = Room(name, Ignored(ignore), home, version=version, tree=tree, told=self._told)
            self._rooms[name] = room
        elif room.ignored.patterns != ignore:
            raise UsageError(
                f"Run {self.run.id}: hf.workspace({name!r}) was called with ignore={ignore!r}, and before with "
                f"{room.ignored.patterns!r}. Give it the same each time."
            )
        return Workspace(room)

    def _told(self, name: str) -> int | None:
        """The version that a replay has come to; None: all is told."""
        replay = self.run.replay
        if self.run.ticks.is_replayed and not replay.is_closed:
            return None

        def is_told(key: str) -> bool:
            entry = replay.entries.get(key)
            return entry is not None and entry.delivered

        return replay.workspaces.version(name, is_before_loop=replay.is_closed, is_told=is_told)

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given | None:
        """What a body gets that is called with these; None: no workspace is among them."""
        rooms = {each._room.name: each._room for each in (*args, *kwargs.values()) if type(each) is Workspace}
        return Given(self, [rooms[name] for name in sorted(rooms)], args=args, kwargs=kwargs) if rooms else None

    def let_go(self, *, is_over: bool) -> None:
        """The execution is over."""
        for room in self._rooms.values():
            room.let_go(is_over=is_over)


class Given:
    """The workspaces of one attempt."""

    def __init__(
        self, workspaces: Workspaces, rooms: list[Room], *, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._all = workspaces
        self._rooms = rooms
        self.args = args
        self.kwargs = kwargs

    async def run(self, info: StepInfo, body: Callable[[tuple[Any, ...], dict[str, Any]], Awaitable[T]]) -> T:
        """Execute a body: with the directories as the journal says, and store what it leaves."""
        await self.enter(info)
        try:
            value = await body(self.args, self.kwargs)
            await self.save(info)
            return value
        except BaseException as error:
            await self.take_back(error)
            raise

    async def enter(self, info: StepInfo) -> None:
        """Have them to oneself, until what the attempt put out is recorded or dropped, and as the journal says."""
        outputs = info.attempt_outputs()
        with self._all.run.activity.busy():
            for room in self._rooms:
                await room.turn.acquire()
                outputs.then(lambda kept, room=room: room.turn.release())  # type: ignore[misc]
            await self._hold()
        found = {room.name: Workspace(room, room.place().path, room.version) for room in self._rooms}
        self.args = tuple(found[each.name] if type(each) is Workspace else each for each in self.args)
        self.kwargs = {
            name: found[each.name] if type(each) is Workspace else each for name, each in self.kwargs.items()
        }
        faults.point("workspace.before_body")

    async def _hold(self) -> None:
        run, files = self._all.run, self._all.files
        for room in self._rooms:
            place = await asyncio.to_thread(room.place)
            await run.patiently(partial(_held, files, run.id, place=place, room=room))

    async def save(self, info: StepInfo) -> None:
        """Store what the body has left; it is recorded with the outcome of the attempt."""
        run = self._all.run
        with run.activity.busy():
            for room in self._rooms:
                try:
                    await self._save(info, room)
                except Fenced:
                    await run.fenced()
                    raise
        faults.point("workspace.after_data")

    async def _save(self, info: StepInfo, room: Room) -> None:
        run, place = self._all.run, room.place()
        found: list[tuple[FileRef, int, int]] = []
        fresh: dict[str, Known] = {}
        filing = Filing(self._all.files, run.id, fence=lambda: run.fence, patiently=run.patiently)
        await filing.put(place.chunks(lambda *what: found.append(what), fresh))
        place.learn(fresh)
        ((tree, files, size),) = found
        if tree == room.tree or (room.tree is None and not files and tree.size <= len("{}")):
            return
        found_here = place.found
        outputs, version, summary = info.attempt_outputs(), room.version + 1, run.journal.summary
        said = {"name": room.name, "version": version, **tree.plain(), "files": files, "bytes": size}

        def end(kept: bool) -> None:
            if kept:
                room.keep(version, tree, found_here)
                known = summary.get(WORKSPACES, {})
                summary[WORKSPACES] = {**known, room.name: {"version": version, **tree.plain()}}

        outputs.add(OutputNote(NoteKind.workspace, name_digest(room.name), json.dumps(said)))
        outputs.then(end)

    async def end(self, info: StepInfo, error: BaseException | None) -> Exception | None:
        """An effect has returned, or raised; why what it has left cannot be stored, if it cannot."""
        if error is not None:
            await self.take_back(error)
            return None
        try:
            await self.save(info)
        except (HoldfastError, OSError) as problem:
            await self.take_back(problem)
            return problem
        return None

    async def take_back(self, error: BaseException) -> None:
        """The attempt has failed with this: have the directories as they were before."""
        if isinstance(error, LateThread):
            for room in self._rooms:
                error.future.add_done_callback(partial(_call, room.leave()))
            return
        with contextlib.suppress(Exception):  # whoever is given them next makes sure of it anyway
            await self._hold()


def _call(gone: Callable[[], None], _: object) -> None:
    gone()


async def _held(files: FileStore, run_id: RunId, *, place: WorkingDirectory, room: Room) -> None:
    await place.hold(files, run_id, await room.loaded(files, run_id))


# directories on this machine


def _taken(home: str) -> tuple[str, int]:
    """A folder that nobody else has, and its lock: one that was let go in good order, or a new one."""
    for name in os.listdir(home) if os.path.isdir(home) else ():
        folder = os.path.join(home, name)
        lock = _locked(folder)
        if lock < 0:
            continue
        try:
            os.unlink(os.path.join(folder, _IDLE))
            return folder, lock
        except FileNotFoundError:
            _removed(folder, lock)
    new = os.path.join(home, f".{new_uuid().hex}")
    os.makedirs(new, mode=0o700)
    lock = os.open(os.path.join(new, "lock"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = os.path.join(home, new_uuid().hex)
    os.rename(new, folder)  # only what is locked has a name that others look at
    return folder, lock


def _locked(folder: str) -> int:
    """Its lock, if nobody has it; else -1."""
    if os.path.basename(folder).startswith("."):
        return -1
    try:
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return -1
    return lock


def _removed(folder: str, lock: int) -> None:
    """Remove a folder; who still writes to it writes to nothing."""
    home = os.path.dirname(folder)
    hidden = os.path.join(home, f".{os.path.basename(folder)}")
    with contextlib.suppress(OSError):
        os.rename(folder, hidden)
    os.close(lock)
    shutil.rmtree(hidden, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(home)
