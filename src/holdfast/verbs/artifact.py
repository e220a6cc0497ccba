"""Artifacts: what a run puts out. In an agent a call of its own, in a body a part of the attempt.

In an agent it is a step whose body puts the file out; so both are recorded in one way: a note, in the same append as
the outcome of the body. What is recorded refers to chunks that are stored already.
"""

from __future__ import annotations

import asyncio
import io
import json
import mimetypes
import os
import re
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, BinaryIO

from holdfast.base import faults
from holdfast.base.characters import unseen_in
from holdfast.errors import Fenced, NotInRun, StoreError, UsageError
from holdfast.history.artifacts import OWN_KINDS
from holdfast.journal.files import CHUNK, Filing, chunks_of, identity_of, name_digest, opened
from holdfast.model import NoteKind
from holdfast.model.files import FileRef
from holdfast.running.artifacts import Artifact
from holdfast.running.bodies import Body
from holdfast.running.options import Options, Retry
from holdfast.running.outputs import OutputNote
from holdfast.running.scopes import Scope, StepInfo, check_branch, scope_or_none
from holdfast.verbs.step import StepDefinition
from holdfast.verbs.step_calls import StepCall

if TYPE_CHECKING:
    from holdfast.running.context import RunContext

_NAME = "hf.artifact"
_LONGEST = 255
_LONGEST_REF = 4096
#: Who signs in there, in front of the host of a url.
_SIGNED_IN = re.compile(r"^([A-Za-z][\w+.-]*://)[^/?#]*@")
_TYPES = mimetypes.MimeTypes(filenames=())  # as the code knows them, whatever the machine is told


class Publication(Awaitable[Artifact]):
    """An artifact on its way: await it; in a `def` body, call `result()`."""

    __slots__ = ("_scope", "_what")

    def __init__(self, scope: Scope, what: _What) -> None:
        self._scope = scope
        self._what = what

    def __await__(self) -> Generator[Any, Any, Artifact]:
        return self._publish().__await__()

    async def _publish(self) -> Artifact:
        scope, what = self._scope, self._what
        if scope.body is not None:
            return await _put_out(scope.run, scope.body, what)
        check_branch(scope, "hf.artifact()")

        async def put_out() -> Artifact:
            inside = scope_or_none()
            assert inside is not None
            assert inside.body is not None
            return await _put_out(inside.run, inside.body, what)

        options = Options(_NAME, Retry(100, most=5.0), None, (StoreError,), (UsageError,))
        definition = StepDefinition(Body(put_out), options)
        found: Artifact = await StepCall(definition, scope, (), {}, what.shown(), name_digest(what.name)).make()
        return found

    def result(self) -> Artifact:
        """In the body of a `def` step or effect: put it out, and wait for that.

        Example: `hf.artifact("plot.png", path=picture).result()`
        """
        scope = self._scope
        loop = scope.run.life.loop
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here or scope.body is None:
            raise UsageError("hf.artifact(…).result() is for `def` bodies; here, write `await hf.artifact(…)`.")
        return asyncio.run_coroutine_threadsafe(self._publish(), loop).result()


def artifact(
    name: str,
    data: bytes | bytearray | memoryview | str | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    ref: str | None = None,
    kind: str | None = None,
    media_type: str | None = None,
) -> Publication:
    """Put a file out, or a reference to what is elsewhere: `await` it. Listed by `Run.artifacts()`, with its versions.

    Give the bytes (or text), the `path=` of a file of any size, or a `ref=` (a url, the number of a pull request),
    which is recorded and never fetched, of a url without the password. In an agent it is a call of its own: after a
    crash it is answered from the journal, and the file is not read again. In a body it belongs to the attempt: it is
    recorded with its outcome, and an attempt that fails or is cut off leaves none. The same bytes under the same name
    are the same version. In a `def` body call `.result()` on it.

    Example:
        report = await hf.artifact("report.md", text, media_type="text/markdown")
    """
    scope = scope_or_none()
    if scope is None:
        raise NotInRun("hf.artifact() works inside a run only: call it from an agent, or in the body of a step.")
    return Publication(scope, _What(name, data, path, ref=ref, kind=kind, media_type=media_type))


class _What:
    """What is put out, checked."""

    __slots__ = ("data", "kind", "media_type", "name", "path", "ref")

    def __init__(
        self,
        name: str,
        data: bytes | bytearray | memoryview | str | None,
        path: str | os.PathLike[str] | None,
        *,
        ref: str | None,
        kind: str | None,
        media_type: str | None,
    ) -> None:
        if sum(each is not None for each in (data, path, ref)) != 1:
            raise UsageError(f"hf.artifact({name!r}) takes one of: the data, path= or ref=.")
        if not isinstance(data, bytes | bytearray | memoryview | str | None):
            raise UsageError(
                f"hf.artifact({name!r}) takes bytes or text, not {type(data).__name__}. Encode it, or give the "
                "path= of a file."
            )
        self.name = checked_name(name)
        self.data = data.encode() if isinstance(data, str) else None if data is None else bytes(data)
        self.path = None if path is None else os.fspath(path)
        self.ref = None if ref is None else _without_password(_checked("ref=", ref, _LONGEST_REF))
        self.kind = _checked("kind=", kind or ("file" if ref is None else "reference"), 100)
        if self.kind in OWN_KINDS:
            raise UsageError(f"hf.artifact({name!r}): kind={self.kind!r} is what Holdfast calls its own; use another.")
        self.media_type = self._media_type(media_type, is_text=isinstance(data, str))

    def _media_type(self, given: str | None, *, is_text: bool) -> str:
        if given is None and self.ref is not None:
            return ""
        return checked_media_type(self.name, given, is_text=is_text)

    def shown(self) -> str:
        """Its arguments, for people."""
        plain = {"name": self.name, "kind": self.kind, "path": self.path, "ref": self.ref}
        return json.dumps({name: value for name, value in plain.items() if value is not None})

    def open(self) -> BinaryIO:
        return io.BytesIO(self.data or b"") if self.path is None else opened(self.path)


def checked_name(name: str) -> str:
    """A name that means the same everywhere: parts with `/` between, none of which leads elsewhere."""
    _checked("the name of an artifact", name, _LONGEST)
    parts = name.split("/")
    if any(part in ("", ".", "..") or part != part.strip() for part in parts) or "\\" in name or ":" in parts[0]:
        raise UsageError(
            f"{name!r} cannot name an artifact: it has parts with '/' between, none of them empty, '.' or '..', and no "
            "'\\'. Like reports/summary.md."
        )
    return name


def checked_media_type(name: str, given: str | None, *, is_text: bool = False) -> str:
    """What was given, or what the name of the file tells."""
    if given is not None:
        return _checked("media_type=", given, 200)
    return _TYPES.guess_type(name)[0] or ("text/plain" if is_text else "application/octet-stream")


def _without_password(ref: str) -> str:
    """A url says where something is. Who signs in there with what is for nobody who reads the list."""
    return _SIGNED_IN.sub(r"\1***@", ref)


def _checked(what: str, text: object, longest: int) -> str:
    if not isinstance(text, str) or not 1 <= len(text) <= longest:
        raise UsageError(f"{what} takes 1 to {longest} characters of text; got {text!r:.100}.")
    if not text.isprintable() or unseen_in(text):
        raise UsageError(f"{what} takes characters that can be seen; got {text!r:.100}.")
    return text


# putting out


async def _put_out(run: RunContext, body: StepInfo, what: _What) -> Artifact:
    """Store the data, and have it recorded with the outcome of the attempt."""
    try:
        versions = await run.patiently(lambda: run.outputs.versions(what.name))
        file = None if what.ref is not None else await _store(run, what)
    except Fenced:
        await run.fenced()
        raise
    said: dict[str, Any] = {"name": what.name, "kind": what.kind, "media_type": what.media_type}
    said |= file.plain() if file is not None else {"ref": what.ref}
    identity = identity_of(said)
    outputs = body.attempt_outputs()
    version = versions.hold(identity)
    outputs.add(OutputNote(NoteKind.artifact, name_digest(what.name), json.dumps({**said, "version": version})))
    outputs.then(lambda kept: versions.keep(identity, version) if kept else versions.drop(identity))
    faults.point("artifact.after_data")
    return Artifact(
        run_id=run.id,
        name=what.name,
        version=version,
        kind=what.kind,
        media_type=what.media_type,
        sha256=file.sha256 if file is not None else "",
        size=file.size if file is not None else None,
        ref=what.ref or "",
        key=body.key,
        listed=file.listed if file is not None else "",
    )


async def _store(run: RunContext, what: _What) -> FileRef:
    filing = Filing(run.host.store, run.id, fence=lambda: run.fence, patiently=run.patiently)
    found: list[FileRef] = []
    is_small = what.data is not None and len(what.data) <= CHUNK
    stream = what.open() if is_small else await asyncio.to_thread(what.open)
    try:
        await filing.put(chunks_of(stream, found.append), is_small=is_small)
    finally:
        stream.close()
    return found[0]
