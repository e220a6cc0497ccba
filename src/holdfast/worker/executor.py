"""Starting runs, taking them up, and executing them in this process. Which ones to take is told in `attending`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.base.config import Settings
from holdfast.base.hints import resume_hint
from holdfast.base.telemetry import info, warn
from holdfast.control import control
from holdfast.errors import CorruptJournal, HoldfastError, RunNotFound, StoreError, UsageError
from holdfast.handle.run import Run
from holdfast.journal.blobs import blob_in
from holdfast.journal.blocks import source_in
from holdfast.journal.integrity import check_blob, check_records, check_row
from holdfast.journal.recovery import PROVEN
from holdfast.journal.tombstones import is_empty, refuse_elsewhere, refuse_empty
from holdfast.model import (
    FINAL,
    Append,
    Fence,
    Kind,
    Loaded,
    Mail,
    Record,
    RunFilter,
    RunId,
    RunRow,
    Status,
    ThreadId,
    WorkerId,
)
from holdfast.running import forgotten
from holdfast.running.branches import install
from holdfast.running.context import RunContext
from holdfast.store.contract import Store
from holdfast.verbs.child import Agent, Call, ChildStart
from holdfast.worker.admission import Admission
from holdfast.worker.backwards import Pasts
from holdfast.worker.claim_notes import ClaimNotes, is_wake_up
from holdfast.worker.declaring import Declarations
from holdfast.worker.endings import superseded
from holdfast.worker.execution import Execution
from holdfast.worker.leases import Lease
from holdfast.worker.queues import Queues
from holdfast.worker.refusals import crash_loop, refuse_undone
from holdfast.worker.starting import DEFAULT_QUEUE, NewRun, Place, check_same_start
from holdfast.worker.timers import Timers

R = TypeVar("R")

_TURN = 20  # executions begun before the others get a turn of the loop
_OLD_MS = 3_600_000  # a lease that ran out this long ago is of somebody who is gone
_ROOM_S = 0.01  # for how long room for one run is kept to itself, in case there is soon room for more


class Executor:
    """Executes runs of the agents it knows; one per app."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        agents: Iterable[Agent[..., Any]],
        concurrency: int,
        emitter: Callable[..., Awaitable[str]],
    ) -> None:
        self.store = store
        self.emitter = emitter
        self.settings = settings
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="holdfast")
        self.lease = Lease(store, settings)
        self.timers = Timers()
        self.pasts = Pasts()
        self.queues = Queues(store)
        self.admission = Admission(store, self.queues)
        self.agents: dict[str, Agent[..., Any]] = {}
        self.concurrency = concurrency
        self.is_closing = False
        self.started: set[RunId] = set()  #: runs that were started or resumed by this app, and have not ended
        self.executes = False  #: or is this process a client?
        self.nudge: Callable[[], None] = store.ring  #: look at everything now
        self.quiet: Callable[[], Awaitable[None]] = _at_once  #: returns when nothing happens here but waiting
        self.raised: dict[RunId, BaseException] | None = None  #: what failed runs raised, if somebody wants to see it
        self._executions: dict[RunId, Execution] = {}
        self._creating: set[asyncio.Future[RunRow]] = set()
        self._roots = 0  # executions of runs that are nobody's children
        self._was_full = False
        self._telling_room: asyncio.TimerHandle | None = None
        self._notes = ClaimNotes(self.lease, store)
        self._opening = asyncio.Lock()
        self.declarations = Declarations(store, self.agents)
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
            await self.forget_dead_workers()

    async def forget_dead_workers(self) -> None:
        """Workers that died and own nothing any more are of no use to anybody."""
        dead = await self.store.dead_workers()
        old_ms = self.store.lease_clock_ms() - _OLD_MS
        old = {worker.id for worker in await self.store.workers() if worker.lease_until_ms < old_ms} if dead else set()
        for worker_id, proof in dead.items():
            owned = await self.store.runs(RunFilter(orphaned_from=frozenset({worker_id}), limit=1))
            if (proof in PROVEN or worker_id in old) and not owned:
                await self.store.remove_worker(worker_id)

    async def close(self, *, drain_s: float = 0.0) -> None:
        """Stop executing; runs that are not finished are left for whoever comes next."""
        self.is_closing = True
        while self._executions or self._creating:  # one that is being handed over may still start another
            if self._creating:
                await asyncio.wait(set(self._creating))
            await asyncio.gather(*(execution.hand_over(drain_s) for execution in list(self._executions.values())))
        self.timers.close()
        if self._telling_room is not None:
            self._telling_room.cancel()
        self.threads.shutdown()
        await self.lease.close()

    # what runs need from their process

    def handle(self, run_id: RunId, thread_id: ThreadId) -> Run[Any]:
        return Run(self.store, run_id, thread_id, here=self)

    def local(self, run_id: RunId) -> Execution | None:
        """The execution of a run in this process, if there is one."""
        return self._executions.get(run_id)

    @property
    def executions(self) -> list[Execution]:
        return list(self._executions.values())

    @property
    def is_starting(self) -> bool:
        """Is a run being stored as this worker's that does not execute yet?"""
        return bool(self._creating)

    @property
    def is_alone(self) -> bool:
        return len(self._executions) == 1

    @property
    def free_slots(self) -> int:
        """How many more runs may execute here. Children do not count: their parents could not go on without them."""
        return 0 if self.is_closing else self.concurrency - self._roots

    def has_lease(self) -> bool:
        return self.lease.remaining_s() > self.settings.lease_s * 0.2

    async def wait_lease(self) -> None:
        while not self.has_lease():  # noqa: ASYNC110 - renewed by another thread
            await asyncio.sleep(self.settings.renew_s / 10)

    async def read_mail(self, run_id: RunId) -> None:
        execution = self._executions.get(run_id)
        if execution is not None:
            await execution.read_mail()

    def _deliver(self, mail: Mail) -> None:
        """Mail was committed here, for a run of this worker."""
        execution = self._executions.get(mail.run_id)
        if execution is not None:
            execution.deliver(mail)
        else:
            self.store.ring()  # it is about to be executed, or was

    def takes(self, run_id: RunId) -> control.Takes | None:
        """What can be sent to a run, if it executes here."""
        execution = self._executions.get(run_id)
        if execution is None:
            return None
        agent = execution.row.agent
        return control.Takes(agent, self.declarations.signals_of(agent))

    async def hold_queue(self, queue: str, until_us: int) -> None:
        await self.queues.hold(queue, until_us)

    async def emit(self, event: str, value: Any, *, dedup: str | None) -> str:
        return await self.emitter(event, value, dedup=dedup)

    async def start_child(self, call: Call[Any], run_id: RunId, *, parent: RunContext, how: ChildStart) -> Run[Any]:
        place = Place(how.queue, how.queue_key, how.priority, how.wake_at)
        return await self.start(
            call,
            run_id=run_id,
            thread_id=how.thread_id or parent.thread_id,
            parent_id=parent.id,
            tags=how.tags,
            place=None if place == Place() else place,
            fence=parent.fence,
        )

    def adopt_child(self, call: Call[Any], run_id: RunId) -> None:
        self.know(call.agent)
        self.started.add(run_id)

    async def cancel_child(self, run_id: RunId, *, parent: RunContext) -> bool:
        try:
            return await control.cancel(self.store, run_id, by=f"run {parent.id}", note="") is not None
        except HoldfastError:  # gone, or quarantined: there is nothing to cancel
            return True

    async def cancel_children(self, run: RunContext) -> None:
        for child in await control.unfinished_children(self.store, run.id):
            await self.cancel_child(child, parent=run)

    # starting

    async def start(
        self,
        call: Call[Any],
        *,
        run_id: str | None = None,
        thread_id: str | None = None,
        parent_id: RunId | None = None,
        tags: Mapping[str, str] | None = None,
        place: Place | None = None,
        fence: Fence | None = None,
    ) -> Run[Any]:
        """Store a run; execute it here at once if there is room and it has no queue. One that exists is returned."""
        self.know(call.agent)
        if not self.lease.is_open:
            await self.open()
        if not self.declarations.has(call.agent.name):
            await self.declarations.tell()
        new = NewRun.of(call, run_id=run_id, thread_id=thread_id, parent_id=parent_id, tags=tags or {}, place=place)
        is_limited = self.queues.is_limited(DEFAULT_QUEUE)
        has_room = (parent_id is not None or self.free_slots > 0) and not is_limited
        if place is None and call.agent.queue is None and has_room:
            claim = (self.lease.worker_id, self._notes.plain(call.agent))
            append = new.append(self.settings.inline_limit, claim=claim)
            row = await self._create_and_execute(append, fence)
            await check_same_start(self.store, row, new)
            handle = self.handle(row.id, row.thread_id)
        else:
            handle, _ = await self.put(new, fence=fence)
        self.started.add(handle.id)
        return handle

    async def start_again(self, call: Call[R], *, run_id: str | None, thread_id: str | None) -> tuple[Run[R], bool]:
        """As `start`, and whether the run had failed or was cancelled before: then it is to be retried.

        One that fails only now is not.
        """
        before = await self.store.run(RunId(run_id)) if run_id is not None else None
        run = await self.start(call, run_id=run_id, thread_id=thread_id)
        return run, before is not None and before.status in (Status.failed, Status.cancelled)

    async def _create_and_execute(self, append: Append, fence: Fence | None) -> RunRow:
        """Whoever starts it may be cancelled; once it is stored as this worker's own, it is executed all the same."""

        def execute(row: RunRow) -> None:
            if row.nonce == append.row.nonce:
                self._execute(row, list(append.records), blobs=dict(append.blobs))

        if fence is None and not self._executions and self.store.create_inline(append):
            execute(append.row)
            return append.row
        creating = asyncio.ensure_future(self.store.create(append, owner=self.lease.worker_id, fence=fence))
        self._creating.add(creating)
        creating.add_done_callback(self._creating.discard)
        try:
            row = await asyncio.shield(creating)
        except asyncio.CancelledError:
            creating.add_done_callback(lambda t: None if t.cancelled() or t.exception() else execute(t.result()))
            raise
        execute(row)
        return row

    async def put(self, new: NewRun, *, fence: Fence | None = None) -> tuple[Run[Any], bool]:
        """Store a run for whichever worker has room, unless it exists; whether it is new."""
        append = new.append(self.settings.inline_limit)
        row = await self.store.create(append, owner=None, fence=fence)
        is_new = row.nonce == append.row.nonce
        if not is_new:
            await check_same_start(self.store, row, new)
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
        if not await self._has_left(run_id):
            return False
        if not self.lease.is_open:
            await self.open()
        async with self._quarantining(run_id):
            if await self._is_held(run_id):
                return False
            row, records, blobs = await self.load(run_id)
            mail = await self.store.mail(run_id, after=0) if row.mail else []
        if row.status is Status.quarantined or (row.status in FINAL and (reopen is None or row.status is Status.done)):
            return False
        refuse_elsewhere(row)
        if reopen is not None:
            refuse_empty(row)
            refuse_undone(row, records)
        agent = self.agents.get(row.agent)
        if agent is None:
            raise UsageError(
                f"Run {run_id} is of agent {row.agent!r}, which this process does not know. "
                f"Pass it to hf.connect(agents=[…]), or use `{resume_hint(run_id, source_in(records))}`."
            )
        if row.status not in FINAL:
            # A retry that died between its claim and its first record: the journal still ends where the run did.
            last = next((r for r in reversed(records) if r.kind in (Kind.finished, Kind.reopened)), None)
            is_cut_off = last is not None and last.kind == Kind.finished
            reopen = (reopen or ("unknown", "a retry that was cut off")) if is_cut_off else None
        proof = "released" if row.owner is None else await self._proof_of_death(row.owner)
        if proof is None:
            return False
        await self._notes.learn([row.owner], proof=proof)
        await self.store.reach()
        claimed = (await self.admission.claim([row], self.lease.worker_id)).get(run_id)
        if claimed is None:
            await self._put_in_line(row, records, reopen, act)
            return False
        refusal = self.pasts.refusal(row, records)
        if refusal is None and row.owner is not None and row.claims >= self.settings.crash_limit:
            refusal = crash_loop(row, records)
        is_woken = reopen is None and is_wake_up(row)
        self._execute(
            replace(claimed, owner=self.lease.worker_id),
            records,
            blobs=blobs,
            mail=mail,
            claim_note=self._notes.plain(agent, row.owner, proof, is_woken=is_woken)
            if act is None
            else self._notes.asked(agent, row.owner, proof, act),
            reopen=reopen,
            refuse=refusal,
        )
        self.started.add(run_id)
        return True

    async def _has_left(self, run_id: RunId) -> bool:
        """Is no execution of it here any more? One that was given up already, as anybody can read, is waited for."""
        while (execution := self._executions.get(run_id)) is not None:
            row = await self.store.run(run_id)
            if row is None or row.owner is not None:
                return False
            if self._executions.get(run_id) is execution:
                await execution.wait_ended()
        return True

    async def _put_in_line(
        self, row: RunRow, records: list[Record], reopen: tuple[str, str] | None, act: tuple[str, str] | None
    ) -> None:
        """Have a run wait in its queue that was asked for and could not be claimed, unless somebody else has it now."""
        self.started.add(row.id)
        if reopen is not None:
            await control.reopen(self.store, row, superseded(records), by=reopen[0], note=reopen[1])
        elif act is not None and row.owner is None and row.status not in (Status.waiting, Status.sleeping):
            await control.requeue(self.store, row.id, by=act[0], note=act[1])

    async def take_many(self, rows: Sequence[RunRow], *, proofs: Mapping[WorkerId, str] | None = None) -> set[RunId]:
        """Claim runs, load them and execute them here, in a few transactions; those that were claimed.

        `proofs`: why the owners of those that have one do not hold them any more.
        """
        sound = []
        for row in rows:
            if row.id in self._executions:
                continue
            try:
                check_row(row)
            except CorruptJournal as error:
                await self._quarantine(row.id, error)
                continue
            sound.append(row)
        if not sound:
            return set()
        await self._notes.learn(row.owner for row in rows if row.owner is not None)
        before = {row.id: row for row in rows}
        ours = {run_id: row.epoch for run_id, row in (await self.admission.claim(sound, self.lease.worker_id)).items()}
        loaded = {each.row.id: each for each in await self.store.load_many(list(ours))}
        for run_id, epoch in ours.items():
            found = loaded.get(run_id)
            if found is not None and (found.row.owner, found.row.epoch) != (self.lease.worker_id, epoch):
                continue  # this process slept since the claim, and somebody else has taken the run over
            try:
                await self._execute_claimed(before[run_id], found, proofs or {})
            except CorruptJournal as error:
                await self._quarantine(run_id, error)
            except HoldfastError as error:  # one run that cannot be taken up does not keep the others from it
                warn("take_up.failed", run=run_id, error=str(error))
            if len(self._executions) % _TURN == 0:
                await asyncio.sleep(0)
        return set(ours)

    async def _execute_claimed(self, before: RunRow, loaded: Loaded | None, proofs: Mapping[WorkerId, str]) -> None:
        if loaded is None:
            await self.load(before.id)  # raises what keeps it from being read
            raise CorruptJournal(f"Run {before.id} cannot be read.", run_id=before.id)
        row, records, mail = loaded
        blobs = await self._verified(row, records, is_own=True)
        last = next((r for r in reversed(records) if r.kind in (Kind.finished, Kind.reopened)), None)
        is_cut_off = last is not None and last.kind == Kind.finished
        proof = "released" if before.owner is None else proofs[before.owner]
        if before.owner is not None:
            info("run.taken_over", run=row.id, agent=row.agent, lost=before.owner, proof=proof)
        is_loop = before.owner is not None and before.claims >= self.settings.crash_limit
        self._execute(
            row,
            records,
            blobs=blobs,
            mail=mail,
            claim_note=self._notes.plain(
                self.agents[row.agent], before.owner, proof, is_woken=not is_cut_off and is_wake_up(before)
            ),
            reopen=("unknown", "a retry that was cut off") if is_cut_off else None,
            refuse=self.pasts.refusal(row, records) or (crash_loop(before, records) if is_loop else None),
        )

    async def _quarantine(self, run_id: RunId, error: CorruptJournal) -> None:
        warn("run.quarantined", run=run_id, error=str(error))
        with suppress(StoreError):
            await self.store.quarantine(run_id, str(error))

    async def _is_held(self, run_id: RunId) -> bool:
        """Does a living process own the run? A cheap look before the whole journal is loaded."""
        row = await self.store.run(run_id)
        if row is None:
            raise RunNotFound(f"There is no run {run_id} in {self.store.url}.")
        return row.owner is not None and await self._proof_of_death(row.owner) is None

    async def _proof_of_death(self, owner: WorkerId) -> str | None:
        """Why a worker does not hold its runs any more; None if it does."""
        dead = await self.store.dead_workers()
        if owner in dead:
            return dead[owner]
        return None if any(worker.id == owner for worker in await self.store.workers()) else "gone"

    @asynccontextmanager
    async def _quarantining(self, run_id: RunId) -> AsyncIterator[None]:
        """A run whose data turns out to be corrupt is quarantined; others are not affected."""
        try:
            yield
        except CorruptJournal as error:
            await self._quarantine(run_id, error)
            raise

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record], dict[str, bytes]]:
        """A run with all it has, verified; CorruptJournal if it is not whole."""
        loaded = await self.store.load(run_id)
        if loaded is None:
            raise RunNotFound(f"There is no run {run_id} in {self.store.url}.")
        row, records = loaded
        if row.status is Status.quarantined or is_empty(row):
            return row, records, {}
        return row, records, await self._verified(row, records)

    async def _verified(self, row: RunRow, records: list[Record], *, is_own: bool = False) -> dict[str, bytes]:
        """The large values of a run; CorruptJournal if anything of it is not what was written.

        `is_own`: the row was checked before this process itself wrote it, a moment ago.
        """
        if not is_own:
            check_row(row)
        check_records(row, records)
        wanted = {digest for r in records for text in (r.payload, r.args) if (digest := blob_in(text)) is not None}
        found = await self.store.blobs(row.id, sorted(wanted)) if wanted else {}
        return {digest: check_blob(row.id, digest, found.get(digest)) for digest in wanted}

    def _execute(
        self,
        row: RunRow,
        records: list[Record],
        *,
        blobs: dict[str, bytes],
        mail: Sequence[Mail] = (),
        claim_note: str | None = None,
        reopen: tuple[str, str] | None = None,
        refuse: dict[str, Any] | None = None,
    ) -> None:
        agent = self.agents[row.agent]
        execution = Execution(
            self, agent, row, records, blobs=blobs, mail=mail, claim_note=claim_note, reopen=reopen, refuse=refuse
        )
        self._executions[row.id] = execution
        self._roots += row.parent_id is None
        self._was_full = self._was_full or self.free_slots <= 0
        execution.begin(on_end=lambda: self._ended(row.id, execution))

    def _ended(self, run_id: RunId, execution: Execution) -> None:
        self._roots -= execution.row.parent_id is None
        if self._executions.get(run_id) is execution:
            del self._executions[run_id]
        if execution.row.status in FINAL:
            self.started.discard(run_id)
            if self.raised is not None and (error := execution.ended[1]) is not None:
                self.raised[run_id] = error
        if self.queues.is_limited(execution.row.queue):
            self.store.ring()  # there may be runs that waited for room in the queue
        elif self._was_full:
            self._have_room()

    def _have_room(self) -> None:
        """There may be runs that waited for room here. To look for one costs as much as to look for a hundred."""
        if self.free_slots * 4 >= self.concurrency:
            self._tell_room()
        elif self._telling_room is None:
            self._telling_room = asyncio.get_running_loop().call_later(_ROOM_S, self._tell_room)

    def _tell_room(self) -> None:
        if self._telling_room is not None:
            self._telling_room.cancel()
        self._telling_room, self._was_full = None, False
        self.store.ring()


async def _at_once() -> None:
    pass
