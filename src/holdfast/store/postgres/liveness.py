"""Which workers are dead: what is decided from what their rows and the server's sessions say.

A missing session alone proves little: it may have been lost a moment ago and be on its way back. So it must be missing
at two looks, and the worker must not have renewed its lease in between.

A lease that ran out while the server was away proves nothing, since nobody could renew it. It counts if it was renewed
since this server started, or if whoever looks has been connected for as long as a lease lasts (`is_settled`): by then
everybody who lives has renewed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from holdfast.model import Proof, WorkerId

#: Time between two looks.
APART_US = 500_000


class WorkerSigns(NamedTuple):
    """A worker, as the query `worker_signs` finds it."""

    id: WorkerId
    lease_until_ms: int
    is_expired: bool
    is_current: bool
    let_go: bool
    backend_pid: int | None
    backend_start: int | None
    is_absent: bool


class Liveness:
    """Remembers whose session was missing at the last look."""

    def __init__(self) -> None:
        self._missing: dict[WorkerId, tuple[int, WorkerSigns]] = {}

    def judge(
        self, found: Iterable[tuple[Any, ...]], *, own: Collection[WorkerId], now_us: int, is_settled: bool
    ) -> tuple[dict[WorkerId, Proof], int]:
        """The dead with the proof, and how long to wait until a second look can prove more (0: it cannot)."""
        dead: dict[WorkerId, Proof] = {}
        missing: dict[WorkerId, tuple[int, WorkerSigns]] = {}
        wait_us = 0
        for signs in map(WorkerSigns._make, found):
            if signs.id in own:
                continue
            if signs.is_absent:
                first_us, first = self._missing.get(signs.id, (now_us, signs))
                if first != signs:
                    first_us = now_us  # it renewed its lease, or has another session
                missing[signs.id] = first_us, signs
                left_us = first_us + APART_US - now_us
                if left_us <= 0:
                    dead[signs.id] = Proof.session
                    continue
                wait_us = min(wait_us or left_us, left_us)
            if signs.let_go:
                dead[signs.id] = Proof.lock
            elif signs.is_expired and (signs.is_current or is_settled):
                dead[signs.id] = Proof.lease
        self._missing = missing
        return dead, wait_us
