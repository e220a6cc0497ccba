"""Events: one thing that happened, for all triggers and all waiting runs that want to know of it.

An event is stored before anybody is told, as a definition of kind `event` that is due a little later. Until then it is
claimed by the process that emitted it, which tells everybody and then marks it as delivered. If that process dies, the
event is found to be due: any worker claims it in turn, by moving its time ahead, and tells everybody. Some hear of it a
second time then; but the ids of runs and signals follow from the event, so nothing happens twice.

Who hears of an event is decided when it is emitted, by what the store says then, and stored with it: the triggers that
listen, and the time of the newest run that may want it. So neither a pause, nor a clock that was put back, nor how long
it takes until somebody delivers the event, makes a difference.

Delivered events are kept for a while, so that a second event with the same dedup id is known to be the first. For that
they are due once more, at the end of that while; so finding the old ones costs nothing as long as there are none.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.automation.triggers.definitions import Body, Tally, Trigger, all_triggers, body_of
from holdfast.automation.triggers.filters import matches
from holdfast.automation.triggers.refused import KEPT_US as REFUSED_KEPT_US
from holdfast.automation.triggers.refused import forget_refused, set_aside
from holdfast.automation.triggers.sources import checked_event
from holdfast.automation.triggers.starting import (
    Fate,
    Occasion,
    SendSignal,
    StartAttempt,
    StartRun,
    delay_s,
    in_parallel,
    start_all,
)
from holdfast.base import faults
from holdfast.base.clock import ready_us
from holdfast.base.ids import new_uuid
from holdfast.base.telemetry import warn
from holdfast.codec import MISSING, blob_digest, coder_for, coder_of, is_same, said_by
from holdfast.errors import (
    ConflictingSend,
    HoldfastError,
    RunFinished,
    RunMoved,
    RunNotFound,
    StoreError,
    Undecodable,
    UsageError,
)
from holdfast.model import UNFINISHED, Act, Definition, RunFilter, RunId, Status
from holdfast.store.contract import Store
from holdfast.store.runs import pages_of_runs

EVENT: Final = "event"
#: How long a delivered event is remembered: a second one with its dedup id is the first.
KEPT_US: Final = 7 * 86_400 * 1_000_000
#: How long a process that claimed an event has it for itself.
CLAIM_US: Final = 2_000_000

_BATCH: Final = 50
_LISTENING: Final = UNFINISHED - {Status.quarantined}
#: So many attempts are made before an event is given up, however old its time says it is.
_LEAST_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class _Ears:
    """Who listens, as the store says it now."""

    triggers: Sequence[Trigger]
    agents: Mapping[str, Sequence[str]]  #: that declare a signal, by its name

    @classmethod
    async def of(cls, store: Store) -> _Ears:
        agents: dict[str, list[str]] = {}
        for definition in await store.definitions("agent"):
            for name in body_of(definition).get("signals", {}):
                agents.setdefault(name, []).append(definition.name)
        return cls([each for each in await all_triggers(store) if each.kind == EVENT], agents)


async def emit(store: Store, name: str, *, value: object, dedup: str | None, now: int, within: Any = None) -> str:
    """Store an event, for a worker to deliver; its id. With a known dedup id nothing is stored: it is the first one,
    or ConflictingSend if that says something else.

    `within`: a transaction of the user's own, with which it is stored.

    Example: `await emit(store, "order.paid", value={"id": 7}, dedup="order-7", now=now_us())`
    """
    heard = await _heard(store, await _Ears.of(store), name=name, now=now)
    new = _definition(name, value, heard, dedup=dedup, now=now, due_at=ready_us())
    if not (await store.define([new], within=within))[0]:
        await _refuse_other(store, new, name=name, dedup=dedup)
    return new.name


async def _heard(store: Store, ears: _Ears, *, name: str, now: int) -> Body:
    """Who is to hear of an event that is emitted now: triggers, and runs that were created until a time.

    That time is not before the newest of them, whatever the clocks of those who created them said.
    """
    triggers = [each.mark for each in ears.triggers if not each.paused and each.config["event"] == name]
    until = now
    for agent in ears.agents.get(name, ()):
        until = max([until, *(row.created_at for row in await store.runs(RunFilter(agent=agent, limit=1)))])
    return {"triggers": triggers, "until": until}


async def _refuse_other(store: Store, new: Definition, *, name: str, dedup: str | None) -> None:
    """An event with this id exists: it must say the same. One that is not committed yet is not looked at."""
    for known in await store.definitions(EVENT, names=[new.name]):
        if not is_same(body_of(known)["value"], body_of(new)["value"]):
            raise ConflictingSend(
                f"Event {name!r} was emitted with dedup={dedup!r} and another value before; nothing was emitted. Use "
                "another id for another event.",
                known=new.name,
            )


def _definition(name: str, value: object, heard: Body, *, dedup: str | None, now: int, due_at: int) -> Definition:
    checked_event(name)
    if dedup is not None and (not isinstance(dedup, str) or not dedup):
        raise UsageError(f"dedup= takes text that is the same whenever the event is the same; got {dedup!r}.")
    text = coder_of(value).dumps(value, what=f"the value of event {name!r}")
    mark = new_uuid().hex if dedup is None else blob_digest(json.dumps([name, dedup]).encode())
    body = {"event": name, "value": text, "at": now, **heard}
    return Definition(EVENT, f"e_{mark}", json.dumps(body), 1, due_at)


@dataclass(frozen=True, slots=True)
class _Event:
    """A claimed event: the definition as it is stored now, and what is in it."""

    definition: Definition
    body: Body
    value: object
    name: str
    at: int
    until: int  #: runs that were created by then hear of it
    marks: frozenset[str]  #: of the triggers that listened when it was emitted

    @classmethod
    def of(cls, claim: Definition) -> _Event:
        """Raises all sorts of errors if it is not one of ours."""
        body = body_of(claim)
        value: object = coder_for(MISSING).loads(body["value"], what=f"event {claim.name}")
        name, at, until = str(body["event"]), int(body["at"]), int(body["until"])
        return cls(claim, body, value, name, at, until, frozenset(body["triggers"]))

    @property
    def id(self) -> str:
        return self.definition.name

    def due_again(self, due_at: int, **more: Any) -> Definition:
        body = json.dumps(self.body | more)
        return replace(self.definition, body=body, revision=self.definition.revision + 1, due_at=due_at)


@dataclass(frozen=True, slots=True)
class _Told:
    """One event and one trigger."""

    event: _Event
    trigger: Trigger
    cause: Occasion | None  #: of a run; None: the filter says no
    attempt: StartAttempt | None = None

    @property
    def run_id(self) -> str | None:
        return None if self.cause is None else self.cause.run_id

    @property
    def what(self) -> str:
        return "ignored" if self.attempt is None else self.attempt.fate

    @property
    def detail(self) -> str:
        why = "" if self.attempt is None else self.attempt.why
        return f"event {self.event.id}: {why}" if why else f"event {self.event.id}"

    @property
    def is_over(self) -> bool:
        return self.attempt is None or self.attempt.is_over

    @property
    def is_refused(self) -> bool:
        return self.attempt is not None and self.attempt.fate is Fate.refused

    def set_aside(self, now: int) -> Definition:
        assert self.attempt is not None
        what, why, data = f"event {self.event.id}", self.attempt.why, self.event.body["value"].encode()
        return set_aside(self.trigger.name, str(self.run_id), what=what, why=why, data=data, now=now)


class Events:
    """Tells triggers and runs of events."""

    def __init__(self, store: Store, start: StartRun, *, send: SendSignal) -> None:
        self._store = store
        self._start = start
        self._send = send
        self._tally = Tally(store)

    async def emit(self, name: str, *, value: object, dedup: str | None, now: int, act: Act | None = None) -> str:
        """Store an event and deliver it; its id. It is claimed from the start, so no worker does the same meanwhile.

        What cannot be delivered now is delivered later, by whoever comes; that is no error of the caller.

        Example: `await events.emit("order.paid", value={"id": 7}, dedup="order-7", now=now_us())`
        """
        ears = await _Ears.of(self._store)
        heard = await _heard(self._store, ears, name=name, now=now)
        new = _definition(name, value, heard, dedup=dedup, now=now, due_at=now + CLAIM_US)
        if not (await self._store.define([new], act=act))[0]:
            await _refuse_other(self._store, new, name=name, dedup=dedup)
        else:
            try:
                await self._deliver(_read([new])[0], ears, now)
                await self._tally.flush()
            except StoreError as error:
                warn("event.not_delivered_yet", name=name, id=new.name, error=str(error))
        return new.name

    async def deliver_due(self, now: int) -> int:
        """Deliver what is due and nobody else has claimed; how many events. One query if there is nothing.

        Example: `await events.deliver_due(now_us())`
        """
        delivered = 0
        while due := await self._store.definitions(EVENT, due=now, limit=_BATCH):
            fresh, old = _parted(due)
            if old:
                await self._store.forget(EVENT, [definition.name for definition in old])
            claimed = await self._claimed(fresh, now)
            if claimed:
                delivered += await self._deliver(claimed, await _Ears.of(self._store), now)
            elif not old:
                break  # somebody else is at it
        await self._tally.flush()
        return delivered

    async def forget_old(self, now: int) -> int:
        """Forget delivered events that have been kept long enough; how many. `deliver_due` does it as well."""
        _, old = _parted(await self._store.definitions(EVENT, due=now))
        if old:
            await self._store.forget(EVENT, [definition.name for definition in old])
        return len(old)

    async def _claimed(self, due: Sequence[Definition], now: int) -> list[_Event]:
        claims = [replace(each, revision=each.revision + 1, due_at=now + CLAIM_US) for each in due]
        taken = await self._store.define(claims) if claims else []
        events, damaged = _read(claim for claim, is_ours in zip(claims, taken, strict=True) if is_ours)
        if damaged:
            await self._store.define(damaged)
        return events

    async def _deliver(self, events: Sequence[_Event], ears: _Ears, now: int) -> int:
        for _ in events:
            faults.point("event.before_delivery")
        told = await self._start_runs(_told(events, ears.triggers))
        failed = {each.event.id: each.detail for each in told if not each.is_over}
        signalled: set[str] = set()
        for event in events:
            try:
                await self._signal(event, ears)
            except StoreError as error:
                failed[event.id] = said_by(error)
            else:
                signalled.add(event.id)
        for _ in events:
            faults.point("event.after_delivery")
        return await self._settle(events, told, failed=failed, signalled=signalled, now=now)

    async def _start_runs(self, told: Sequence[_Told]) -> list[_Told]:
        """What became of all that were told."""
        causes = [each.cause for each in told if each.cause is not None]
        attempts = iter(await start_all(self._start, causes))
        return [each if each.cause is None else replace(each, attempt=next(attempts)) for each in told]

    async def _settle(
        self,
        events: Sequence[_Event],
        told: Sequence[_Told],
        *,
        failed: Mapping[str, str],
        signalled: Collection[str],
        now: int,
    ) -> int:
        """Mark what was delivered; what was not comes again. Only whoever marks an event counts it.

        What can never be a run is set aside in the same commit.
        """
        changes = [_after(event, now, failed.get(event.id), is_signalled=event.id in signalled) for event in events]
        aside = [each.set_aside(now) for each in told if each.is_refused]
        marked = await self._store.define([*changes, *aside])
        done = {event.id for event, ok in zip(events, marked, strict=False) if ok and event.id not in failed}
        for each in told:
            if each.event.id in done or not each.is_over:
                self._tally.note(each.trigger.name, each.what, at=now, run=each.run_id, detail=each.detail)
            if each.event.id in done:
                self._count(each)
        for name in {each.trigger.name for each in told if each.is_refused}:
            await forget_refused(self._store, name, before=now - REFUSED_KEPT_US)
        return len(done)

    def _count(self, each: _Told) -> None:
        self._tally.count(
            each.trigger.name,
            received=1,
            matched=int(each.cause is not None),
            started=int(each.attempt is not None and each.attempt.fate is Fate.started),
            refused=int(each.is_refused),
        )

    # signals

    async def _signal(self, event: _Event, ears: _Ears) -> None:
        """Send the event to every run that was there when it happened and whose agent declares such a signal."""
        if event.body.get("signalled"):  # before; it comes again because of a trigger
            return
        own = {_run_id(trigger, event) for trigger in ears.triggers}
        for agent in ears.agents.get(event.name, ()):
            listening = RunFilter(status=_LISTENING, agent=agent)
            async for page in pages_of_runs(self._store, listening):
                others = [row.id for row in page if row.created_at <= event.until and row.id not in own]
                await in_parallel(lambda run_id: self._send_to(run_id, event), others)

    async def _send_to(self, run_id: RunId, event: _Event) -> None:
        try:
            await self._send(run_id, event.name, event.body["value"], event.id)
        except StoreError:
            raise
        except (RunNotFound, RunFinished, RunMoved):
            pass  # it ended meanwhile, or is not here any more
        except HoldfastError as error:
            warn("event.signal_refused", name=event.name, id=event.id, run=run_id, error=str(error))


def _parted(due: Sequence[Definition]) -> tuple[list[Definition], list[Definition]]:
    """Those to be delivered, and those that were and have been kept long enough."""
    fresh: list[Definition] = []
    old: list[Definition] = []
    for definition in due:
        try:
            (old if "delivered" in body_of(definition) else fresh).append(definition)
        except StoreError:  # it is set aside when it is claimed
            fresh.append(definition)
    return fresh, old


def _read(claims: Iterable[Definition]) -> tuple[list[_Event], list[Definition]]:
    """What is in claimed events, in the order in which they were emitted; and those that cannot be read, due no more.

    They stay as they are, for whoever looks into the store: they must not hold up the others.
    """
    events: list[_Event] = []
    damaged: list[Definition] = []
    for claim in claims:
        try:
            events.append(_Event.of(claim))
        except (StoreError, Undecodable, LookupError, TypeError, ValueError) as error:
            warn("event.damaged", id=claim.name, error=said_by(error))
            damaged.append(replace(claim, revision=claim.revision + 1, due_at=None))
    return sorted(events, key=lambda event: event.at), damaged


def _told(events: Iterable[_Event], triggers: Sequence[Trigger]) -> list[_Told]:
    """Each event with each trigger that is to hear of it, paused since or not."""
    return [
        _Told(event, trigger, _cause_of(event, trigger))
        for event in events
        for trigger in triggers
        if trigger.mark in event.marks
    ]


def _cause_of(event: _Event, trigger: Trigger) -> Occasion | None:
    if not matches(trigger.where, event.value):
        return None
    return Occasion(trigger, _run_id(trigger, event), event.value, event.body["value"])


def _run_id(trigger: Trigger, event: _Event) -> str:
    return f"{trigger.name}:{event.id}"


def _after(event: _Event, now: int, error: str | None, *, is_signalled: bool) -> Definition:
    """The event after it was delivered, or could not be."""
    if error is None:
        return event.due_again(max(event.at, now) + KEPT_US, delivered=now)
    attempts = int(event.body.get("attempts", 0)) + 1
    if now - event.at > KEPT_US and attempts >= _LEAST_ATTEMPTS:
        warn("event.given_up", name=event.name, id=event.id, attempts=attempts, error=error)
        return event.due_again(now + KEPT_US, delivered=now, error=error)
    due_at = now + int(delay_s(attempts) * 1e6)
    return event.due_again(due_at, attempts=attempts, error=error, signalled=is_signalled)
