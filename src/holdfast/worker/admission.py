"""The one way to claim a run: with what its queue allows, whoever asks for it.

A worker that looks for something to do, a person who resumes or retries a run, a verdict that sets one going: none of
them passes by a pause, a limit or a rate. A run whose owner died is another matter: it has its place already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.base.clock import now_us
from holdfast.journal.chain import revised
from holdfast.model import UNBEGUN, Claim, RunId, RunRow, Status, WorkerId, following
from holdfast.store.contract import Store
from holdfast.worker.choosing import limits, permitted, starts
from holdfast.worker.queue_state import QueueState
from holdfast.worker.queues import Queues


class Admission:
    """The queues of a store, as those who want to claim runs meet them."""

    def __init__(self, store: Store, queues: Queues) -> None:
        self._store = store
        self._queues = queues

    async def claim(self, rows: Sequence[RunRow], owner: WorkerId) -> dict[RunId, RunRow]:
        """Claim those of the runs that are as they were read and that their queues let go; their new rows.

        Example: `ours = await admission.claim(chosen, lease.worker_id)`
        """
        states = await self._queues.load()
        now = now_us()
        let_go = [row for row in rows if row.owner is not None or _is_open(states, row, now)]
        granted: dict[str, int] = {}
        new = [row for row in let_go if row.owner is None]
        wanted = starts(row for row in new if (state := states.get(row.queue)) is not None and state.rate is not None)
        if wanted:
            granted = await self._queues.reserve(wanted, now)
            kept = {row.id for row in permitted(new, starts(new) | granted)}
            let_go = [row for row in let_go if row.owner is not None or row.id in kept]
        claims = [Claim(_claimed(row), row.epoch, row.owner) for row in let_go]
        bounds = limits(states)
        won: Sequence[bool] = ()
        if len(claims) == 1:
            (one,) = claims
            won = (
                await self._store.claim(
                    one.row,
                    owner=owner,
                    expected_epoch=one.expected_epoch,
                    expected_owner=one.expected_owner,
                    limits=bounds,
                ),
            )
        elif claims:
            won = await self._store.claim_many(claims, owner=owner, limits=bounds)
        ours = {claim.row.id: claim.row for claim, is_ours in zip(claims, won, strict=True) if is_ours}
        if wanted:
            used = starts(row for row in new if row.id in ours)
            await self._queues.give_back({name: count - used.get(name, 0) for name, count in granted.items()}, now)
        return ours

    async def obstacle(self, row: RunRow) -> str:
        """What keeps a run in its queue, as far as can be told."""
        state = (await self._queues.load()).get(row.queue)
        if state is None:
            return ""
        if state.paused:
            return f"queue {row.queue!r} is paused"
        return f"queue {row.queue!r} is held" if not state.is_open(now_us()) else f"queue {row.queue!r} is full"


def _is_open(states: Mapping[str, QueueState], row: RunRow, now: int) -> bool:
    state = states.get(row.queue)
    return state is None or state.is_open(now)


def _claimed(row: RunRow) -> RunRow:
    """A run's row as its next owner writes it."""
    summary = row.summary
    if UNBEGUN in summary:
        summary = {name: value for name, value in summary.items() if name != UNBEGUN}
    return revised(
        row,
        updated_at=now_us(),
        status=following(row.status, Status.running),
        reason=None,
        wake_at=None,
        epoch=row.epoch + 1,
        summary=summary,
    )
