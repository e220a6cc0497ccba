"""What triggers need from whoever runs agents: to start a run, and to send a signal to one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.automation.triggers.definitions import Trigger
from holdfast.automation.triggers.filters import filled
from holdfast.base.telemetry import warn
from holdfast.codec import coder_of, said_by
from holdfast.errors import ConflictingStart, Undecodable, Unserialisable, UsageError
from holdfast.worker.starting import checked_key

#: How many runs a trigger starts at once; together they share commits.
AT_ONCE: Final = 32

_FIRST_S: Final = 1.0
_MOST_S: Final = 3600.0

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class TriggeredStart:
    """A run to be started. The same `run_id` always comes with the same value."""

    agent: str
    value: Any  #: the single argument of the agent; of an event, as plain JSON and what the codec adds to it
    text: str  #: the same as JSON text, to be read by the annotation that the argument has
    run_id: str
    queue: str | None
    queue_key: str
    tags: Mapping[str, str] = field(default_factory=dict)


#: Stores a queued run unless one has this id; returns once it is durable. True: it is new. An error means that it was
#: not stored: Undecodable, that it never can be; with any other it is tried again later.
StartRun = Callable[[TriggeredStart], Awaitable[bool]]
#: Run id, name of the signal, the value as JSON text, dedup id. Raises a HoldfastError if the run does not take it.
SendSignal = Callable[[str, str, str, str], Awaitable[bool]]


class Occasion(NamedTuple):
    """What a run is to be started for."""

    trigger: Trigger
    run_id: str
    value: object
    text: str | None = None  #: the value as JSON text, if it is known already


class Fate(StrEnum):
    """What became of an attempt to start a run."""

    started = "started"  #: it is stored
    known = "known"  #: a run with this id was stored before
    refused = "refused"  #: it can never be a run, however often it is tried
    failed = "failed"  #: it cannot be one now; it is tried again


class StartAttempt(NamedTuple):
    """One attempt to start a run, and what kept it from being stored."""

    fate: Fate
    why: str = ""

    @property
    def is_over(self) -> bool:
        """Is there nothing left to try?"""
        return self.fate is not Fate.failed


async def start_all(start: StartRun, causes: Sequence[Occasion]) -> list[StartAttempt]:
    """Start several runs; what became of each."""

    async def one(cause: Occasion) -> StartAttempt:
        agent = cause.trigger.agent
        try:
            is_new = await start(_start_for(cause))
        except ConflictingStart as error:
            # It was started for this before; meanwhile the trigger, or the agent's argument, became another.
            warn("trigger.run_exists", run=cause.run_id, error=str(error))
            return StartAttempt(Fate.known, str(error))
        except (Undecodable, Unserialisable, RecursionError) as error:
            warn("trigger.refused", run=cause.run_id, agent=agent, error=str(error))
            return StartAttempt(Fate.refused, str(error))
        except Exception as error:  # one that cannot be started must not hold up the others
            text = said_by(error)
            warn("trigger.start_failed", run=cause.run_id, agent=agent, error=text)
            return StartAttempt(Fate.failed, text)
        return StartAttempt(Fate.started if is_new else Fate.known)

    return await in_parallel(one, causes)


def _start_for(cause: Occasion) -> TriggeredStart:
    trigger, value = cause.trigger, cause.value
    return TriggeredStart(
        agent=trigger.agent,
        value=value,
        text=coder_of(value).dumps(value) if cause.text is None else cause.text,
        run_id=cause.run_id,
        queue=trigger.queue,
        queue_key=_key_of(trigger, value),
        tags={"trigger": trigger.name},
    )


def _key_of(trigger: Trigger, value: object) -> str:
    try:
        return checked_key(filled(trigger.queue_key, value))
    except UsageError as error:
        raise Undecodable(f"{trigger.queue_key!r} gives no queue key here: {error}") from None


async def in_parallel(work: Callable[[A], Awaitable[B]], items: Sequence[A]) -> list[B]:
    """The results in the order of the items; the first error cancels the rest."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: A) -> B:
        async with gate:
            return await work(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def delay_s(attempts: int) -> float:
    """How long to wait after so many attempts that failed."""
    return float(min(_FIRST_S * 2 ** min(attempts - 1, 16), _MOST_S))
