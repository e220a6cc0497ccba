"""What a claim writes into a run's journal: who took it, from whom, how it is known that nobody has it, and why."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from typing import Any

from holdfast.base.clock import now_us
from holdfast.model import RunRow, WorkerId
from holdfast.store.contract import Store
from holdfast.verbs.child import Agent
from holdfast.version import VERSION
from holdfast.worker.leases import Lease

#: Whose clock of leases is not the one of today.
_OTHER_BOOT = "boot"


def is_wake_up(row: RunRow) -> bool:
    """Whether a run is claimed because what it waited for has come. Then nothing was cut off, and it is no resume."""
    return row.owner is None and row.head_seq > 1 and (row.reason or {}).get("why") != "handed over"


class ClaimNotes:
    """The notes of one worker. The same text for all runs of an agent that are taken alike: whoever reads them relies
    on that."""

    def __init__(self, lease: Lease, store: Store) -> None:
        self._lease = lease
        self._store = store
        self._made: dict[tuple[str, WorkerId | None, str, bool], str] = {}
        self._renewals: dict[WorkerId, int] = {}

    def plain(
        self, agent: Agent[..., Any], lost: WorkerId | None = None, proof: str = "released", *, is_woken: bool = False
    ) -> str:
        """A claim that nobody asked for."""
        key = (agent.name, lost, proof, is_woken)
        note = self._made.get(key)
        if note is None:
            note = self._made[key] = json.dumps(self._facts(agent, lost, proof) | ({"woken": True} if is_woken else {}))
        return note

    def asked(self, agent: Agent[..., Any], lost: WorkerId | None, proof: str, act: tuple[str, str]) -> str:
        """A claim that somebody asked for: who, and why."""
        return json.dumps(self._facts(agent, lost, proof) | {"by": act[0], "note": act[1]})

    async def learn(self, lost: Iterable[WorkerId | None], *, proof: str | None = None) -> None:
        """Find out when workers that are dead were last heard of; their rows go soon."""
        wanted = {worker_id for worker_id in lost if worker_id is not None} - self._renewals.keys()
        if not wanted or proof == _OTHER_BOOT:
            return
        clock_ms, now = self._store.lease_clock_ms(), now_us()
        for worker in await self._store.workers():
            if worker.id in wanted:
                ago_ms = clock_ms + self._lease.lease_ms - worker.lease_until_ms
                self._renewals[worker.id] = now - max(0, ago_ms) * 1000

    def _facts(self, agent: Agent[..., Any], lost: WorkerId | None, proof: str) -> dict[str, Any]:
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
