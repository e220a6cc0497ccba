"""Claiming runs and executing them in this process."""

from __future__ import annotations

import asyncio
import json
import platform
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from holdfast.branches import install
from holdfast.clock import now_us
from holdfast.config import Settings
from holdfast.context import RunContext
from holdfast.errors import ConflictingStart, CorruptJournal, RunNotFound, StoreError, UsageError
from holdfast.handle import Run
from holdfast.ids import new_run_ids
from holdfast.journal.blobs import blob_in, spilled
from holdfast.journal.integrity import check_blob, check_records, check_row, first_hash, record_hash, seal_row
from holdfast.journal.recovery import PROVEN
from holdfast.model import FINAL, Append, Kind, Record, RunFilter, RunId, RunRow, Status, ThreadId, WorkerId
from holdfast.store.base import Store
from holdfast.telemetry import warn
from holdfast.verbs.child import Agent, Call
from holdfast.version import VERSION
from holdfast.worker.execution import Execution
from holdfast.worker.leases import Lease

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Executor:
    """Executes runs of the agents it knows; one per app."""

    def __init__(self, store: Store, settings: Settings, agents: Iterable[Agent[..., Any]], concurrency: int) -> None:
        self.store = store
        self.settings = settings
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="holdfast")
        self.lease = Lease(store, settings)
        self.agents: dict[str, Agent[..., Any]] = {}
        self._first_claims: dict[str, str] = {}
        self._executions: dict[RunId, Execution] = {}
        self._slots = asyncio.Semaphore(concurrency)
        self._opening = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None
        self._sweeps = False
        for agent in agents:
            self.know(agent)
            self._sweeps = True

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
            await self.lease.open()
            await self._forget_dead_workers()
            if self._sweeps:
                await self._sweep()
                self._sweeper = asyncio.create_task(self._sweep_forever())

    async def _forget_dead_workers(self) -> None:
        """Workers that died and own nothing any more are of no use to anybody."""
        for worker_id, proof in (await self.store.dead_workers()).items():
            owned = await self.store.runs(RunFilter(orphaned_from=frozenset({worker_id}), limit=1))
            if proof in PROVEN and not owned:
                await self.store.remove_worker(worker_id)

    async def close(self) -> None:
        """Stop executing; runs that are not finished are left for whoever comes next."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        await asyncio.gather(*(execution.hand_over() for execution in list(self._executions.values())))
        self.threads.shutdown()
        await self.lease.close()

    # what runs need from their process

    def handle(self, run_id: RunId, thread_id: ThreadId) -> Run[Any]:
        return Run(self.store, run_id, thread_id, here=self)

    @property
    def is_alone(self) -> bool:
        return len(self._executions) == 1

    def has_lease(self) -> bool:
        return self.lease.remaining_s() > self.settings.lease_s * 0.2

    async def wait_lease(self) -> None:
        while not self.has_lease():  # noqa: ASYNC110 - renewed by another thread
            await asyncio.sleep(self.settings.renew_s / 10)

    async def start_child(
        self, call: Call[Any], run_id: RunId, *, parent: RunContext, thread_id: str | None, tags: Mapping[str, str]
    ) -> Run[Any]:
        return await self.start(
            call, run_id=run_id, thread_id=thread_id or parent.thread_id, parent_id=parent.id, tags=tags
        )

    # starting

    async def start(
        self,
        call: Call[Any],
        *,
        run_id: str | None = None,
        thread_id: str | None = None,
        parent_id: RunId | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Run[Any]:
        """Store a run and execute it here; one that has this id already is returned, and taken up if nobody has it."""
        self.know(call.agent)
        if not self.lease.is_open:
            await self.open()
        args_text, args_digest = call.encoded
        append = self._new_run(call, run_id, thread_id, parent_id, tags or {}, args_text, args_digest)
        row = await self.store.create(append, owner=self.lease.worker_id, inline=not self._executions)
        if row.nonce == append.row.nonce:
            self._execute(row, list(append.records), blobs=dict(append.blobs))
        else:
            check_same_start(row, call.agent.name, args_digest)
            if row.status in (Status.running, Status.queued):
                await self.take_up(row.id)
        return self.handle(row.id, row.thread_id)

    def _new_run(
        self,
        call: Call[Any],
        run_id: str | None,
        thread_id: str | None,
        parent_id: RunId | None,
        tags: Mapping[str, str],
        args_text: str,
        args_digest: str,
    ) -> Append:
        new_id, new_thread, nonce = new_run_ids()
        chosen = RunId(checked_id(run_id, "id") if run_id is not None else new_id)
        thread = ThreadId(checked_id(thread_id, "thread_id") if thread_id is not None else new_thread)
        at, agent = now_us(), call.agent
        base = first_hash(chosen, nonce)
        created = _encode(
            {
                "thread": thread,
                "version": agent.version,
                "code": agent.code,
                "parent": parent_id,
                "tags": dict(tags),
                "holdfast": VERSION,
            }
        )
        records: list[Record] = []
        previous = base
        blobs: tuple[tuple[str, bytes], ...] = ()
        stored_args = args_text
        if len(args_text) > self.settings.inline_limit:
            stored_args, blob = spilled(args_text)
            blobs = (blob,)
        for seq, (kind, name, args, payload) in enumerate(
            (
                (Kind.created, agent.name, stored_args, created),
                (Kind.claimed, self.lease.worker_id, None, self._first_claim(agent)),
            ),
            start=1,
        ):
            digest = args_digest if kind is Kind.created else ""
            previous = record_hash(previous, seq, 1, 0, "", kind, name, 1, 0, at, 0, digest, args, payload)
            records.append(Record(seq, 1, 0, "", kind, name, 1, 0, at, 0, digest, args, payload, previous))
        row = RunRow(
            id=chosen,
            thread_id=thread,
            agent=agent.name,
            nonce=nonce,
            parent_id=parent_id,
            created_at=at,
            updated_at=at,
            status=Status.running,
            reason=None,
            generation=0,
            epoch=1,
            head_seq=len(records),
            head_hash=previous,
            input_digest=args_digest,
            summary={},
            owner=self.lease.worker_id,
            claims=1,
            mail=0,
            digest="",
        )
        return Append(seal_row(row), 0, base, tuple(records), blobs)

    def _first_claim(self, agent: Agent[..., Any]) -> str:
        note = self._first_claims.get(agent.name)
        if note is None:
            note = self._first_claims[agent.name] = self._claim_note(agent, None, "released")
        return note

    def _claim_note(
        self, agent: Agent[..., Any], lost: WorkerId | None, proof: str, act: tuple[str, str] | None = None
    ) -> str:
        note = {
            "pid": self.lease.pid,
            "host": self.lease.host,
            "boot": self.lease.boot_id,
            "python": platform.python_version(),
            "code": agent.code,
            "source": agent.source,
            "holdfast": VERSION,
            "lost": lost,
            "proof": proof,
        }
        if act is not None:
            note["by"], note["note"] = act
        return json.dumps(note)

    # taking up

    async def take_up(
        self, run_id: RunId, *, reopen: tuple[str, str] | None = None, act: tuple[str, str] | None = None
    ) -> bool:
        """Execute a stored run here if nobody has it. `reopen` (who, why): also one that failed or was cancelled.

        `act`: who asked for it, and why; None if the process found it by itself.
        False: somebody else has it, or there is nothing to do. Corrupt runs are quarantined and raise CorruptJournal.
        """
        if run_id in self._executions:
            return False
        if not self.lease.is_open:
            await self.open()
        async with self._quarantining(run_id):
            if await self._is_held(run_id):
                return False
            row, records, blobs = await self.load(run_id)
        if row.status is Status.quarantined or (row.status in FINAL and (reopen is None or row.status is Status.done)):
            return False
        agent = self.agents.get(row.agent)
        if agent is None:
            raise UsageError(
                f"Run {run_id} is of agent {row.agent!r}, which this process does not know. "
                f"Pass it to hf.connect(agents=[…]), or use `holdfast resume FILE:{row.agent} {run_id}`."
            )
        if row.status not in FINAL:
            # A retry that died between its claim and its first record: the journal still ends where the run did.
            last = next((r for r in reversed(records) if r.kind in (Kind.finished, Kind.reopened)), None)
            is_cut_off = last is not None and last.kind == Kind.finished
            reopen = (reopen or ("unknown", "a retry that was cut off")) if is_cut_off else None
        proof = "released" if row.owner is None else await self._proof_of_death(row.owner)
        if proof is None:
            return False
        claimed = seal_row(replace(row, status=Status.running, reason=None, epoch=row.epoch + 1, updated_at=now_us()))
        if not await self.store.claim(
            claimed, owner=self.lease.worker_id, expected_epoch=row.epoch, expected_owner=row.owner
        ):
            return False
        loop_reason = None
        if row.owner is not None and row.claims >= self.settings.crash_limit:
            loop_reason = crash_loop(row, records)
        self._execute(
            replace(claimed, owner=self.lease.worker_id),
            records,
            blobs=blobs,
            claim_note=self._claim_note(self.agents[row.agent], row.owner, proof, act),
            reopen=reopen,
            refuse=loop_reason,
        )
        return True

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
            with suppress(StoreError):
                await self.store.quarantine(run_id, str(error))
            raise

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record], dict[str, bytes]]:
        """A run with all it has, verified; CorruptJournal if it is not whole."""
        loaded = await self.store.load(run_id)
        if loaded is None:
            raise RunNotFound(f"There is no run {run_id} in {self.store.url}.")
        row, records = loaded
        if row.status is Status.quarantined:
            return row, records, {}
        check_row(row)
        check_records(row, records)
        wanted = {digest for r in records for text in (r.payload, r.args) if (digest := blob_in(text)) is not None}
        found = await self.store.blobs(run_id, sorted(wanted)) if wanted else {}
        return row, records, {digest: check_blob(run_id, digest, found.get(digest)) for digest in wanted}

    def _execute(
        self,
        row: RunRow,
        records: list[Record],
        *,
        blobs: dict[str, bytes],
        claim_note: str | None = None,
        reopen: tuple[str, str] | None = None,
        refuse: dict[str, Any] | None = None,
    ) -> None:
        agent = self.agents[row.agent]
        execution = Execution(
            self, agent, row, records, blobs=blobs, claim_note=claim_note, reopen=reopen, refuse=refuse
        )
        self._executions[row.id] = execution
        slots = self._slots if row.parent_id is None else None
        execution.begin(slots, on_end=lambda: self._ended(row.id, execution))

    def _ended(self, run_id: RunId, execution: Execution) -> None:
        if self._executions.get(run_id) is execution:
            del self._executions[run_id]
        if execution.has_mail:
            self._background(self.take_up(run_id))

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(
            lambda t: (
                None if t.cancelled() or t.exception() is None else warn("take_up.failed", error=str(t.exception()))
            )
        )

    def local(self, run_id: RunId) -> Execution | None:
        """The execution of a run in this process, if there is one."""
        return self._executions.get(run_id)

    # runs that others left

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.sweep_s)
            try:
                await self._sweep()
            except StoreError as error:
                warn("sweep.failed", error=str(error))

    async def _sweep(self) -> None:
        """Take up the runs of processes that died, and those that were given back."""
        dead = await self.store.dead_workers()
        left: list[RunRow] = []
        if dead:
            left += await self.store.runs(RunFilter(orphaned_from=frozenset(dead), limit=200))
        left += await self.store.runs(RunFilter(status=frozenset({Status.queued}), limit=200))
        doubtful = await self.store.runs(RunFilter(status=frozenset({Status.in_doubt}), limit=200))
        left += [row for row in doubtful if row.mail > (row.reason or {}).get("mail", 0)]
        left += await self._woken_by_children()
        for row in left:
            if row.agent in self.agents and row.status not in FINAL and row.id not in self._executions:
                try:
                    await self.take_up(row.id)
                except CorruptJournal as error:
                    warn("run.quarantined", run=row.id, error=str(error))

    async def _woken_by_children(self) -> list[RunRow]:
        woken = []
        for row in await self.store.runs(RunFilter(status=frozenset({Status.waiting}), limit=200)):
            for child in (row.reason or {}).get("children", []):
                found = await self.store.run(RunId(child))
                if found is not None and found.status in FINAL:
                    woken.append(row)
                    break
        return woken


def check_same_start(row: RunRow, agent: str, args_digest: str) -> None:
    """A second start with the same id must mean the same run."""
    if row.agent != agent:
        raise ConflictingStart(f"Run {row.id} exists and is of agent {row.agent!r}, not {agent!r}. Use another id.")
    if row.input_digest != args_digest:
        raise ConflictingStart(
            f"Run {row.id} ({agent}) exists with other arguments. Use another id, or the same arguments."
        )


def checked_id(value: str, what: str) -> str:
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= 200
        or not value.isprintable()
        or "@" in value
        or value != value.strip()
    ):
        raise UsageError(f"{what}= takes 1 to 200 printable characters without '@'; got {value!r}.")
    return value


def crash_loop(row: RunRow, records: list[Record]) -> dict[str, Any]:
    last = next((r.key for r in reversed(records) if r.key), "")
    return {
        "why": "crash loop",
        "detail": f"{row.claims} processes took this run and died without getting further; "
        f"the last call recorded is {last or 'none'}.",
        "advice": f"Find out what kills the process, then `holdfast resume {row.id}`.",
    }
