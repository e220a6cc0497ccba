"""What the branches of one run wait for from outside: a time, a signal, a person, a child.

A run in which nothing else is under way can leave memory: what is here is what it is woken up for.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.base.clock import now_us
from holdfast.journal.journal import Journal
from holdfast.journal.recovery import CANCELLED
from holdfast.model import Kind, NoteKind, WaitKind
from holdfast.running.host import Host, TimerHandle
from holdfast.running.life import RunLife, ignore


@dataclass(slots=True, eq=False)
class OpenWait:
    """A branch that waits for something from outside."""

    key: str
    kind: WaitKind
    shown: dict[str, Any]
    due_us: int | None
    future: asyncio.Future[Any]
    timer: TimerHandle | None = None

    @property
    def subject(self) -> str:
        """Which signal or child it waits for."""
        return str(self.shown.get("child" if self.kind is WaitKind.child else "name", ""))

    def end(self, value: Any) -> bool:
        """What was waited for is there; False if something else was first."""
        if self.future.done():
            return False
        self.future.set_result(value)
        return True


class Waits:
    """Of one execution. `on_wait` hears that one began; nothing expires while `is_held()`."""

    def __init__(
        self,
        life: RunLife,
        journal: Journal,
        *,
        host: Host,
        on_wait: Callable[[], None],
        is_held: Callable[[], bool],
    ) -> None:
        self._life = life
        self._journal = journal
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._on_wait = on_wait
        self._is_held = is_held
        self._open: dict[str, OpenWait] = {}
        self._listening: dict[tuple[WaitKind, str], OrderedDict[str, OpenWait]] = {}  # the same, by what they wait for
        self._deadlines: dict[str, tuple[int, Callable[[], None]]] = {}  # open timeouts: when due (µs), what then

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenWait]:
        return iter(self._open.values())

    @property
    def keys(self) -> list[str]:
        """Of the calls that wait."""
        return [*self._open]

    @property
    def under_way(self) -> list[str]:
        """The keys of the calls that wait, and of the timeouts that are open."""
        return [*self._open, *self._deadlines]

    def let_go(self) -> None:
        """The execution is over: hold nothing that holds this."""
        self._on_wait = ignore
        self._is_held = lambda: True

    # how one begins

    async def wait(self, key: str, kind: WaitKind, shown: dict[str, Any], *, due_us: int | None = None) -> Any:
        """Hold this branch until something ends the wait with a value; None once it is due."""
        wait = OpenWait(key, kind, shown, due_us, self._loop.create_future())
        self._open[key] = wait
        listening = self._listening.setdefault((kind, wait.subject), OrderedDict())
        listening[key] = wait
        if due_us is not None:
            wait.timer = self._host.timers.at(due_us, lambda: self._expire(wait))
        self._on_wait()
        try:
            return await wait.future
        finally:
            if self._open.get(key) is wait:
                del self._open[key]
            listening.pop(key, None)
            if not listening and self._listening.get((kind, wait.subject)) is listening:
                del self._listening[kind, wait.subject]
            if wait.timer is not None:
                wait.timer.cancel()

    async def wait_until(self, key: str, due_us: int) -> None:
        """Wait for the time of the next attempt of a call; the run may leave memory meanwhile."""
        if due_us > now_us():
            await self.wait(key, WaitKind.timer, {"name": key}, due_us=due_us)

    async def hold(self, key: str, reason: dict[str, Any]) -> dict[str, Any]:
        """Hold this branch until a person settles the effect; the rest of the run goes on.

        A run that was cancelled asks nobody any more.
        """
        if self._life.cancelled:
            return {"verdict": CANCELLED}
        self._journal.add(Kind.noted, key, NoteKind.held, payload=json.dumps(reason))
        self._show_doubts(key)
        try:
            verdict: dict[str, Any] = await self.wait(key, WaitKind.doubt, reason)
            return verdict
        finally:
            self._show_doubts()

    def _show_doubts(self, *more: str) -> None:
        """Let people see what is in doubt while other branches go on."""
        self._journal.summary["held"] = sorted({*more, *(w.key for w in self if w.kind is WaitKind.doubt)})

    # how one ends

    def end(self, key: str, kind: WaitKind, value: Any) -> bool:
        """What a call waits for is there; False if it does not wait for that."""
        wait = self._open.get(key)
        return wait is not None and wait.kind is kind and wait.end(value)

    def end_first(self, kind: WaitKind, subject: str, value: Any) -> bool:
        """It is there for whoever waits longest; False if nobody does."""
        listening = self._listening.get((kind, subject))
        while listening:
            if listening.popitem(last=False)[1].end(value):
                return True
        return False

    def end_all(self, kind: WaitKind, subject: str, value: Any) -> None:
        """It is there for all who wait for it."""
        for wait in self._listening.get((kind, subject), {}).values():
            wait.end(value)

    def stop_asking(self) -> None:
        """The run was cancelled: what is in doubt ends so, and the code that waits for it can clean up."""
        for wait in list(self):
            if wait.kind is WaitKind.doubt:
                wait.end({"verdict": CANCELLED})

    # time

    def add_deadline(self, key: str, due_us: int, expire: Callable[[], None]) -> TimerHandle:
        """A timeout is open: `expire` is called when it is due, and again when it was held up."""
        self._deadlines[key] = (due_us, expire)
        return self._host.timers.at(due_us, expire)

    def remove_deadline(self, key: str) -> None:
        self._deadlines.pop(key, None)

    @property
    def is_held(self) -> bool:
        """Does nothing expire now, however late it is?"""
        return self._is_held()

    def _expire(self, wait: OpenWait) -> None:
        if wait.due_us is not None and wait.due_us <= now_us() and not self._is_held():
            wait.end(None)

    def expire_all(self) -> None:
        """What became due while nothing could expire."""
        for wait in list(self):
            self._expire(wait)
        now = now_us()
        for due, expire in list(self._deadlines.values()):
            if due <= now:
                expire()

    def next_due_us(self) -> int | None:
        """When the first of them is due."""
        due = [wait.due_us for wait in self if wait.due_us is not None]
        return min([*due, *(due for due, _ in self._deadlines.values())], default=None)

    @property
    def undecided(self) -> int:
        """How many wait for something that has not come."""
        return sum(not wait.future.done() for wait in self)
