"""Claiming runs inside a transaction: which of them are as expected, and which their queues have room for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from holdfast.model import Claim, Limit, RunId, RunRow, WorkerId
from holdfast.store import rows
from holdfast.store.sqlite.apply import Transaction
from holdfast.store.sqlite.rows import read_rows


def claim_many(
    transaction: Transaction, claims: Sequence[Claim], *, owner: WorkerId, limits: Mapping[str, Limit], again: bool
) -> list[bool]:
    """Take over those that fit, in order. `again`: an earlier commit of the same claims may have succeeded."""
    won = [False] * len(claims)
    if again:
        made = [(i, claim.row.id, claim.row.epoch, owner, claim.row.digest) for i, claim in enumerate(claims)]
        for place in transaction.found("claimed", made):
            won[place] = True
    room = _RoomLeft(transaction, claims, limits)
    expected = [rows.claimable_parameters(i, claim) for i, claim in enumerate(claims)]
    fitting = set(transaction.found("claimable", expected))
    taken: dict[RunId, RunRow] = {}  # of several claims of one run, the first that fits is the one
    for place, claim in enumerate(claims):
        if place in fitting and claim.row.id not in taken and room.take(claim):
            taken[claim.row.id] = claim.row
            won[place] = True
    transaction.write("claim_runs", [rows.claim_parameters(row, owner) for row in taken.values()])
    return won


def _owned(transaction: Transaction, queues: Iterable[str], keys: Iterable[str]) -> Counter[tuple[str, str | None]]:
    """How many runs have an owner: of each queue (key None), and of each of the keys there."""
    which = {"queues": json.dumps(sorted(queues)), "keys": json.dumps(sorted(keys))}
    counts: Counter[tuple[str, str | None]] = Counter()
    for queue, count in read_rows(transaction.value("owned_in_queues", which)):
        counts[queue, None] = count
    for queue, key, count in read_rows(transaction.value("owned_of_keys", which)):
        counts[queue, key] = count
    return counts


class _RoomLeft:
    """How many more runs each queue and key may have owners for."""

    def __init__(self, transaction: Transaction, claims: Sequence[Claim], limits: Mapping[str, Limit]) -> None:
        self._limits = limits
        limited = [claim.row for claim in claims if claim.row.queue in limits]
        self._owned: Counter[tuple[str, str | None]] = Counter()
        if limited:
            self._owned = _owned(transaction, {row.queue for row in limited}, {row.queue_key for row in limited})

    def take(self, claim: Claim) -> bool:
        """A run that changes hands is counted already."""
        row = claim.row
        limit = self._limits.get(row.queue)
        if limit is None or claim.expected_owner is not None:
            return True
        of_queue, of_key = self._owned[row.queue, None], self._owned[row.queue, row.queue_key]
        if limit.concurrency is not None and of_queue >= limit.concurrency:
            return False
        if limit.per_key is not None and of_key >= limit.per_key:
            return False
        self._owned[row.queue, None] += 1
        self._owned[row.queue, row.queue_key] += 1
        return True
