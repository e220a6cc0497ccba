"""What an app is made of while it is open: what executes runs, attends to them, starts and removes them by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.app.options import AppOptions
from holdfast.app.shift import serve
from holdfast.app.starts import Starts
from holdfast.automation.outbox import Outbox
from holdfast.automation.schedules.schedules import Schedules
from holdfast.automation.triggers import Source, TriggerInfo, Triggers
from holdfast.control.upkeep.retention import Retention
from holdfast.durations import Duration
from holdfast.errors import UsageError
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent, Call, check_call
from holdfast.worker.executor import Executor
from holdfast.worker.sweep import Attendant


class Parts:
    """The parts of one app."""

    def __init__(self, store: Store, options: AppOptions) -> None:
        self.store = store
        self.executor = Executor(
            store,
            options.settings,
            agents=options.agents,
            concurrency=options.concurrency,
            emitter=self._emit,
            keeps_errors=options.only_own,  # such an app lives as long as its run: errors keep what their frames hold
        )
        self.starts = Starts(self.executor)
        self.schedules = Schedules(store, self.starts.scheduled, cancel=self.starts.cancel)
        self.triggers = Triggers(store, self.starts.triggered, send=self.starts.signal)
        self.retention = Retention(store)
        self.attendant: Attendant | None = None  #: of a worker; a client has none
        self._options = options
        self.drain_s = 0.0  #: what bodies under way have to end in when the app closes
        self._tending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Become a worker, if there are agents to execute."""
        if not self._options.agents:
            return
        self.executor.lease.told = self._options.told()
        await self.executor.open()
        outbox = Outbox(self.store, self.executor.put)
        chores = (
            outbox.deliver_due,
            self.schedules.fire_due,
            self.triggers.deliver_due,
            self.retention.prune_due,
        )
        only_own = self._options.only_own
        self.attendant = Attendant(
            self.executor,
            only_own=only_own,
            chores=() if only_own else chores,
            remedies=(self.schedules.put_right,),
        )
        self.attendant.queues = self._options.queues
        self.attendant.begin()
        if not only_own:
            self._tending = asyncio.create_task(self.triggers.run())

    async def work(self, queues: Sequence[str] | None) -> None:
        """Execute runs until told to stop; what is under way then gets its time when the app closes."""
        if self.attendant is None:
            raise UsageError("This app executes nothing: pass the agents to hf.connect(agents=[…]).")
        if queues is not None:
            self.attendant.queues = list(queues)
        self.drain_s = self.executor.settings.drain_s
        await serve(self.executor, self.attendant)

    async def close(self) -> None:
        """Stop, and hand over what is under way."""
        if self._tending is not None and self._tending.get_loop() is asyncio.get_running_loop():
            self._tending.cancel()
            await asyncio.wait({self._tending})
        if self.attendant is not None:
            await self.attendant.stop()
        await self.retention.stop()
        await self.executor.close(drain_s=self.drain_s)

    async def declare_schedule(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str,
        tz: str,
        jitter: Duration,
        overlap: str,
        missed: str | int,
        queue: str | None,
    ) -> None:
        """A schedule of a call: what is stored of it is the call's agent and its arguments as text."""
        check_call(call, "app.schedule()")
        given = call.input
        await self.schedules.declare(
            name,
            agent=call.agent.name,
            args_text=given.text,
            args_digest=given.digest,
            defaults=given.defaults,
            cron=cron,
            tz=tz,
            jitter=jitter,
            overlap=overlap,
            missed=missed,
            queue=queue or call.agent.queue,
        )

    async def declare_trigger(
        self,
        event: Source,
        agent: Agent[..., Any],
        *,
        name: str | None,
        where: Mapping[str, Any] | None,
        queue: str | None,
        queue_key: str,
    ) -> TriggerInfo:
        """A trigger for an agent. All workers are told what it takes, since any of them may hear of the event."""
        if not isinstance(agent, Agent):
            raise UsageError(f"on() takes a function decorated with @hf.agent, not {agent!r}.")
        self.executor.know(agent)
        await self.executor.declarations.tell(everything=True)
        return await self.triggers.declare(
            event, agent.name, name=name, where=where, queue=queue or agent.queue, queue_key=queue_key
        )

    async def _emit(self, event: str, value: Any, *, dedup: str | None) -> str:
        return await self.triggers.emit(event, value, dedup=dedup)
