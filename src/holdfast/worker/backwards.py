"""A history that went backwards: a run no longer has what its owner was told is on disk.

A fail-over that lost commits does that, and a backup that was put in place under a live worker. Whoever executed the
run on from there would do again what had been done since, without knowing of it. The process that lost the run is the
only one that knows. So it looks, whenever the store refuses its writes and before it takes the run up again, whether
the last record that it was told is stored is there. A take-over keeps it. If it is gone, the run is blocked, whoever
has it by now, with what was done. That is said once: a person who has the run go on knows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from holdfast.base.data import brisk
from holdfast.base.telemetry import warn
from holdfast.control import lifecycle
from holdfast.journal.journal import Journal
from holdfast.journal.tombstones import is_elsewhere, is_empty
from holdfast.model import Kind, Record, RunId, RunRow, Status
from holdfast.model.diagnoses import Backwards, Head
from holdfast.model.reasons import Blocked
from holdfast.store.contract import Store

_SHOWN = 20  # effects in a sentence, and of a run that is not executed any more
_KEPT = 10_000  # runs


@brisk
class Acknowledged:
    """What the process that executed a run was told is on disk."""

    run_id: RunId
    epoch: int
    seq: int
    hash: bytes
    acted: tuple[tuple[int, str], ...]  #: the effects that it began: the number of the intent, and the key


class Pasts:
    """What is known of the runs that were executed here last."""

    def __init__(self) -> None:
        self._known: OrderedDict[RunId, Acknowledged] = OrderedDict()
        self._told: dict[RunId, bytes] = {}  # the last record of runs that were blocked for it

    def __getitem__(self, run_id: RunId) -> Acknowledged | None:
        return self._known.get(run_id)

    def keep(self, known: Acknowledged) -> None:
        if self._told.get(known.run_id) == known.hash:
            return
        if len(known.acted) > _SHOWN:
            known = replace(known, acted=known.acted[-_SHOWN:])
        self._known[known.run_id] = known
        self._known.move_to_end(known.run_id)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def told(self, known: Acknowledged) -> None:
        """Somebody was told that this is lost."""
        self._told[known.run_id] = known.hash
        self._known.pop(known.run_id, None)

    def refusal(self, row: RunRow, records: Sequence[Record]) -> Blocked | None:
        """Why a run must not be taken up again here: the store has lost what it had when it was executed last."""
        known = self._known.get(row.id)
        if known is None or _has_past(known, records):
            return None
        found = _diagnosis(row, known, _unknown_effects(known, records))
        _tell(row, known, found, status=Status.blocked)
        return Blocked(found)


async def look_back(store: Store, journal: Journal, pasts: Pasts) -> None:
    """An execution is over. If the store refused what it wrote, see that nobody repeats what the store has lost."""
    row = journal.row
    known = Acknowledged(row.id, row.epoch, journal.durable_seq, journal.durable_hash, tuple(journal.acted))
    pasts.keep(known)
    if journal.ousted:
        journal.ousted = False
        if await block_if_backwards(store, known):
            pasts.told(known)


async def block_if_backwards(store: Store, known: Acknowledged) -> bool:
    """Look whether a run that was lost still has what is known of it. If not, block it, and tell."""
    while True:
        row = await store.run(known.run_id)
        if row is None:
            warn("run.gone", run=known.run_id, known=known.seq, effects=[key for _, key in known.acted])
            return False
        if is_empty(row) or is_elsewhere(row):
            return False
        first = min([known.seq, *(seq for seq, _ in known.acted)])
        records = await store.records(row.id, after=first - 1)
        if any((record.seq, record.hash) == (known.seq, known.hash) for record in records):
            return False  # somebody else has it, and all of its past
        found = _diagnosis(row, known, _unknown_effects(known, records))
        is_stopped = row.status.is_final or row.status in (Status.quarantined, Status.blocked)
        if is_stopped or await lifecycle.block(store, row, found):
            _tell(row, known, found, status=row.status if is_stopped else Status.blocked)
            return not is_stopped


def _has_past(known: Acknowledged, records: Sequence[Record]) -> bool:
    """`records`: all that a resume reads. What is left out of a run with turns is before its last checkpoint, which a
    row that has lost it cannot name."""
    if known.seq == 0 or not records:
        return known.seq == 0
    found = next((record for record in records if record.seq >= known.seq), None)
    return found is not None and (found.seq > known.seq or found.hash == known.hash)


def _unknown_effects(known: Acknowledged, records: Sequence[Record]) -> list[str]:
    there = {(record.seq, record.key) for record in records if record.kind == Kind.intent}
    return [key for seq, key in known.acted if (seq, key) not in there]


def _tell(row: RunRow, known: Acknowledged, found: Backwards, *, status: Status) -> None:
    warn("run.backwards", run=row.id, status=status, here=known.seq, there=row.head_seq, effects=list(found.effects))


def _diagnosis(row: RunRow, known: Acknowledged, effects: list[str]) -> Backwards:
    listed = ", ".join(effects[:_SHOWN]) + (f" and {len(effects) - _SHOWN} more" if len(effects) > _SHOWN else "")
    done = f"Since then it has begun these effects, which the store does not know of: {listed}." if effects else ""
    return Backwards(
        detail=f"The worker that executed this run was told that record {known.seq} is on disk; the store ends at "
        f"record {row.head_seq} and does not have it. A fail-over lost commits, or a backup was put in place. {done}",
        advice="Find out what became of those effects. `holdfast resume` has the run go on from what the store "
        "knows, and do them again under the same idempotency keys; `holdfast cancel` ends it instead.",
        effects=tuple(effects),
        here=Head(known.seq, known.hash.hex(), known.epoch),
        there=Head(row.head_seq, row.head_hash.hex(), row.epoch),
    )
