"""What is declared on a store, and acts and starts by itself: queues, schedules, triggers, events, rules of retention.

`Holdfast` has these methods. Each act says who did it, which is kept with the change (`holdfast activity`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from holdfast.control.actors import act_on
from holdfast.control.upkeep.retention import PruneResult, RetentionInfo, prune
from holdfast.durations import Duration
from holdfast.handle.acts import look, refused
from holdfast.handle.run import Run
from holdfast.model import Actor, Status
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent, Call
from holdfast.worker.executor import Executor
from holdfast.worker.queues import QueueInfo

if TYPE_CHECKING:
    from holdfast.app.parts import Parts
    from holdfast.automation.schedules.timetable import ScheduleInfo
    from holdfast.automation.triggers import RefusedStart, Source, TriggerInfo

_EFFECT = "do it in the body of an effect there"


class Standing:
    """The part of an app that is about what starts and removes runs by itself."""

    _store: Store

    @property
    def _parts(self) -> Parts:
        raise NotImplementedError

    @property
    def _here(self) -> Executor:
        raise NotImplementedError

    async def find(self, given: str) -> Run[Any]:
        """The run that an id names; `Holdfast` has it."""
        raise NotImplementedError

    @refused("use `await hf.emit(…)` there")
    async def emit(
        self,
        event: str,
        value: Any = None,
        *,
        dedup: str | None = None,
        transaction: Any = None,
        by: str | None = None,
        note: str = "",
    ) -> str:
        """Emit an event: triggers on its name start runs, and runs whose agent declares such a signal receive it.

        Once this returns the event will be delivered. A second one with the same `dedup` id is the first; with another
        value it raises ConflictingSend. Its id.
        With `transaction`, a connection of your own to the same database, it is emitted if and when that is committed.

        Example: `await app.emit("order.paid", {"id": 7}, dedup="order-7")`
        """
        act = act_on(by, note, "emit", target=event) if isinstance(by, Actor) else None  # code emits all the time
        return await self._parts.triggers.emit(event, value, dedup=dedup, transaction=transaction, act=act)

    @refused(_EFFECT)
    async def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per_key: int | None = None,
        rate: tuple[int, Duration] | None = None,
        by: str | None = None,
        note: str = "",
    ) -> None:
        """Declare the limits of a queue, for all workers together: runs at once, in all and per `queue_key`, and
        starts in a time (`rate=(10, timedelta(minutes=1))`, or seconds). A run that waits takes no place.

        Example: `await app.queue("mail", concurrency=4, per_key=1)`
        """
        act = act_on(by, note, "queue limits", target=name)
        await self._here.queues.set(name, concurrency=concurrency, per_key=per_key, rate=rate, act=act)

    @look
    async def queues(self) -> list[QueueInfo]:
        """The queues that are declared, with how many runs they have.

        Example: `for queue in await app.queues(): print(queue.name, queue.queued)`
        """
        return await self._here.queues.infos()

    @refused(_EFFECT)
    async def pause_queue(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Take no more runs from a queue; those under way go on until they wait or end.

        Example: `await app.pause_queue("mail")`
        """
        await self._here.queues.pause(name, act_on(by, note, "queue pause", target=name))

    @refused(_EFFECT)
    async def resume_queue(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Take runs from a queue again.

        Example: `await app.resume_queue("mail")`
        """
        await self._here.queues.resume(name, act_on(by, note, "queue resume", target=name))

    @refused(_EFFECT)
    async def schedule(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str,
        tz: str = "UTC",
        jitter: Duration = 0,
        overlap: Literal["skip", "allow", "replace"] = "skip",
        missed: Literal["latest", "skip"] | int = "latest",
        queue: str | None = None,
    ) -> None:
        """Start a run of a call whenever the cron expression says, in its time zone; declared again, it is changed.

        `overlap`: what happens if the run before has not ended. `missed`: which of the times that nobody was there for
        are made up for. Whoever fires a time, it is one run: its id is made of the schedule and the time.

        Example: `await app.schedule("nightly", report(), cron="0 2 * * *", tz="Europe/Vienna")`
        """
        await self._parts.declare_schedule(
            name, call, cron=cron, tz=tz, jitter=jitter, overlap=overlap, missed=missed, queue=queue
        )

    @look
    async def schedules(self) -> list[ScheduleInfo]:
        """The schedules, with their next times.

        Example: `for schedule in await app.schedules(): print(schedule.name, schedule.next_fires)`
        """
        return await self._parts.schedules.list()

    @refused(_EFFECT)
    async def pause_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Let a schedule start nothing.

        Example: `await app.pause_schedule("nightly")`
        """
        await self._parts.schedules.pause(name, act_on(by, note, "schedule pause", target=name))

    @refused(_EFFECT)
    async def resume_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Let a paused schedule go on; times that passed meanwhile are not made up for.

        Example: `await app.resume_schedule("nightly")`
        """
        await self._parts.schedules.resume(name, act_on(by, note, "schedule resume", target=name))

    @refused(_EFFECT)
    async def fire_schedule(self, name: str, *, by: str | None = None, note: str = "") -> Run[Any]:
        """Start a run of a schedule now, besides its times.

        Example: `run = await app.fire_schedule("nightly")`
        """
        act = act_on(by, note, "schedule run", target=name)
        return await self.find(await self._parts.schedules.fire(name, act))

    @refused(_EFFECT)
    async def backfill_schedule(
        self, name: str, start: datetime, end: datetime, *, by: str | None = None, note: str = ""
    ) -> list[Run[Any]]:
        """Start a run for each time of a schedule in a range that has none yet.

        Example: `await app.backfill_schedule("nightly", monday, friday)`
        """
        act = act_on(by, note, "schedule backfill", target=name)
        started = await self._parts.schedules.backfill(name, start, end, act=act)
        return [await self.find(run_id) for run_id in started]

    @refused(_EFFECT)
    async def remove_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Forget a schedule. The runs that it started stay.

        Example: `await app.remove_schedule("nightly")`
        """
        await self._parts.schedules.remove(name, act_on(by, note, "schedule remove", target=name))

    @refused(_EFFECT)
    async def on(
        self,
        event: Source,
        agent: Agent[..., Any],
        *,
        name: str | None = None,
        where: Mapping[str, Any] | None = None,
        queue: str | None = None,
        queue_key: str = "",
    ) -> TriggerInfo:
        """Start a run of an agent for each event of a name, changed file or message of a queue; it is the one argument.

        `where` names what the value must have: `{"customer.country": "AT", "total": {"gt": 100}}`. `queue_key` may take
        from it: `"{customer.id}"`. Declared again under the same name, the trigger is changed.

        Example: `await app.on("order.paid", ship, where={"total": {"gt": 100}})`
        """
        return await self._parts.declare_trigger(event, agent, name=name, where=where, queue=queue, queue_key=queue_key)

    @look
    async def triggers(self) -> list[TriggerInfo]:
        """The triggers, with what they received and started.

        Example: `for trigger in await app.triggers(): print(trigger.name, trigger.started)`
        """
        return await self._parts.triggers.list()

    @look
    async def refused_starts(self, trigger: str, *, limit: int = 1000) -> list[RefusedStart]:
        """What came for a trigger and can never be a run: it cannot be read, does not fit the agent's argument, or has
        no valid queue key. Oldest first; each is kept for 30 days.

        Example: `for each in await app.refused_starts("orders"): print(each.why, each.data)`
        """
        return list(await self._parts.triggers.refused(trigger, limit=limit))

    @refused(_EFFECT)
    async def pause_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Let a trigger start nothing.

        Example: `await app.pause_trigger("ship")`
        """
        await self._parts.triggers.pause(name, act_on(by, note, "trigger pause", target=name))

    @refused(_EFFECT)
    async def resume_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Let a paused trigger go on.

        Example: `await app.resume_trigger("ship")`
        """
        await self._parts.triggers.resume(name, act_on(by, note, "trigger resume", target=name))

    @refused(_EFFECT)
    async def remove_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Forget a trigger. The runs that it started stay.

        Example: `await app.remove_trigger("ship")`
        """
        await self._parts.triggers.remove(name, act_on(by, note, "trigger remove", target=name))

    @refused(_EFFECT)
    async def prune(
        self,
        *,
        older_than: Duration,
        agent: str | None = None,
        status: Sequence[Status] = (),
        dry_run: bool = False,
        forget: bool = False,
        progress: Callable[[int], None] | None = None,
        by: str | None = None,
        note: str = "",
    ) -> PruneResult:
        """Remove what runs did that ended longer ago than that. Their tombstones stay: who they were, how they ended.

        So a start with the same id, or a message with a known `dedup` id, does nothing as before; reading the run
        raises RunPruned. Nothing is removed that something alive may need: a run stays while one of its ancestors is
        not over for as long, while a child of it is unfinished, or a question open. `forget` also removes tombstones
        that are so old. Killed in between, it can be called again. `progress` is told how many runs are pruned.

        Example: `result = await app.prune(older_than=timedelta(days=30), agent="newsletter")`
        """
        if not dry_run:
            await self._store.add_act(act_on(by, note, "prune", target=agent or "*"))
        return await prune(
            self._store,
            older_than=older_than,
            agent=agent,
            statuses=[Status(each) for each in status],
            dry_run=dry_run,
            forget=forget,
            progress=progress,
        )

    @refused(_EFFECT)
    async def retain(self, agent: str, *, keep: Duration | None, by: str | None = None, note: str = "") -> None:
        """Have workers prune the runs of an agent that ended longer ago than that; None takes the rule away.

        The agent `"*"` means all that have no rule of their own. `timedelta.max` keeps runs for ever.

        Example: `await app.retain("newsletter", keep=timedelta(days=30))`
        """
        await self._parts.retention.set(agent, keep, act_on(by, note, "retention", target=agent))

    @look
    async def retention(self) -> list[RetentionInfo]:
        """For how long runs are kept, by agent.

        Example: `for rule in await app.retention(): print(rule.agent, rule.keep)`
        """
        return await self._parts.retention.infos()
