"""Advisory locks of the database: tried, and never waited for without a word.

Whoever can connect to the database can take any of them, by its number, and keep it. So none of them stands between us
and our work for good: a worker without its lock is found dead by its lease, runs of a queue whose lock somebody keeps
are claimed later, a migration gives up. And each time it is said who has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from holdfast.base.seldom import Seldom
from holdfast.base.telemetry import warn
from holdfast.model import Claim
from holdfast.store.queries import Queries

_TOLD_EVERY_US = 60_000_000


def lock_key(schema: str, worker_id: str) -> int:
    """The number of a worker's advisory lock."""
    digest = hashlib.blake2b(f"{schema} {worker_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


async def holder(connection: Any, queries: Queries, *, key: int | None = None, name: str = "") -> str:
    """Who has a lock: one of a number, or of a name that its number is made of."""
    found = await connection.fetchrow(queries["lock_holder"], key, name)
    if found is None:
        return "nobody any more"
    pid, user, program = found
    return f"session {pid} of {user or 'somebody'}{f' ({program})' if program else ''}"


class QueueLocks:
    """Locks under which the limits of queues are counted, as one process meets them."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._kept = Seldom(_TOLD_EVERY_US)

    async def settle(
        self, connection: Any, queries: Queries, claims: Sequence[Claim], found: Sequence[bool | None]
    ) -> list[bool]:
        """Which claims were granted. None: nothing was decided, because somebody keeps the lock of the queue."""
        for queue in sorted({claim.row.queue for claim, won in zip(claims, found, strict=True) if won is None}):
            if not self._kept.is_due(queue):
                continue
            who = await holder(connection, queries, name=" ".join(("holdfast queue", self._schema, queue)))
            warn(
                "queue.locked",
                queue=queue,
                by=who,
                advice="its limits cannot be counted, so none of its runs is claimed; end that session",
            )
        return [bool(won) for won in found]
