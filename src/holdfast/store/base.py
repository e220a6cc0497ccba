"""The contract of a store. One method is one transaction; a store holds no policy.

Appends and the other writes of all runs in a process share commits (group commit): a write's coroutine returns, or
its acknowledgement is called, only after its own commit is on disk. A write is a set of conditions and changes that
stands alone: one that is refused or fails never takes another one with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.model import Append, Applied, Mail, Record, RunFilter, RunId, RunRow, Worker, WorkerId

#: Called on the event loop with what became of an append, or with the error that kept it from being decided.
Acknowledge = Callable[[Applied | BaseException], None]


class Store(Protocol):
    """Where runs live."""

    @property
    def url(self) -> str: ...

    @property
    def durability(self) -> str:
        """`full`, or the name of the weaker mode that was asked for."""
        ...

    @property
    def trouble(self) -> str | None:
        """What writes are waiting for, or failed with last, if anything: for `doctor` and the worker's log."""
        ...

    async def open(self, *, read_only: bool = False) -> None:
        """Connect, check that the data is sound, bring the schema up to date (never with `read_only`)."""
        ...

    async def close(self) -> None: ...

    # runs
    async def create(self, append: Append, *, owner: WorkerId | None, inline: bool = False) -> RunRow:
        """Store a new run with its first records, owned by `owner`, unless the id exists; return what is stored now.

        `inline`: nobody else waits for the loop, so it may be committed on the calling thread, as by `commit_inline`.
        """
        ...

    async def claim(
        self, row: RunRow, *, owner: WorkerId, expected_epoch: int, expected_owner: WorkerId | None
    ) -> bool:
        """Make `owner` the owner and `row` (which carries the new epoch) the state, if epoch and owner are as expected.

        Counts the claim: `claims` goes up by one in the same commit.
        """
        ...

    def submit(self, append: Append, acknowledge: Acknowledge, *, urgent: bool) -> None:
        """Hand over an append to the writer. Appends of one run are applied in the order submitted.

        `urgent`: somebody waits for it. Not urgent: may share the next commit.
        """
        ...

    def commit_inline(self, append: Append) -> Applied | None:
        """Commit an append on this thread, if that is fast now; None: declined, nothing was changed, use `submit`.

        Only for a run that has no append submitted and not acknowledged. `committed` means on disk, as ever.
        """
        ...

    async def set_status(self, row: RunRow, *, expected_epoch: int) -> bool:
        """Write an unowned run's row (status, reason, digest), if its epoch is as expected and nobody owns it."""
        ...

    async def quarantine(self, run_id: RunId, reason: str) -> None:
        """Mark a run as failing verification, whatever its row says; it loses its owner. Idempotent."""
        ...

    # reads: short, never holding up a writer
    async def run(self, run_id: RunId) -> RunRow | None: ...

    async def runs(self, which: RunFilter) -> list[RunRow]:
        """Newest first (by created_at, id)."""
        ...

    async def records(self, run_id: RunId, *, after: int = 0) -> list[Record]: ...

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
        """Row and records of one moment."""
        ...

    async def blobs(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        """Those that exist, decompressed; CorruptJournal when one does not decompress."""
        ...

    # mail
    async def send(self, mail: Mail, *, wake: RunRow | None, expected: int | None = None) -> int:
        """Accept mail for a run: bump its counter, insert under the new number (`mail.number` is ignored), return it.

        `wake`: the row to write in the same commit if nobody owns the run and its epoch is `wake.epoch`.
        `expected`: the number of the last mail that the sender knows of; 0 and no change if there is a later one.
        """
        ...

    async def mail(self, run_id: RunId, *, after: int) -> list[Mail]: ...

    # workers
    async def add_worker(self, worker: Worker) -> None:
        """Take the worker's OS-level lock, then store its row."""
        ...

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool: ...

    async def remove_worker(self, worker_id: WorkerId) -> None: ...

    async def workers(self) -> list[Worker]: ...

    async def dead_workers(self) -> dict[WorkerId, str]:
        """Workers known to be dead, with the proof: `lock` (released), `boot` (another one), `lease` (expired), or
        `gone`: it owns an unfinished run and has no row."""
        ...

    def lease_clock_ms(self) -> int:
        """Now, on the clock that leases are measured with."""
        ...

    # for doctor and verify
    async def check(self) -> list[str]:
        """Problems found by the store's own integrity check; empty when sound."""
        ...

    async def statistics(self) -> dict[str, int | str]:
        """Sizes and versions for `doctor`."""
        ...
