"""Executing runs in this process: where the parts of a worker are put together, and what a run needs of its process.

Which runs to take up is told in `sweep`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.base.config import Settings
from holdfast.control import lifecycle, signals
from holdfast.errors import HoldfastError, UsageError
from holdfast.handle.run import Run
from holdfast.model import FINAL, Act, Actor, Fence, Mail, Proof, RunId, RunRow, Status, ThreadId, WorkerId
from holdfast.running import forgotten
from holdfast.running.branches import install
from holdfast.running.children import ChildStart
from holdfast.running.host import Parent
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent, Call
from holdfast.worker.admission import Admission
from holdfast.worker.backwards import Pasts
from holdfast.worker.claim_notes import ClaimNotes
from holdfast.worker.creating import Creating
from holdfast.worker.declaring import Declarations
from holdfast.worker.execution import Execution
from holdfast.worker.executions import Executions
from holdfast.worker.judging import Request
from holdfast.worker.leases import Lease
from holdfast.worker.owners import forget_dead_workers
from holdfast.worker.queues import Queues
from holdfast.worker.starting import DEFAULT_QUEUE, NewRun, QueuePlace
from holdfast.worker.taking import Taking
from holdfast.worker.timers import Timers

R = TypeVar("R")


class Executor:
    """Executes runs of the agents it knows; one per app. `keeps_errors`: what failed runs raised can be seen here."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        agents: Iterable[Agent[..., Any]],
        concurrency: int,
        emitter: Callable[..., Awaitable[str]],
        keeps_errors: bool = False,
    ) -> None:
        self.store = store
        self.settings = settings
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="holdfast")
        self.lease = Lease(store, settings)
        self.timers = Timers()
        self.pasts = Pasts()
        self.queues = Queues(store)
        self.admission = Admission(store, self.queues)
        self.agents: dict[str, Agent[..., Any]] = {}
        self.started: set[RunId] = set()  #: runs that were started or resumed by this app, and have not ended
        self.executes = False  #: or is this process a client?
        self.nudge: Callable[[], None] = store.ring  #: look at everything now
        self.quiet: Callable[[], Awaitable[None]] = _at_once  #: returns when nothing happens here but waiting
        self.raised: dict[RunId, BaseException] | None = {} if keeps_errors else None
        self.declarations = Declarations(store, self.agents)
        self.executions = Executions(self, self.queues, concurrency=concurrency, on_end=self._ended)
        self._emitter = emitter
        self._opening = asyncio.Lock()
        self._notes = ClaimNotes(self.lease, store)
        self._creating = Creating(store, settings, lease=self.lease, executions=self.executions)
        self._taking = Taking(
            store,
            self.executions,
            agents=self.agents,
            admission=self.admission,
            lease=self.lease,
            notes=self._notes,
            pasts=self.pasts,
            started=self.started,
            crash_limit=settings.crash_limit,
        )
        for agent in agents:
            self.know(agent)
            self.executes = True
        self.declared = frozenset(self.agents)  #: the names of those that this app was given

    def know(self, agent: Agent[..., Any]) -> None:
        """Agents are found by name when a run is resumed."""
        known = self.agents.get(agent.name)
        if known is not None and known.fn is not agent.fn:
            raise UsageError(
                f"Two agents are called {agent.name!r}: give one of them another name with @hf.agent(name=…)."
            )
        self.agents[agent.name] = agent

    async def open(self) -> None:
        """Become a worker; done once, before the first run."""
        async with self._opening:
            if self.lease.is_open:
                return
            install(asyncio.get_running_loop())
            forgotten.install()
            await self.store.reach()
            await self.lease.open()
            self.store.serve(self.lease.worker_id, self._deliver)
            await self.declarations.tell()
            await forget_dead_workers(self.store)

    async def close(self, *, drain_s: float = 0.0) -> None:
        """Stop executing; runs that are not finished are left for whoever comes next."""
        self.executions.is_closing = True
        while self.executions or self._creating.is_under_way:  # one that is being handed over may still start another
            await self._creating.settle()
            await self.executions.hand_over(drain_s)
        self.timers.close()
        self.executions.close()
        self.threads.shutdown()
        await self.lease.close()

    # what runs need from their process

    def handle(self, run_id: RunId, thread_id: ThreadId) -> Run[Any]:
        return Run(self.store, run_id, thread_id, here=self)

    def local(self, run_id: RunId) -> Execution | None:
        """The execution of a run in this process, if there is one."""
        return self.executions.get(run_id)

    @property
    def is_starting(self) -> bool:
        """Is a run being stored as this worker's that does not execute yet?"""
        return self._creating.is_under_way

    @property
    def is_alone(self) -> bool:
        return len(self.executions) == 1

    @property
    def lapses(self) -> int:
        return self.lease.lapses

    def has_lease(self) -> bool:
        return self.lease.remaining_s() > self.settings.lease_s * 0.2

    async def wait_lease(self) -> None:
        while not self.has_lease():  # noqa: ASYNC110 - renewed by another thread
            await asyncio.sleep(self.settings.renew_s / 10)

    async def read_mail(self, run_id: RunId) -> None:
        execution = self.executions.get(run_id)
        if execution is not None:
            await execution.read_mail()

    def _deliver(self, mail: Mail) -> None:
        """Mail was committed here, for a run of this worker."""
        execution = self.executions.get(mail.run_id)
        if execution is not None:
            execution.deliver(mail)
        else:
            self.store.ring()  # it is about to be executed, or was

    def takes(self, run_id: RunId) -> signals.Takes | None:
        """What can be sent to a run, if it executes here."""
        execution = self.executions.get(run_id)
        if execution is None:
            return None
        agent = execution.row.agent
        return signals.Takes(agent, self.declarations.signals_of(agent))

    async def hold_queue(self, queue: str, until_us: int) -> None:
        await self.queues.hold(queue, until_us)

    async def emit(self, event: str, value: Any, *, dedup: str | None) -> str:
        return await self._emitter(event, value, dedup=dedup)

    async def start_child(self, call: Call[Any], run_id: RunId, *, parent: Parent, how: ChildStart) -> Run[Any]:
        place = QueuePlace(how.queue, how.queue_key, how.priority, how.wake_at)
        return await self.start(
            call,
            run_id=run_id,
            thread_id=how.thread_id or parent.thread_id,
            parent_id=parent.id,
            tags=how.tags,
            place=None if place == QueuePlace() else place,
            fence=parent.fence,
            budgets=parent.budgets,
        )

    def adopt_child(self, call: Call[Any], run_id: RunId) -> None:
        self.know(call.agent)
        self.started.add(run_id)

    async def cancel_child(self, run_id: RunId, *, parent: Parent) -> bool:
        try:
            return await lifecycle.cancel(self.store, run_id, by=f"run {parent.id}", note="") is not None
        except HoldfastError:  # gone, or quarantined: there is nothing to cancel
            return True

    async def cancel_children(self, run: Parent) -> None:
        for child in await lifecycle.unfinished_children(self.store, run.id):
            await self.cancel_child(child, parent=run)

    async def wake_family(self, run_id: RunId) -> None:
        self.started.update(await lifecycle.wake_family(self.store, run_id, by=f"run {run_id}", note="budget raised"))

    # starting

    async def start(
        self,
        call: Call[Any],
        *,
        run_id: str | None = None,
        thread_id: str | None = None,
        parent_id: RunId | None = None,
        tags: Mapping[str, str] | None = None,
        place: QueuePlace | None = None,
        fence: Fence | None = None,
        budgets: tuple[str, ...] = (),
    ) -> Run[Any]:
        """Store a run; execute it here at once if there is room and it has no queue. One that exists is returned."""
        self.know(call.agent)
        if not self.lease.is_open:
            await self.open()
        if not self.declarations.has(call.agent.name):
            await self.declarations.tell()
        new = NewRun.of(
            call,
            run_id=run_id,
            thread_id=thread_id,
            parent_id=parent_id,
            tags=tags or {},
            place=place,
            budgets=budgets,
        )
        has_room = parent_id is not None or self.executions.free_slots > 0
        if place is None and call.agent.queue is None and has_room and not self.queues.is_limited(DEFAULT_QUEUE):
            row = await self._creating.execute(new, self._notes.plain(call.agent), fence=fence)
        else:
            row, _ = await self._creating.put(new, fence=fence)
        self.started.add(row.id)
        return self.handle(row.id, row.thread_id)

    async def start_again(self, call: Call[R], *, run_id: str | None, thread_id: str | None) -> tuple[Run[R], bool]:
        """As `start`, and whether the run had failed or was cancelled before: then it is to be retried.

        One that fails only now is not.
        """
        before = await self.store.run(RunId(run_id)) if run_id is not None else None
        run = await self.start(call, run_id=run_id, thread_id=thread_id)
        return run, before is not None and before.status in (Status.failed, Status.cancelled)

    async def put(
        self, new: NewRun, *, by: Actor | None = None, note: str = "", act: Act | None = None
    ) -> tuple[Run[Any], bool]:
        """Store a run for whichever worker has room, unless it exists; whether it is new. `by`: who starts it."""
        row, is_new = await self._creating.put(new, by=by, note=note, act=act)
        return self.handle(row.id, row.thread_id), is_new

    # taking up

    async def take_up(
        self, run_id: RunId, *, reopen: tuple[str, str] | None = None, act: tuple[str, str] | None = None
    ) -> bool:
        """Execute a stored run here if nobody has it. `reopen` (who, why): also one that failed or was cancelled.

        `act`: who asked for it, and why. If its queue does not let it go, it waits there for whoever has room then.
        False: it does, somebody else has it, or there is nothing to do. Corrupt runs are quarantined and raise
        CorruptJournal.
        """
        if not self.lease.is_open:
            await self.open()
        return await self._taking.one(run_id, Request(act, reopen))

    async def take_many(self, rows: Sequence[RunRow], *, proofs: Mapping[WorkerId, Proof] | None = None) -> set[RunId]:
        """Claim runs, load them and execute them here, in a few transactions; those that were claimed.

        `proofs`: why the owners of those that have one do not hold them any more.
        """
        return await self._taking.many(rows, proofs=proofs or {})

    def _ended(self, execution: Execution) -> None:
        if execution.row.status in FINAL:
            self.started.discard(execution.row.id)
            if self.raised is not None and (error := execution.ended[1]) is not None:
                self.raised[execution.row.id] = error


async def _at_once() -> None:
    pass
