"""All triggers of a store: declared, listed, paused, and kept going."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from holdfast.automation.triggers.cursors import forget_cursors
from holdfast.automation.triggers.definitions import (
    TRIGGER,
    Body,
    Tally,
    Trigger,
    TriggerInfo,
    all_triggers,
    change,
    checked_name,
    find_trigger,
    new_body,
    new_mark,
)
from holdfast.automation.triggers.events import Events, emit
from holdfast.automation.triggers.files import RESCAN_S, FileTrigger
from holdfast.automation.triggers.filters import checked_template, checked_where
from holdfast.automation.triggers.refused import RefusedStart, forget_refused, refused_starts
from holdfast.automation.triggers.sources import Source, default_name, described, subject_of
from holdfast.automation.triggers.starting import SendSignal, StartRun, delay_s
from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.telemetry import warn
from holdfast.codec import said_by
from holdfast.errors import StoreError, UsageError
from holdfast.model import Act, Definition, checked_id
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.automation.triggers.nats import NatsTrigger

#: How soon a trigger that another process declared, paused or removed is noticed.
_LOOK_S: Final = 0.5
_MOST_WAIT_S: Final = 30.0
#: How long a trigger may take to stop before it is told to again.
_STOP_AGAIN_S: Final = 10.0
_LONG_US: Final = 60_000_000
_FILE, _NATS = "file", "nats"


class Triggers:
    """The triggers of a store. `run` keeps those on files and queues going in this process; events need no task."""

    def __init__(self, store: Store, start: StartRun, *, send: SendSignal, rescan_s: float = RESCAN_S) -> None:
        self._store = store
        self._start = start
        self._rescan_s = rescan_s
        self._events = Events(store, start, send=send)
        self._tally = Tally(store)
        self._news = asyncio.Event()

    # what people do

    async def declare(
        self,
        source: Source,
        agent: str,
        *,
        name: str | None = None,
        where: Mapping[str, Any] | None = None,
        queue: str | None = None,
        queue_key: str = "",
    ) -> TriggerInfo:
        """Declare a trigger; again with the same name, it is changed, and keeps its counts and whether it is paused.

        Of files, those that are there are known when this returns.

        Example: `await triggers.declare("order.paid", "ship", where={"total": {"gt": 100}})`
        """
        kind, config = described(source)
        chosen = checked_name(name if name is not None else default_name(kind, config, agent))
        orders = {"agent": agent, "where": checked_where(where), "queue": queue and checked_id(queue, "queue")}
        orders["queue_key"] = checked_template(queue_key)

        def altered(body: Body) -> Body | None:
            if subject_of(kind, config) != subject_of(body["kind"], body["config"]):
                body = body | {"created_at": now_us(), "mark": new_mark(), "scanned": None}
            new = body | {"kind": kind, "config": config} | orders
            return None if new == body else new

        new = Definition(TRIGGER, chosen, json.dumps(new_body(kind, config, now_us()) | orders), 1)
        stored: Trigger | None = None
        while stored is None:  # removed at the same time: declare it anew
            await self._store.define([new])
            stored, _ = await change(self._store, chosen, altered)
        if kind == _FILE:
            await self._of_files(stored).first_scan()
        self._news.set()
        return (await find_trigger(self._store, chosen) or stored).info

    async def list(self) -> list[TriggerInfo]:
        """All triggers, by name."""
        return [trigger.info for trigger in await all_triggers(self._store)]

    async def pause(self, name: str, act: Act | None = None) -> TriggerInfo:
        """Let a trigger hear of nothing more. Changed files and messages wait for it; events emitted meanwhile do not,
        and those emitted before are delivered.
        """
        return await self._set_paused(name, True, act)

    async def resume(self, name: str, act: Act | None = None) -> TriggerInfo:
        """Let a paused trigger go on."""
        return await self._set_paused(name, False, act)

    async def _set_paused(self, name: str, paused: bool, act: Act | None) -> TriggerInfo:
        alter = lambda body: None if body["paused"] is paused else body | {"paused": paused}  # noqa: E731
        stored, _ = await change(self._store, name, alter, act=act)
        if stored is None:
            raise _unknown(name)
        self._news.set()
        return stored.info

    async def remove(self, name: str, act: Act | None = None) -> None:
        """Forget a trigger. The runs that it started stay."""
        found = await find_trigger(self._store, name)
        if found is None:
            raise _unknown(name)
        await self._store.forget(TRIGGER, [name], act=act)
        if found.kind == _FILE:
            await forget_cursors(self._store, name)
        await forget_refused(self._store, name)
        self._news.set()

    async def refused(self, name: str, *, limit: int = 1000) -> Sequence[RefusedStart]:
        """What came for a trigger and can never be a run, oldest first."""
        if await find_trigger(self._store, name) is None:
            raise _unknown(name)
        return await refused_starts(self._store, name, limit=limit)

    async def emit(
        self,
        name: str,
        value: object = None,
        *,
        dedup: str | None = None,
        transaction: Any = None,
        act: Act | None = None,
    ) -> str:
        """Store an event and deliver it; its id. What cannot be delivered at once is delivered later, come what may.

        Example: `await triggers.emit("order.paid", {"id": 7}, dedup="order-7")`
        """
        if transaction is not None:
            return await emit(self._store, name, value=value, dedup=dedup, now=now_us(), within=transaction)
        return await self._events.emit(name, value=value, dedup=dedup, now=now_us(), act=act)

    # what workers do

    async def deliver_due(self, now: int) -> int:
        """Deliver the events that are due; how many. For every worker's loop."""
        return await self._events.deliver_due(now)

    async def forget_old(self, now: int) -> int:
        """Forget events that were delivered long ago; how many."""
        return await self._events.forget_old(now)

    async def run(self) -> None:
        """Keep the triggers on files and queues going until cancelled, those declared meanwhile included."""
        going: dict[str, tuple[str, asyncio.Task[None]]] = {}
        try:
            while True:
                self._news.clear()
                try:
                    await self._tend(await all_triggers(self._store), going)
                    await self._tally.flush()
                except StoreError as error:
                    warn("triggers.failed", error=str(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):  # `wait_for` may swallow a cancellation before Python 3.12
                        await self._news.wait()
        finally:
            await _stopped(task for _, task in going.values())
            with suppress(StoreError):
                await self._tally.flush()

    async def _tend(self, triggers: Iterable[Trigger], going: dict[str, tuple[str, asyncio.Task[None]]]) -> None:
        """Start and stop what was declared, changed, paused or removed."""
        wanted = {each.name: each for each in triggers if each.kind in (_FILE, _NATS) and not each.paused}
        stale = [name for name, (orders, _) in going.items() if name not in wanted or wanted[name].orders != orders]
        await _stopped(going.pop(name)[1] for name in stale)
        for name, trigger in wanted.items():
            if name not in going:
                going[name] = (trigger.orders, asyncio.create_task(self._keep(trigger)))

    async def _keep(self, trigger: Trigger) -> None:
        """Carry out one trigger; if that fails, say so and begin again."""
        failures = 0
        while True:
            began = monotonic_us()
            try:
                await (self._of_files(trigger) if trigger.kind == _FILE else self._of_nats(trigger)).run()
            except Exception as error:  # whatever it is, other triggers go on, and this one is tried again
                failures = 1 if monotonic_us() - began > _LONG_US else failures + 1
                text = said_by(error)
                warn("trigger.failed", trigger=trigger.name, error=text)
                self._tally.note(trigger.name, "failed", at=now_us(), detail=text)
            else:
                return  # removed
            await asyncio.sleep(min(delay_s(failures), _MOST_WAIT_S))

    def _of_files(self, trigger: Trigger) -> FileTrigger:
        return FileTrigger(self._store, trigger, start=self._start, tally=self._tally, rescan_s=self._rescan_s)

    def _of_nats(self, trigger: Trigger) -> NatsTrigger:
        try:
            # The driver is optional, and takes long to import.
            from holdfast.automation.triggers.nats import NatsTrigger
        except ImportError as error:
            raise UsageError("A trigger on NATS needs nats-py: pip install 'holdfast[nats]'.") from error
        return NatsTrigger(self._store, trigger, start=self._start, tally=self._tally)


async def _stopped(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: a driver may have swallowed the first cancellation."""
    stopping = set(tasks)
    while stopping:
        for task in stopping:
            task.cancel()
        _, stopping = await asyncio.wait(stopping, timeout=_STOP_AGAIN_S)


def _unknown(name: str) -> UsageError:
    return UsageError(f"There is no trigger {name!r}; `holdfast triggers` lists them.")
