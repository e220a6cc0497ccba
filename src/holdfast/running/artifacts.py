"""What a caller, or the code of a run, holds of something that a run has put out."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from holdfast.base import system
from holdfast.base.ids import new_uuid
from holdfast.errors import UsageError
from holdfast.history.artifacts import WORKSPACE, Output
from holdfast.journal.files import read_chunks
from holdfast.journal.trees import load_tree
from holdfast.model import RunId
from holdfast.model.files import FileRef, FileState
from holdfast.running.directories import save_tree
from holdfast.running.scopes import scope_or_none
from holdfast.store.files import FileStore


class _Held:
    """What an artifact is read from; not a part of what it is, and not stored with it."""

    __slots__ = ("_data", "_files")

    _files: FileStore
    _data: bytes | None  #: its bytes, if they are in no file


@dataclass(frozen=True)
class Artifact(_Held):
    """Something that a run has put out, in one version: a file, or a reference to what is elsewhere.

    It can be the result of a step (annotate it: `-> hf.Artifact`) and an argument. Inside a run, and where it comes
    from `Run.artifacts()`, its bytes can be read; each is compared with the sha256 that was recorded.

    Example: `report = await hf.artifact("report.md", text)`
    """

    run_id: str
    name: str
    version: int  #: from 1 on; the same bytes under the same name are the same version
    kind: str
    media_type: str = ""
    sha256: str = ""
    size: int | None = None  #: bytes
    ref: str = ""  #: what it refers to, if it is no file
    key: str = ""  #: the call that put it out
    listed: str = ""  #: the sha256 of the list of its chunks, if it has several
    at: datetime | None = None  #: when it was put out
    state: FileState = FileState.stored
    detail: str = ""

    @classmethod
    def _of(cls, run_id: RunId, output: Output, files: FileStore) -> Artifact:
        file, (digest, size) = output.file, output.identity
        made = cls(
            run_id=run_id,
            name=output.name,
            version=output.version,
            kind=output.kind,
            media_type=output.media_type,
            sha256=digest,
            size=size,
            ref=output.ref,
            key=output.key,
            listed=file.listed if file is not None else "",
            at=output.at,
            state=output.state,
            detail=output.detail,
        )
        object.__setattr__(made, "_files", files)
        object.__setattr__(made, "_data", output.data)
        return made

    def _source(self) -> tuple[FileStore, FileRef]:
        if not self.sha256:
            what = f"refers to {self.ref}" if self.ref else f"is a {self.kind}"
            raise UsageError(f"{self.name} of run {self.run_id} {what}: it has no bytes in the store to read.")
        file = FileRef(self.sha256, self.size or 0, self.listed)
        files = getattr(self, "_files", None)
        if files is None:
            scope = scope_or_none()
            if scope is None:
                raise UsageError(
                    f"{self.name} is read inside a run only; outside, ask `app.get({self.run_id!r}).artifacts()`."
                )
            files = scope.run.host.store
        return files, file

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes, a few at a time, so that a large file needs little memory. DamagedFile if one is not what it was.

        Example: `async for data in artifact.chunks(): digest.update(data)`
        """
        if (held := getattr(self, "_data", None)) is not None:
            yield held
            return
        files, file = self._source()
        async for data in read_chunks(files, RunId(self.run_id), file):
            yield data

    async def read(self) -> bytes:
        """All of its bytes.

        Example: `text = (await artifact.read()).decode()`
        """
        return b"".join([data async for data in self.chunks()])

    async def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file, which is there as a whole or not at all; of a workspace, to a new directory. Where it is.

        A directory that exists gets it under the last part of its name. What is there already is replaced; a link is
        replaced, not followed.

        Example: `await artifact.save("report.md")`
        """
        target = Path(path)
        if getattr(self, "_data", None) is None:
            self._source()  # before a file is begun
        if self.kind == WORKSPACE:
            files, file = self._source()
            _check_empty(target, self.name)
            run_id = RunId(self.run_id)
            await save_tree(files, run_id, await load_tree(files, run_id, file), path=str(target))
            return target
        target, stream = await asyncio.to_thread(_begin, target, self.name)
        try:
            with stream:
                async for data in self.chunks():
                    await asyncio.to_thread(stream.write, data)
                await asyncio.to_thread(_end, stream, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(stream.name)
            raise
        return target


def _begin(target: Path, name: str) -> tuple[Path, BinaryIO]:
    """Where it goes, and a new file next to that, under another name."""
    if target.is_dir() and not target.is_symlink():
        target = target / name.rpartition("/")[2]
    try:
        return target, open(target.with_name(f".{target.name[:80]}.{new_uuid().hex}"), "xb")
    except OSError as error:
        error.filename = str(target)  # the name that the caller knows
        raise


def _end(stream: BinaryIO, target: Path) -> None:
    stream.flush()
    system.sync(stream.fileno())
    os.replace(stream.name, target)


def _check_empty(path: Path, name: str) -> None:
    is_there = path.is_symlink() or path.exists()
    if is_there and (not path.is_dir() or path.is_symlink() or any(path.iterdir())):
        raise UsageError(f"{path} exists; the workspace {name} is saved to a new or empty directory.")
