"""Streams: what a body says while it works, and what is left of one that was cut off."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from holdfast.base.data import data

#: In the summary of a run that has streams: the number of the last event of each, by name.
STREAMS: Final = "streams"


class StreamEventKind(StrEnum):
    """What an event of a stream says."""

    text = "text"
    reset = "reset"  #: what this call has written so far does not count: it is tried again, or has no result
    end = "end"  #: the call has its result, and that is all of the text


class CutReason(StrEnum):
    """Why a body did not come to its end."""

    crash = "crash"  #: its process went away, in whatever way
    error = "error"
    timeout = "timeout"
    cancelled = "cancelled"


@data
class StreamEvent:
    """One event of a stream. Numbers have no gaps, over all calls and attempts that write to it.

    Example: `if event.kind == "text": print(event.text, end="")`
    """

    number: int  #: hand the last one that you have to `Run.stream(offset=)`
    kind: StreamEventKind
    text: str  #: of a `text` event, one chunk as it was written
    key: str  #: of the call that writes: several may write to one stream
    attempt: int
    at: datetime
    reason: CutReason | None = None  #: of a `reset`


@data
class Partial:
    """What a body had written before it was cut off: a consistent beginning of its text, never more.

    Example: `begun = partial.text if (partial := hf.this_step().partial) else ""`
    """

    text: str
    chunks: tuple[str, ...]
    attempt: int
    reason: CutReason
    name: str  #: of the stream
