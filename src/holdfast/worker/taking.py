"""Taking runs up: the one way from a run that is stored to its execution here.

A run is loaded and checked, judged, claimed with what its queue allows, and begun with a note that says who has it now,
from whom and why. One that somebody asks for is loaded and judged before it is claimed: if it must not be taken up,
nothing of it changes, and who asked hears why. Of the many that a worker looks for by itself only those that it got
are loaded: others may be quicker. One of them that cannot be taken up does not keep the others from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.base.telemetry import info, warn
from holdfast.control import lifecycle
from holdfast.errors import CorruptJournal, HoldfastError
from holdfast.model import Proof, Record, RunId, RunRow, Status, WorkerId, reasons
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent
from holdfast.worker.admission import Admission
from holdfast.worker.backwards import Pasts
from holdfast.worker.claim_notes import ClaimNotes
from holdfast.worker.endings import superseded
from holdfast.worker.executions import Executions
from holdfast.worker.judging import NOBODY, Judgement, Request, judge
from holdfast.worker.leases import Lease
from holdfast.worker.loading import LoadedRun, Loading
from holdfast.worker.owners import proof_of_death

_TURN = 20  # executions begun before the others get a turn of the loop


class Taking:
    """Takes up runs of the agents that one process knows."""

    def __init__(
        self,
        store: Store,
        executions: Executions,
        *,
        agents: Mapping[str, Agent[..., Any]],
        admission: Admission,
        lease: Lease,
        notes: ClaimNotes,
        pasts: Pasts,
        started: set[RunId],
        crash_limit: int,
    ) -> None:
        self._store = store
        self._executions = executions
        self._agents = agents
        self._admission = admission
        self._lease = lease
        self._notes = notes
        self._pasts = pasts
        self._started = started
        self._crash_limit = crash_limit
        self._loading = Loading(store)

    async def one(self, run_id: RunId, asked: Request) -> bool:
        """Take up a run that somebody asked for; False if somebody else has it, or there is nothing to do.

        If its queue does not let it go, it waits there for whoever has room then, and this is False too.
        """
        if not await self._executions.has_left(run_id):
            return False
        async with self._loading.quarantining(run_id):
            if await self._proof(await self._loading.row(run_id)) is None:
                return False  # a cheap look before the whole journal is loaded
            whole = await self._loading.whole(run_id)
        before = whole.row
        judgement = self._judge(before, whole.records, asked)
        proof = None if judgement is None else await self._proof(before)
        if judgement is None or proof is None:
            return False
        await self._store.reach()
        claimed = (await self._claim([before], {} if before.owner is None else {before.owner: proof})).get(run_id)
        self._started.add(run_id)
        if claimed is None:
            await self._put_in_line(whole, judgement, asked)
            return False
        whole = replace(whole, row=replace(claimed, owner=self._lease.worker_id))
        self._begin(before, whole, judgement, proof=proof, act=asked.act)
        return True

    async def many(self, rows: Sequence[RunRow], *, proofs: Mapping[WorkerId, Proof]) -> set[RunId]:
        """Take up runs that nobody asked for, in a few transactions; those that were claimed.

        `proofs`: why the owners of those that have one do not hold them any more.
        """
        sound = await self._loading.sound([row for row in rows if row.id not in self._executions])
        if not sound:
            return set()
        ours = await self._claim(sound, proofs)
        loaded = {each.row.id: each for each in await self._store.load_many(list(ours))}
        for before in sound:
            if (claimed := ours.get(before.id)) is None:
                continue
            found = loaded.get(before.id)
            if found is not None and (found.row.owner, found.row.epoch) != (self._lease.worker_id, claimed.epoch):
                continue  # this process slept since the claim, and somebody else has taken the run over
            proof = Proof.released if before.owner is None else proofs[before.owner]
            try:
                whole = await self._loading.claimed(before.id, found)
                if (judgement := self._judge(before, whole.records, NOBODY)) is not None:
                    if before.owner is not None:
                        info("run.taken_over", run=before.id, agent=before.agent, lost=before.owner, proof=proof)
                    self._begin(before, whole, judgement, proof=proof)
            except CorruptJournal as error:
                await self._loading.quarantine(before.id, error)
            except HoldfastError as error:
                warn("take_up.failed", run=before.id, error=str(error))
            if len(self._executions) % _TURN == 0:
                await asyncio.sleep(0)
        return set(ours)

    async def _proof(self, row: RunRow) -> Proof | None:
        """How it is known that nobody has a run; None if somebody has it."""
        return Proof.released if row.owner is None else await proof_of_death(self._store, row.owner)

    def _judge(self, before: RunRow, records: list[Record], asked: Request) -> Judgement | None:
        return judge(before, records, agents=self._agents, asked=asked, crash_limit=self._crash_limit)

    async def _claim(self, rows: Sequence[RunRow], proofs: Mapping[WorkerId, Proof]) -> dict[RunId, RunRow]:
        """Claim those of the runs that are as they were read and that their queues let go; their new rows."""
        await self._notes.learn({row.owner: proofs[row.owner] for row in rows if row.owner is not None})
        return await self._admission.claim(rows, self._lease.worker_id)

    def _begin(
        self,
        before: RunRow,
        whole: LoadedRun,
        judgement: Judgement,
        *,
        proof: Proof,
        act: tuple[str, str] | None = None,
    ) -> None:
        agent = self._agents[before.agent]
        if act is None:
            note = self._notes.plain(agent, before.owner, proof=proof, is_woken=judgement.is_woken)
        else:
            accepts = reasons.is_changed_outside(before.reason)
            note = self._notes.asked(agent, before.owner, proof=proof, act=act, accepts=accepts)
        refusal = self._pasts.refusal(before, whole.records) or judgement.refusal
        self._executions.begin(whole, claim_note=note, reopen=judgement.reopen, refuse=refusal)

    async def _put_in_line(self, whole: LoadedRun, judgement: Judgement, asked: Request) -> None:
        """Have a run wait in its queue that was asked for and could not be claimed, unless somebody else has it now."""
        row = whole.row
        if judgement.reopen is not None:
            by, note = judgement.reopen
            await lifecycle.reopen(self._store, row, superseded(whole.records), by=by, note=note)
        elif asked.act is not None and row.owner is None and row.status not in (Status.waiting, Status.sleeping):
            by, note = asked.act
            await lifecycle.requeue(self._store, row.id, by=by, note=note)
