"""Guards: what a run relies on outside, and whether it is still what it was when the run is taken up again.

A fingerprint is text. Where the code takes one it is recorded, as the result of a step is. After the replay, before
the first new body, all that are in force are taken again, together and within a time limit; once for each claim. What
differs, or could not be looked at, is noted, and is on the receipt; the code does not hear of it. From there on what
was found counts, unless a guard says that the run is not to go on by itself: then a person accepts it by resuming.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.base import faults
from holdfast.base.data import data
from holdfast.base.secrets import SECRETS
from holdfast.codec import said_by
from holdfast.errors import UsageError
from holdfast.model import Kind, NoteKind
from holdfast.model.diagnoses import Change, ChangedOutside, plain_change
from holdfast.model.reasons import Blocked
from holdfast.running.current import outside

if TYPE_CHECKING:
    from holdfast.journal.journal import Journal
    from holdfast.journal.replay import Replay
    from holdfast.running.activity import Activity
    from holdfast.running.gate import Gate
    from holdfast.running.host import Host
    from holdfast.running.life import RunLife

Fingerprint = Callable[[], str | Awaitable[str]]

_LONGEST: Final = 8000  # characters: a fingerprint is noted with what it was before


@data
class Guard:
    """Something that a run relies on."""

    name: str
    fingerprint: Fingerprint
    text: str  #: as it was
    blocks: bool  #: if it is another one, somebody has to accept that


class GuardedRun(Protocol):
    """The execution that they are of."""

    host: Host
    replay: Replay
    journal: Journal
    life: RunLife
    gate: Gate
    activity: Activity

    async def block(self, reason: Blocked) -> Any: ...


class Guards:
    """Of one execution."""

    def __init__(self, run: GuardedRun) -> None:
        self._run: GuardedRun = weakref.proxy(run)  # which holds this
        self._unseen: dict[str, Guard] = {}  # of this claim, by name
        self.texts: dict[str, str] = {}  #: what was found last, by name
        self._looking: asyncio.Task[Blocked | None] | None = None

    def replayed(self, guard: Guard, seq: int) -> None:
        """A recorded one is in force; it is looked at before the first new body."""
        was = self._run.replay.outside.seen.get(guard.name)
        if was is not None and was[0] > seq:  # it was another one since, and that was noted
            guard = Guard(guard.name, guard.fingerprint, was[1], guard.blocks)
        self._unseen[guard.name] = guard
        self.texts[guard.name] = guard.text
        self._run.gate.levy(self.toll)

    def taken(self, name: str, text: str) -> None:
        """One was taken just now: it replaces what was recorded under its name."""
        self._unseen.pop(name, None)
        self.texts[name] = text

    async def toll(self) -> None:
        """Return when what is guarded was looked at, and the run may go on."""
        run = self._run
        while self._unseen or self._looking is not None:
            if self._looking is None:  # the others wait for the same look
                self._looking = asyncio.Task(self._look(), loop=run.life.loop, context=outside())
            looking = self._looking
            blocked = await asyncio.shield(looking)
            if self._looking is looking:
                self._looking = None
            if blocked is not None:
                await run.block(blocked)
        run.gate.waive(self.toll)

    async def _look(self) -> Blocked | None:
        run, replay = self._run, self._run.replay
        guards = [*self._unseen.values()]
        self._unseen.clear()
        with run.activity.busy():
            changes = await look(guards, run.host.settings.guard_s)
        faults.point("guard.looked")
        found = {change.name for change in changes}
        asks = replay.outside.accepts is None and any(each.blocks and each.name in found for each in guards)
        if changes and not run.life.dead:
            said = {
                "changes": [plain_change(each) for each in changes],
                "asks": asks,
                "accepted": replay.outside.accepts,
            }
            run.journal.add(Kind.noted, "", NoteKind.guarded, payload=json.dumps(said))
        if not asks:
            self.texts.update({each.name: each.now for each in changes if each.now is not None})
            return None
        return Blocked(ChangedOutside(tuple(changes)))


async def look(guards: Sequence[Guard], limit_s: float) -> list[Change]:
    """What is not what it was, or could not be looked at in time."""

    async def compare(guard: Guard) -> Change | None:
        try:
            now = await take(guard.fingerprint, limit_s)
        except Exception as error:  # whatever it is, it is told
            return Change(guard.name, guard.text, None, said_by(error)[:_LONGEST])
        return None if now == guard.text else Change(guard.name, guard.text, now)

    found = await asyncio.gather(*map(compare, guards))
    return [change for change in found if change is not None]


async def take(fingerprint: Fingerprint, limit_s: float) -> str:
    """A fingerprint, if it is there in time: TimeoutError. One that hangs is left to itself."""
    work = asyncio.Task(_taken(fingerprint), context=outside())
    await asyncio.wait({work}, timeout=limit_s)
    if not work.done():
        work.cancel()
        work.add_done_callback(_forget)
        raise TimeoutError(f"it took longer than {limit_s:g} s")
    text = work.result()
    if not isinstance(text, str):
        raise UsageError(f"A fingerprint is text; got {type(text).__name__}. Return a digest, a version, a date.")
    if len(text) > _LONGEST:
        raise UsageError(f"A fingerprint has at most {_LONGEST:,} characters; got {len(text):,}. Return a digest.")
    return SECRETS.without(text) if SECRETS.is_in(text) else text  # as it is recorded, so that the next one is the same


def _forget(work: asyncio.Task[str]) -> None:
    if not work.cancelled():
        work.exception()


async def _taken(fingerprint: Fingerprint) -> str:
    """A `def` runs in a thread that keeps nobody from leaving, since it may hang."""
    if inspect.iscoroutinefunction(fingerprint) or inspect.iscoroutinefunction(getattr(fingerprint, "__call__", None)):  # noqa: B004
        found = fingerprint()
    else:
        found = await _in_thread(fingerprint)
    return await found if inspect.isawaitable(found) else found


async def _in_thread(fingerprint: Fingerprint) -> str | Awaitable[str]:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str | Awaitable[str]] = loop.create_future()

    def tell(found: str | Awaitable[str] | None, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is not None:
            ended.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        elif found is not None:
            ended.set_result(found)
        else:
            ended.set_result("")

    def work() -> None:
        found: str | Awaitable[str] | None = None
        error: BaseException | None = None
        try:
            found = fingerprint()
        except BaseException as caught:
            error = caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, found, error)

    threading.Thread(target=work, name="holdfast-guard", daemon=True).start()
    return await ended
