"""Queues: which of the runs that are ready may go, and in which order.

A queue needs no declaration; one that nobody has declared has no limits. What is declared, and whether it is paused, is
a definition that all workers share. Three things limit a queue, and each has its own place:

- how many runs at once, in all and per key: counted by the store, in the transaction that claims (`limits`);
- how many starts in a time: permits, taken from the definition by compare-and-set before the claim (`reserve`);
- paused, or held back for a time because a service said so: not chosen at all (`choose`).

What a worker knows of queues may be a second old; only the first two are promises.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from holdfast.base import clock
from holdfast.base.telemetry import warn
from holdfast.durations import Duration, length_s
from holdfast.errors import StoreError, UsageError
from holdfast.history.history import as_time
from holdfast.model import UNBEGUN, Definition, Limit, RunRow, Status
from holdfast.store.contract import Store
from holdfast.store.lines import place

KIND = "queue"
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


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as it is stored. `allowance` is how many starts were left at `allowance_at`."""

    name: str
    concurrency: int | None = None
    per_key: int | None = None
    rate: tuple[int, float] | None = None
    paused: bool = False
    held_until: int = 0
    allowance: float = 0.0
    allowance_at: int = 0
    revision: int = 0
    held_at: int = 0  #: when it was said that it is held

    def is_open(self, now: int) -> bool:
        return not self.paused and self.held_until <= now


def from_definition(definition: Definition) -> QueueState:
    """The queue of a stored definition. One that cannot be read is paused, and told of: others go on."""
    try:
        body = json.loads(definition.body)
        rate = body["rate"]
        return QueueState(
            name=definition.name,
            concurrency=_whole(body["concurrency"]),
            per_key=_whole(body["per_key"]),
            rate=None if rate is None else (int(rate[0]), float(rate[1])),
            paused=bool(body["paused"]),
            held_until=int(body["held_until"]),
            held_at=int(body.get("held_at", 0)),
            allowance=float(body["allowance"]),
            allowance_at=int(body["allowance_at"]),
            revision=definition.revision,
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        warn(
            "queue.unreadable",
            queue=definition.name,
            error=f"{type(error).__name__}: {error}",
            advice="declare and resume it",
        )
        return QueueState(definition.name, paused=True, revision=definition.revision)


def to_definition(state: QueueState) -> Definition:
    """What replaces the definition that the state was read from."""
    body = asdict(state)
    del body["name"], body["revision"]
    return Definition(KIND, state.name, json.dumps(body), state.revision + 1)


def _whole(value: object) -> int | None:
    if value is None or (isinstance(value, int) and value >= 1):
        return value
    raise ValueError(f"{value!r} is no limit")


# which runs to claim


def is_start(row: RunRow) -> bool:
    """Whether claiming the run starts it; else it goes on after a wait."""
    return row.head_seq <= 1 or bool(row.summary.get(UNBEGUN))


def choose(
    ready: Sequence[RunRow], *, states: Mapping[str, QueueState], slots: int, now: int, cursor: str
) -> list[RunRow]:
    """The runs to claim, at most `slots`, in the order to claim them.

    Fair between keys: the first of each queue and key, then the second of each, and so on, beginning behind `cursor`
    (see `next_cursor`); among those of one turn, higher priorities go first. Within a key: by priority, then those that
    go on after a wait, then the ones that have been ready for longest.

    A paused or held queue keeps back all of its runs: those that have not started, and those whose wait is over. (Runs
    under way are not touched.) A rate keeps back starts only: a run that goes on needs no permit.

    Not more are chosen from a queue than it could take if nothing else ran: so one that is full does not use up the
    slots of others. For that, `ready` has to hold more than `slots` runs, some of each queue, and none of those that
    are known to be closed: see `closed`.

    Example: `choose(await store.ready(...), states=await queues.load(), slots=4, now=now, cursor="")`
    """
    lines: dict[tuple[str, str], list[RunRow]] = {}
    for row in ready:
        state = states.get(row.queue)
        if state is None or state.is_open(now):
            lines.setdefault((row.queue_key, row.queue), []).append(row)
    for line in lines.values():
        line.sort(key=lambda row: (-row.priority, is_start(row), row.wake_at or 0, row.created_at, row.id))
    order = sorted(lines, key=lambda key: (place(*key) <= cursor, key))
    left = _Room(states, now)
    chosen: list[RunRow] = []
    turn = 0
    while len(chosen) < slots and order:
        order = [key for key in order if len(lines[key]) > turn]
        heads = sorted((lines[key][turn] for key in order), key=lambda row: -row.priority)
        chosen += [row for row in heads if left.take(row)]
        turn += 1
    return chosen[: max(slots, 0)]


def closed(states: Mapping[str, QueueState], now: int) -> list[str]:
    """The queues that let nobody go. They are not even looked at: however many there are, they hide no other.

    Example: `await store.ready(..., closed=closed(states, now))`
    """
    return [name for name, state in states.items() if not state.is_open(now)]


class _Room:
    """What each queue, and each key in it, can take at most."""

    def __init__(self, states: Mapping[str, QueueState], now: int) -> None:
        self._states = states
        self._now = now
        self._taken: Counter[str] = Counter()
        self._by_key: Counter[tuple[str, str]] = Counter()
        self._starts: Counter[str] = Counter()

    def take(self, row: RunRow) -> bool:
        state = self._states.get(row.queue)
        if state is None:
            return True
        key = (row.queue, row.queue_key)
        if state.concurrency is not None and self._taken[row.queue] >= state.concurrency:
            return False
        if state.per_key is not None and self._by_key[key] >= state.per_key:
            return False
        if state.rate is not None and is_start(row):
            if self._starts[row.queue] >= permits_left(state, self._now):
                return False
            self._starts[row.queue] += 1
        self._taken[row.queue] += 1
        self._by_key[key] += 1
        return True


def next_cursor(chosen: Sequence[RunRow], cursor: str, ready: Sequence[RunRow] = ()) -> str:
    """Where to begin next time: behind the last one chosen. `Store.ready(after=…)` takes it as well.

    If none was, behind the last one that was ready: a closed queue must not be all that is ever looked at.

    Example: `cursor = next_cursor(chosen, cursor, ready)`
    """
    last = chosen or ready
    return place(last[-1].queue_key, last[-1].queue) if last else cursor


def limits(states: Mapping[str, QueueState]) -> dict[str, Limit]:
    """What `Store.claim_many` has to count.

    Example: `await store.claim_many(claims, owner=worker, limits=limits(states))`
    """
    return {
        name: Limit(state.concurrency, state.per_key)
        for name, state in states.items()
        if state.concurrency is not None or state.per_key is not None
    }


def starts(rows: Iterable[RunRow]) -> dict[str, int]:
    """How many permits runs need, by queue.

    Example: `granted = await queues.reserve(starts(chosen), now)`
    """
    return dict(Counter(row.queue for row in rows if is_start(row)))


def permitted(rows: Iterable[RunRow], granted: Mapping[str, int]) -> list[RunRow]:
    """The runs that may be claimed with the permits granted, in the same order.

    Example: `chosen = permitted(chosen, granted)`
    """
    used: Counter[str] = Counter()
    kept: list[RunRow] = []
    for row in rows:
        if is_start(row):
            if used[row.queue] >= granted.get(row.queue, 0):
                continue
            used[row.queue] += 1
        kept.append(row)
    return kept


# permits: a bucket that holds as many as the rate's count, and fills evenly


def _filled(state: QueueState, now: int) -> float:
    assert state.rate is not None
    count, seconds = state.rate
    # A clock that was put back fills nothing, and takes nothing away.
    passed_s = max(0, now - state.allowance_at) / 1_000_000
    return min(float(count), state.allowance + passed_s * count / seconds)


def permits_left(state: QueueState, now: int) -> int:
    """How many runs of a queue with a rate may start now."""
    return math.floor(_filled(state, now) + 1e-6)


def take_permits(state: QueueState, wanted: int, now: int) -> tuple[int, QueueState]:
    """How many of the permits wanted there are, and the queue without them."""
    granted = max(0, min(wanted, permits_left(state, now)))
    left = max(0.0, _filled(state, now) - granted)
    return granted, replace(state, allowance=left, allowance_at=max(now, state.allowance_at))


def return_permits(state: QueueState, count: int, now: int) -> QueueState:
    """The queue with permits given back, never more than it can hold."""
    if state.rate is None:
        return state
    filled = min(float(state.rate[0]), _filled(state, now) + count)
    return replace(state, allowance=filled, allowance_at=max(now, state.allowance_at))


def believed(state: QueueState, now: int) -> QueueState:
    """The queue without times that only a clock which was ahead can have written.

    Nobody knows how many permits there are then: as for a new rate, all. A hold is over.
    """
    if state.rate is not None and clock.is_ahead(state.allowance_at, now):
        state = replace(state, allowance=float(state.rate[0]), allowance_at=now)
    if clock.is_ahead(state.held_at, now):
        state = replace(state, held_until=0, held_at=0)
    return state


# declaring


def checked_name(name: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= 100 or not name.isprintable() or name != name.strip():
        raise UsageError(f"The name of a queue has 1 to 100 printable characters; got {name!r}.")
    return name


def _checked_limit(value: int | None, what: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{what}= takes a whole number from 1, or None for no limit; got {value!r}.")
    return value


def _checked_rate(rate: tuple[int, Duration] | None) -> tuple[int, float] | None:
    if rate is None:
        return None
    try:
        count, time = rate
        seconds = length_s(time)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1 or seconds is None or seconds <= 0:
            raise ValueError
    except (TypeError, ValueError):
        raise UsageError(
            f"rate= takes (starts, time), for example (10, 60) or (10, timedelta(minutes=1)) for ten in a minute; "
            f"got {rate!r}."
        ) from None
    return count, seconds


def declared(
    state: QueueState, *, concurrency: int | None, per_key: int | None, rate: tuple[int, Duration] | None, now: int
) -> QueueState:
    """The queue with these limits; paused and held as before. A new rate begins with all of its permits."""
    checked = _checked_rate(rate)
    state = replace(
        state,
        concurrency=_checked_limit(concurrency, "concurrency"),
        per_key=_checked_limit(per_key, "per_key"),
    )
    if checked == state.rate:
        return state
    if checked is None:
        return replace(state, rate=None, allowance=0.0, allowance_at=now)
    return replace(state, rate=checked, allowance=float(checked[0]), allowance_at=now)


class Queues:
    """The queues of a store, as one process sees them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, QueueState] | None = None
        self._read_at = 0
        self._changes = 0
        self._told: dict[str, int] = {}

    async def set(
        self, name: str, *, concurrency: int | None, per_key: int | None, rate: tuple[int, Duration] | None
    ) -> None:
        """Declare a queue's limits, whatever they were; whether it is paused or held stays as it is.

        Example: `await queues.set("mail", concurrency=4, per_key=1, rate=(10, 60))`
        """
        change = functools.partial(declared, concurrency=concurrency, per_key=per_key, rate=rate, now=clock.now_us())
        await self._change(name, change, create=True)
        self._store.ring()

    async def pause(self, name: str) -> None:
        """Claim no more runs of a queue; those under way go on until they wait or end.

        Example: `await queues.pause("mail")`
        """
        await self._change(name, lambda state: replace(state, paused=True))

    async def resume(self, name: str) -> None:
        """Let a queue go on, also one that is held.

        Example: `await queues.resume("mail")`
        """
        await self._change(name, lambda state: replace(state, paused=False, held_until=0, held_at=0))
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

    async def _change(self, name: str, change: Callable[[QueueState], QueueState], *, create: bool = False) -> None:
        """Write what `change` makes of the queue, whoever else changes it meanwhile; `create`: also if nothing."""
        checked_name(name)
        for _ in range(_ATTEMPTS):
            state = (await self._read([name])).get(name, QueueState(name))
            after = change(self._believed(state))
            if after == state and not (create and state.revision == 0):
                return
            self._forget_known()
            if (await self._store.define([to_definition(after)]))[0]:
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
