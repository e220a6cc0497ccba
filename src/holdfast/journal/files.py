"""Files of a run: stored in chunks under their sha256, read back and compared with it.

Chunks come first, the record that names them last: half a file is never listed, and a repeated attempt stores only what
is missing. A large file is many small commits with pauses in between, so that others who write are not held up, and
never more of it is in memory than a few chunks.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from functools import partial
from hashlib import sha256
from typing import Any, BinaryIO

from holdfast.base.clock import monotonic_us
from holdfast.codec import blob_digest
from holdfast.errors import CorruptJournal, DamagedFile, StoreCorrupt, UsageError
from holdfast.model import Fence, NoteKind, RunId
from holdfast.model.files import FileRef, FileState
from holdfast.store.files import FileStore

CHUNK = 256 * 1024  #: bytes; all chunks of a file but the last have as many
_GROUP = 4 * CHUNK  # looked for, or read, at once
_MOST = 500  # small ones in a group
_DIGEST = 32

Chunks = Iterator[tuple[str, bytes]]
Patiently = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


def opened(path: str) -> BinaryIO:
    """A file to be stored. A pipe or a device, which may never end or never begin, is refused."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path!r} is a pipe or a device; what is stored is a file.")
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def chunks_of(stream: BinaryIO, done: Callable[[FileRef], None]) -> Chunks:
    """The chunks of a file with their digests, read as they are asked for; `done` is told at the end what it is."""
    whole, digests, size = sha256(), bytearray(), 0
    while data := stream.read(CHUNK):
        whole.update(data)
        digest = sha256(data)
        digests += digest.digest()
        size += len(data)
        yield digest.hexdigest(), data
    listed = ""
    if len(digests) > _DIGEST:
        listed = sha256(digests).hexdigest()
        yield listed, bytes(digests)
    done(FileRef(whole.hexdigest(), size, listed))


class Filing:
    """Stores the chunks of files of one run.

    `fence` says for whom it is done; `patiently` asks the store again while that is away.
    """

    def __init__(
        self, store: FileStore, run_id: RunId, *, fence: Callable[[], Fence | None], patiently: Patiently
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._fence = fence
        self._patiently = patiently
        self._rest_us = 0

    async def put(self, chunks: Chunks, *, is_small: bool = False) -> None:
        """Store those that are not there. They are read by another thread, a few at a time, unless they are small."""
        while group := _group(chunks) if is_small else await asyncio.to_thread(_group, chunks):
            known = await self._patiently(partial(self._store.known_chunks, self._run_id, tuple(group)))
            for few in _commits({digest: data for digest, data in group.items() if digest not in known}):
                await asyncio.sleep(self._rest_us / 1e6)
                began = monotonic_us()
                await self._patiently(partial(self._store.put_chunks, self._run_id, few, fence=self._fence()))
                self._rest_us = monotonic_us() - began  # as long as the commit took, others have the store


def _group(chunks: Chunks) -> dict[str, bytes]:
    group: dict[str, bytes] = {}
    size = 0
    for digest, data in chunks:
        group[digest] = data
        size += len(data)
        if size >= _GROUP or len(group) >= _MOST:
            break
    return group


def _commits(chunks: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """What goes into one commit: a chunk, or as many small ones as are as large."""
    few: dict[str, bytes] = {}
    size = 0
    for digest, data in chunks.items():
        if few and size + len(data) > CHUNK:
            yield few
            few, size = {}, 0
        few[digest] = data
        size += len(data)
    if few:
        yield few


# versions


def name_digest(name: str) -> str:
    """By what the notes of one artifact are found."""
    return blob_digest(name.encode())


def identity_of(said: Mapping[str, Any]) -> str:
    """What makes two of a name the same version: the bytes, or what is referred to."""
    return str(said.get("sha256") or f"ref:{said.get('ref')}")


async def versions_of(store: FileStore, run_id: RunId, name: str) -> dict[str, int]:
    """The versions of an artifact that are recorded, by identity."""
    recorded: dict[str, int] = {}
    for note in await store.notes(run_id, NoteKind.artifact, digest=name_digest(name)):
        said = json.loads(note.payload or "{}")
        if said.get("name") == name:
            recorded.setdefault(identity_of(said), int(said["version"]))
    return recorded


# reading


async def read_chunks(store: FileStore, run_id: RunId, file: FileRef) -> AsyncIterator[bytes]:
    """The bytes of a file, a chunk at a time, each compared with its digest; DamagedFile if one is not what it was."""
    for some in _groups(await _digests(store, run_id, file)):
        found = await sound_chunks(store, run_id, some)
        for digest in some:
            yield found[digest]


async def read_all(store: FileStore, run_id: RunId, file: FileRef) -> bytes:
    """A small file."""
    return b"".join([data async for data in read_chunks(store, run_id, file)])


async def state_of(
    store: FileStore, run_id: RunId, file: FileRef, *, known: MutableMapping[FileRef, FileState]
) -> FileState:
    """Whether all of a file is there, and what it was; `known` is what was found out before."""
    if file not in known:
        try:
            async for _ in read_chunks(store, run_id, file):
                pass
            known[file] = FileState.stored
        except DamagedFile as error:
            known[file] = FileState.missing if error.is_missing else FileState.damaged
    return known[file]


async def _digests(store: FileStore, run_id: RunId, file: FileRef) -> list[str]:
    if not file.listed:
        return [file.sha256] if file.size else []
    listed = (await sound_chunks(store, run_id, [file.listed]))[file.listed]
    return [listed[start : start + _DIGEST].hex() for start in range(0, len(listed), _DIGEST)]


def _groups(digests: list[str]) -> Iterator[list[str]]:
    at_once = _GROUP // CHUNK
    for start in range(0, len(digests), at_once):
        yield digests[start : start + at_once]


async def sound_chunks(store: FileStore, run_id: RunId, digests: list[str]) -> dict[str, bytes]:
    """Chunks, each compared with its digest; DamagedFile if one is not what it was, or not there."""
    try:
        found = await store.chunks(run_id, digests)
    except (StoreCorrupt, CorruptJournal) as error:
        raise DamagedFile(f"A file of run {run_id} cannot be read: {error}") from error
    wrong = await asyncio.to_thread(_wrong, found)
    for digest in digests:
        if digest not in found:
            raise DamagedFile(f"Chunk {digest} of a file of run {run_id} is missing in the store.", is_missing=True)
        if digest in wrong:
            raise DamagedFile(f"Chunk {digest} of a file of run {run_id} is not what was stored.")
    return found


def _wrong(found: Mapping[str, bytes]) -> set[str]:
    return {digest for digest, data in found.items() if sha256(data).hexdigest() != digest}
