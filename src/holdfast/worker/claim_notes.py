"""What a claim writes into a run's journal: who took it, from whom, how it is known that nobody has it, and why."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from typing import Any

from holdfast.base.clock import now_us
from holdfast.model import Proof, RunRow, WorkerId
from holdfast.model.reasons import HandedOver
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent
from holdfast.version import VERSION
from holdfast.worker.leases import Lease

#: Whose clock of leases is not the one of today.
_OTHER_BOOT = Proof.boot


def is_wake_up(row: RunRow) -> bool:
    """Whether a run is claimed because what it waited for has come. Then nothing was cut off, and it is no resume."""
    return row.owner is None and row.head_seq > 1 and not isinstance(row.reason, HandedOver)


class ClaimNotes:
    """The notes of one worker. The same text for all runs of an agent that are taken alike: whoever reads them relies
    on that."""

    def __init__(self, lease: Lease, store: Store) -> None:
        self._lease = lease
        self._store = store
        self._made: dict[tuple[str, WorkerId | None, Proof, bool], str] = {}
        self._renewals: dict[WorkerId, int] = {}

    def plain(
        self,
        agent: Agent[..., Any],
        lost: WorkerId | None = None,
        *,
        proof: Proof = Proof.released,
        is_woken: bool = False,
    ) -> str:
        """A claim that nobody asked for."""
        key = (agent.name, lost, proof, is_woken)
        note = self._made.get(key)
        if note is None:
            facts = self._facts(agent, lost, proof=proof) | ({"woken": True} if is_woken else {})
            note = self._made[key] = json.dumps(facts)
        return note

    def asked(
        self, agent: Agent[..., Any], lost: WorkerId | None, *, proof: Proof, act: tuple[str, str], accepts: bool
    ) -> str:
        """A claim that somebody asked for: who, and why. `accepts`: they saw that something changed outside."""
        said = {"by": act[0], "note": act[1], **({"accepts": True} if accepts else {})}
        return json.dumps(self._facts(agent, lost, proof=proof) | said)

    async def learn(self, proofs: Mapping[WorkerId, Proof]) -> None:
        """Find out when workers that are dead, as these proofs say, were last heard of; their rows go soon."""
        wanted = {lost for lost, proof in proofs.items() if proof != _OTHER_BOOT} - self._renewals.keys()
        if not wanted:
            return
        clock_ms, now = self._store.lease_clock_ms(), now_us()
        for worker in await self._store.workers():
            if worker.id in wanted:
                ago_ms = clock_ms + self._lease.lease_ms - worker.lease_until_ms
                self._renewals[worker.id] = now - max(0, ago_ms) * 1000

    def _facts(self, agent: Agent[..., Any], lost: WorkerId | None, *, proof: Proof) -> dict[str, Any]:
        facts = {
            "pid": self._lease.pid,
            "host": self._lease.host,
            "boot": self._lease.boot_id,
            "python": platform.python_version(),
            "code": agent._code,
            "source": agent._source,
            "holdfast": VERSION,
            "lost": lost,
            "proof": proof,
        }
        if lost in self._renewals and proof != _OTHER_BOOT:
            facts["renewed"] = self._renewals[lost]
        return facts
