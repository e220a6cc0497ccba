"""Threads: what was said, by whichever run or person, in the order in which it was accepted."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.base.data import data
from holdfast.model.runs import ThreadId


class ThreadRow(NamedTuple):
    """A thread: how far it is, and where reading begins."""

    id: ThreadId
    last: int  #: number of its last message
    summary: int  #: number of its last summary; 0 for none
    covers: int  #: up to where that goes
    created_at: int
    updated_at: int


class Message(NamedTuple):
    """One message, as stored; it is never changed. A summary says up to where it goes."""

    thread_id: ThreadId
    number: int
    body: str  #: JSON text of the codec
    at: int
    author: str  #: the run that said it, or the person
    covers: int | None
    dedup: str  #: the same for all that were said together
    digest: str  #: of all but the number, which the store gives


@data
class Saying:
    """What is to be said in a thread, all of it or nothing."""

    thread_id: ThreadId
    bodies: tuple[str, ...]
    digests: tuple[str, ...]
    at: int
    author: str
    dedup: str
    covers: int | None = None


class Said(NamedTuple):
    """Under which numbers it was said; not `is_new`: before, under the same dedup id."""

    first: int
    last: int
    is_new: bool
