"""One queue as it is stored: its limits, whether it lets runs go, the permits left. Nothing here looks at a store.

How many starts there may be in a time is a bucket of permits, which holds as many as the rate's count and fills evenly.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace

from holdfast.base import clock
from holdfast.base.telemetry import warn
from holdfast.codec import said_by
from holdfast.durations import Duration, length_s
from holdfast.errors import UsageError
from holdfast.model import Definition

KIND = "queue"


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
            error=said_by(error),
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


# permits


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
