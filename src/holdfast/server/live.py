"""Changes as they happen: one reader of the store for all who listen.

The last events are kept, so that who comes back with the id of the last one it had gets all since. Who does not read
what it asked for is cut off; it comes back, and reads its page again if too much has happened (`resync`).
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.base.data import data
from holdfast.base.ids import new_uuid
from holdfast.base.telemetry import warn
from holdfast.errors import HoldfastError
from holdfast.server.feed import Feed, News
from holdfast.server.problems import Problem

LISTENERS: Final = 64
BACKLOG: Final = 1_000_000  # bytes that somebody may have unread
LOOK_S: Final = 0.25
COMMENT_S: Final = 15.0
_KEPT: Final = 2_000
_RUN: Final = "run:"
#: Topics that name no run, and the events that belong to them.
TOPICS: Final = {"runs": ("run", "progress", "gone"), "questions": ("question",), "workers": ("workers",)}


@data
class Event:
    """One event, as all who listen get it."""

    number: int | None  #: of those that last
    id: str | None
    news: News
    text: bytes


class Listener:
    """Somebody who listens, and what they have not read yet."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.cursor = ""  #: the id of the last event before those that are given to it
        self.topics = frozenset(topics)
        self.runs = frozenset(each.removeprefix(_RUN) for each in topics if each.startswith(_RUN))
        self.is_cut = False
        self.has_ended = False
        self._events: deque[Event] = deque()
        self._size = 0
        self._news = asyncio.Event()

    def wants(self, news: News) -> bool:
        """Is it in the topics?"""
        if news.event == "resync" or (news.run_id is not None and news.run_id in self.runs):
            return True
        return any(news.event in TOPICS[each] for each in self.topics if each in TOPICS)

    def give(self, event: Event) -> None:
        """Add to what is unread; too much of it cuts the listener off."""
        if self.is_cut:
            return
        self._size += len(event.text)
        if self._size > BACKLOG:
            self.is_cut = True
            self._events.clear()
        else:
            self._events.append(event)
        self._news.set()

    def forget(self) -> None:
        """What came until now is not for it."""
        self._events.clear()
        self._size = 0

    def end(self) -> None:
        """The server goes."""
        self.has_ended = True
        self._news.set()

    async def take(self, timeout_s: float) -> list[Event]:
        """What is unread, once there is something; empty after a time, or at the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        self._news.clear()
        taken = list(self._events)
        self._events.clear()
        self._size = 0
        return taken


class Live:
    """The reader, and those who listen."""

    def __init__(self, feed: Feed, *, look_s: float = LOOK_S) -> None:
        self._feed = feed
        self._look_s = look_s
        self._life = new_uuid().hex[:12]  # numbers of another process mean nothing here
        self._number = 0
        self._kept: deque[Event] = deque(maxlen=_KEPT)
        self._listeners: set[Listener] = set()
        self._reading: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    @property
    def cursor(self) -> str:
        """The id of the last event that lasts."""
        return f"{self._life}-{self._number}-{self._feed.cursor}"

    async def listen(self, topics: Sequence[str], last_id: str | None) -> Listener:
        """Begin to listen: what came after an event first, or from now on. Problem `busy`: too many do."""
        if len(self._listeners) >= LISTENERS:
            raise Problem("busy", f"{LISTENERS} listen already.", headers={"retry-after": "10"})
        listener = Listener(topics)
        self._listeners.add(listener)  # before the look, so that the runs it names are watched
        try:
            await self._look()
        except BaseException:
            self.leave(listener)
            raise
        listener.forget()
        missed = await self._since(last_id, listener)
        listener.cursor = last_id if last_id is not None and self._is_told(missed) else self.cursor
        for event in missed:
            if listener.wants(event.news):
                listener.give(event)
        for run_id in listener.runs:
            if (state := await self._feed.state(run_id)) is not None:
                listener.give(_event(state, None, ""))
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return listener

    def leave(self, listener: Listener) -> None:
        """Listen no more; nobody reads the store if nobody does."""
        self._listeners.discard(listener)
        if not self._listeners and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def close(self) -> None:
        """Let all go: the server ends."""
        for listener in self._listeners:
            listener.end()

    async def _since(self, last_id: str | None, listener: Listener) -> list[Event]:
        """What came after an event: from what is kept here, or else, of runs, from the store."""
        if last_id is None:
            return []
        life, _, rest = last_id.partition("-")
        number, _, cursor = rest.partition("-")
        is_number = number.isdecimal() and len(number) < 19
        if life == self._life and is_number and int(number) <= self._number:
            missed = [event for event in self._kept if event.number is not None and event.number > int(number)]
            if len(missed) == self._number - int(number) and _size(missed) <= BACKLOG:
                return missed
        moved = await self._feed.since(cursor) if cursor and not listener.topics & {"questions"} else None
        if moved is not None:
            missed = [_event(news, None, "") for news in moved]
            if _size(missed) <= BACKLOG:  # else it would be cut off again, for ever
                return missed
        return [_event(News("resync", {}), None, "")]

    @staticmethod
    def _is_told(missed: Sequence[Event]) -> bool:
        return all(event.news.event != "resync" for event in missed)

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            try:
                await self._look()
            except HoldfastError as error:  # a store that is away comes back
                warn("live.failed", error=str(error))
                await asyncio.sleep(1.0)

    async def _look(self) -> None:
        async with self._looking:
            watched = {run_id for listener in self._listeners for run_id in listener.runs}
            before = self._feed.cursor
            found = await self._feed.look(watched)
            last = max((place for place, news in enumerate(found) if news.is_lasting), default=-1)
            for place, news in enumerate(found):
                # Who has all but the last of them begins again before the first.
                self.publish(news, cursor=self._feed.cursor if place >= last else before)

    def publish(self, news: News, *, cursor: str = "") -> None:
        """Give it to all who want it, and keep it if it lasts."""
        if news.event == "resync":
            self._kept.clear()
            self._number += 1  # who has an id from before is told to read again
        number = None
        if news.is_lasting:
            self._number += 1
            number = self._number
        event = _event(news, number, self._life, cursor=cursor)
        if number is not None:
            self._kept.append(event)
        for listener in self._listeners:
            if listener.wants(news):
                listener.give(event)


def _size(events: Sequence[Event]) -> int:
    return sum(len(event.text) for event in events)


def _event(news: News, number: int | None, life: str, *, cursor: str = "") -> Event:
    event_id = None if number is None else f"{life}-{number}-{cursor}"
    head = f"id: {event_id}\n" if event_id is not None else ""
    text = f"{head}event: {news.event}\ndata: {json.dumps(news.data, default=str)}\n\n"
    return Event(number, event_id, news, text.encode())


def topics_in(given: str) -> list[str]:
    """The topics that a client named; Problem if there is one that is not known."""
    topics = [each for each in given.split(",") if each]
    for each in topics:
        if each not in TOPICS and not (each.startswith(_RUN) and 0 < len(each) - len(_RUN) <= 200):
            raise Problem("invalid_parameter", f"{each[:100]!r} is no topic: {', '.join(TOPICS)} and run:ID are.")
    if not topics or len(topics) > 50:
        raise Problem("invalid_parameter", "Name one to fifty topics.")
    return topics


async def poll(
    live: Live, topics: Sequence[str], last_id: str | None, wait_s: float
) -> tuple[list[dict[str, Any]], str]:
    """What came after an event, once there is something; for who cannot listen. Also the id to ask with next."""
    listener = await live.listen(topics, last_id)
    try:
        taken = await listener.take(wait_s)
        told = [{"id": each.id, "event": each.news.event, "data": each.news.data} for each in taken]
        return told, live.cursor
    finally:
        live.leave(listener)


class EventStream(Response):
    """The answer that goes on as long as somebody reads it."""

    media_type = "text/event-stream"

    def __init__(self, live: Live, listener: Listener, *, on_end: Callable[[], None] | None = None) -> None:
        super().__init__(headers={"x-accel-buffering": "no", "cache-control": "no-store"})
        del self.headers["content-length"]
        self._live = live
        self._listener = listener
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        cutting = asyncio.create_task(self._cut())
        tasks = {sending, leaving, cutting}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._live.leave(self._listener)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._on_end is not None:
                self._on_end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        # An id without data is remembered by browsers: whoever is cut off before the first event misses none.
        await _part(send, f"retry: 2000\nid: {self._listener.cursor}\n\n".encode())
        while not self._listener.has_ended:
            taken = await self._listener.take(COMMENT_S)
            await _part(send, b"".join(event.text for event in taken) or b": here\n\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _cut(self) -> None:
        """Ends when the listener is cut off, though a write to it may hang for ever."""
        while not self._listener.is_cut:  # noqa: ASYNC110 - `take` waits for the same event
            await asyncio.sleep(LOOK_S)


async def _part(send: Send, text: bytes) -> None:
    await send({"type": "http.response.body", "body": text, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
