"""Queues: what limits how many runs go at once, and how fast.

A queue needs no declaration; one that nobody has declared has no limits. What is declared, and whether it is paused, is
a definition that all workers share. Three things limit a queue, and each has its own place:

- how many runs at once, in all and per key: counted by the store, in the transaction that claims (`choosing.limits`);
- how many starts in a time: permits, taken from the definition by compare-and-set before the claim (`reserve`);
- paused, or held back for a time because a service said so: not chosen at all (`choosing.choose`).

What a worker knows of queues may be a second old; only the first two are promises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.base import clock
from holdfast.base.clock import as_time
from holdfast.base.telemetry import warn
from holdfast.durations import Duration
from holdfast.errors import StoreError
from holdfast.model import Act, Status
from holdfast.store.contract import Store
from holdfast.worker.queue_state import (
    KIND,
    QueueState,
    believed,
    checked_name,
    declared,
    from_definition,
    return_permits,
    take_permits,
    to_definition,
)

_FRESH_US = 1_000_000
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as people see it."""

    name: str
    concurrency: int | None  #: runs at once, by all workers together
    per_key: int | None  #: runs at once of each key
    rate: tuple[int, float] | None  #: starts, in this many seconds
    paused: bool
    held_until: datetime | None  #: a run said that the service behind it needs a rest until then
    queued: int
    running: int


class Queues:
    """The queues of a store, as one process sees them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, QueueState] | None = None
        self._read_at = 0
        self._changes = 0
        self._told: dict[str, int] = {}

    async def set(
        self,
        name: str,
        *,
        concurrency: int | None,
        per_key: int | None,
        rate: tuple[int, Duration] | None,
        act: Act | None = None,
    ) -> None:
        """Declare a queue's limits, whatever they were; whether it is paused or held stays as it is.

        Example: `await queues.set("mail", concurrency=4, per_key=1, rate=(10, 60))`
        """
        change = functools.partial(declared, concurrency=concurrency, per_key=per_key, rate=rate, now=clock.now_us())
        await self._change(name, change, create=True, act=act)
        self._store.ring()

    async def pause(self, name: str, act: Act | None = None) -> None:
        """Claim no more runs of a queue; those under way go on until they wait or end.

        Example: `await queues.pause("mail")`
        """
        await self._change(name, lambda state: replace(state, paused=True), act=act)

    async def resume(self, name: str, act: Act | None = None) -> None:
        """Let a queue go on, also one that is held.

        Example: `await queues.resume("mail")`
        """
        await self._change(name, lambda state: replace(state, paused=False, held_until=0, held_at=0), act=act)
        self._store.ring()

    async def hold(self, name: str, until_us: int) -> None:
        """Hold a queue back until a time; an earlier one than it is held until already changes nothing.

        Example: `await queues.hold("mail", now_us() + 30_000_000)`
        """
        now = clock.now_us()

        def held(state: QueueState) -> QueueState:
            return replace(state, held_until=until_us, held_at=now) if until_us > state.held_until else state

        await self._change(name, held)

    def is_limited(self, name: str) -> bool:
        """Does the end of one of its runs make room for another, as far as is known?"""
        state = (self._known or {}).get(name)
        return state is not None and (state.concurrency is not None or state.per_key is not None)

    async def load(self, *, fresh: bool = False) -> dict[str, QueueState]:
        """All queues that are declared, as they were at most a second ago (`fresh`: as they are).

        Example: `states = await queues.load()`
        """
        if self._known is None or fresh or clock.monotonic_us() - self._read_at > _FRESH_US:
            before, read_at = self._changes, clock.monotonic_us()
            found = {d.name: self._believed(from_definition(d)) for d in await self._store.definitions(KIND)}
            if self._changes != before:
                return found
            self._known, self._read_at = found, read_at
        return self._known

    async def reserve(self, wanted: Mapping[str, int], now: int) -> dict[str, int]:
        """Take permits to start runs, as many as there are; a queue without a rate grants all.

        A permit that is not used must be given back. One whose process died is lost, and the bucket fills again.

        Example: `granted = await queues.reserve({"mail": 3}, now_us())`
        """
        granted = {name: count for name, count in wanted.items() if count > 0}
        open_names = set(granted)
        for _ in range(_ATTEMPTS):
            if not open_names:
                return granted
            changed: list[QueueState] = []
            states = await self._read(open_names)
            for name in sorted(open_names):
                state = states.get(name)
                state = None if state is None else self._believed(state)
                if state is not None and not state.is_open(now):
                    granted[name] = 0
                elif state is not None and state.rate is not None:
                    granted[name], after = take_permits(state, wanted[name], now)
                    if granted[name]:
                        changed.append(after)
            if not changed:
                return granted
            self._forget_known()
            written = await self._store.define([to_definition(state) for state in changed])
            open_names = {state.name for state, done in zip(changed, written, strict=True) if not done}
        # Others were quicker each time: they took permits, so there may be none; the next look tells.
        return granted | dict.fromkeys(open_names, 0)

    async def give_back(self, unused: Mapping[str, int], now: int) -> None:
        """Return permits that were reserved and not used.

        Example: `await queues.give_back({"mail": 1}, now_us())`
        """
        for name, count in unused.items():
            if count > 0:
                await self._change(name, functools.partial(return_permits, count=count, now=now))

    async def infos(self) -> list[QueueInfo]:
        """All queues that are declared."""
        states = await self.load(fresh=True)
        counts = await self._store.queue_counts(sorted(states))
        return [
            QueueInfo(
                name=name,
                concurrency=state.concurrency,
                per_key=state.per_key,
                rate=state.rate,
                paused=state.paused,
                held_until=as_time(state.held_until) if state.held_until > clock.now_us() else None,
                queued=counts[name][Status.queued],
                running=counts[name][Status.running],
            )
            for name, state in sorted(states.items())
        ]

    async def _read(self, names: Iterable[str]) -> dict[str, QueueState]:
        found = await self._store.definitions(KIND, names=sorted(names))
        return {definition.name: from_definition(definition) for definition in found}

    async def _change(
        self,
        name: str,
        change: Callable[[QueueState], QueueState],
        *,
        create: bool = False,
        act: Act | None = None,
    ) -> None:
        """Write what `change` makes of the queue, whoever else changes it meanwhile; `create`: also if nothing."""
        checked_name(name)
        for _ in range(_ATTEMPTS):
            state = (await self._read([name])).get(name, QueueState(name))
            after = change(self._believed(state))
            if after == state and not (create and state.revision == 0):
                return
            self._forget_known()
            if (await self._store.define([to_definition(after)], act=act))[0]:
                self._forget_known()
                return
        raise StoreError(f"Queue {name!r} was changed by others {_ATTEMPTS} times in a row; try again.")

    def _believed(self, state: QueueState) -> QueueState:
        """What is believed of a stored queue; a process whose own clock is not the store's believes everything."""
        now = clock.now_us()
        right = believed(state, now)
        if right == state or abs(self._store.wall_clock_us() - now) > clock.AN_HOUR_US:
            return state
        if self._told.get(state.name) != state.revision:
            self._told[state.name] = state.revision
            warn(
                "queue.ahead", queue=state.name, why="a clock was ahead when its times were written; they do not count"
            )
        return right

    def _forget_known(self) -> None:
        self._known = None
        self._changes += 1
