"""Streams: text that others read while the body that makes it is at work, a model's answer above all."""

from __future__ import annotations

import re

from holdfast.errors import UsageError
from holdfast.journal.streams import StreamPart
from holdfast.model import Partial
from holdfast.running.scopes import Scope, scope_or_none

_NAME = re.compile(r"[\w.:-]{1,64}")


class StreamWriter:
    """Where a body writes what it has so far. Made by `hf.stream`."""

    __slots__ = ("_part", "_scope", "name")

    def __init__(self, name: str, part: StreamPart | None, scope: Scope | None) -> None:
        self.name = name
        self._part = part
        self._scope = scope

    def write(self, chunk: str) -> None:
        """Add a piece of text, from the body's task or its thread. It returns at once.

        Readers have it some 50 ms later, once it is on disk; a crash takes what is younger. UsageError if the attempt
        is over.

        Example: `out.write(delta)`
        """
        if not isinstance(chunk, str):
            raise UsageError(f"hf.stream({self.name!r}).write() takes text; got {type(chunk).__name__}.")
        if self._part is not None and chunk:
            self._part.write(chunk)

    @property
    def partial(self) -> Partial | None:
        """What a former attempt of this call had written here when it was cut off; else None.

        Example: `begun = hf.stream("draft").partial`
        """
        scope = self._scope
        if scope is None or scope.body is None:
            return None
        return scope.run.streams.partial(scope.body.key, self.name)

    def __repr__(self) -> str:
        return f"StreamWriter({self.name!r})"


def stream(name: str = "output") -> StreamWriter:
    """Where the body of a step or effect writes text while it works; `Run.stream(name)` reads it, in any process.

    What was written is kept in order and numbered without gaps. If the body is cut off, readers get a `reset` when the
    call is tried again, and the next attempt finds what there was in `hf.this_step().partial`. Nothing is written on
    replay. Outside of a run it writes nowhere.

    Example:
        @hf.step
        async def answer(question: str) -> str:
            out, text = hf.stream(), ""
            async for delta in model.ask(question):
                out.write(delta)
                text += delta
            return text
    """
    scope = scope_or_none()
    if scope is not None and scope.body is None:
        raise UsageError(
            f"hf.stream({name!r}) was called in the agent of run {scope.run.id}, which a replay calls again. Write in "
            "the body of a step or effect."
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"hf.stream() takes the name of a stream: up to 64 letters, digits and any of `.:-_`; got {name!r}."
        )
    if scope is None or scope.body is None:
        return StreamWriter(name, None, None)
    part = scope.run.streams.part(name, scope.body.key, scope.body.attempt)
    return StreamWriter(name, part, scope)
