"""The contract of a store. One method is one transaction; a store holds no policy.

Appends and the other writes of all runs in a process share commits (group commit): a write's coroutine returns, or
its acknowledgement is called, only after its own commit is on disk. A write is a set of conditions and changes that
stands alone: one that is refused or fails never takes another one with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.errors import StoreError
from holdfast.model import (
    Act,
    Append,
    Applied,
    Claim,
    Definition,
    Fence,
    Landing,
    Limit,
    Loaded,
    Mail,
    Proof,
    QuestionRow,
    QuestionState,
    Record,
    RunFilter,
    RunId,
    RunRow,
    Sent,
    Status,
    Wake,
    Worker,
    WorkerId,
)
from holdfast.model.budgets import FamilyUse
from holdfast.store.files import FileStore
from holdfast.store.home import Home
from holdfast.store.surveys import Surveys
from holdfast.store.thread_store import ThreadStore
from holdfast.store.upkeep import Upkeep

#: Called on the event loop with what became of an append, or with the error that kept it from being decided.
Acknowledge = Callable[[Applied | BaseException], None]


class UserTransaction(Protocol):
    """A transaction on the user's own tables, for one attempt of an effect. It ends with `land` or `roll_back`."""

    @property
    def has_begun(self) -> bool: ...

    @property
    def was_lost(self) -> bool:
        """Did the connection break before anything could be committed?"""
        ...

    async def begin(self) -> Any:
        """The connection; the same one if it is asked for again. UsageError where the store lends it to threads."""
        ...

    def begin_here(self) -> Any:
        """The connection, for a body that runs in a thread of its own. UsageError where it belongs to an event loop."""
        ...

    def spoil(self) -> None:
        """Something went wrong inside: it can only be rolled back."""
        ...

    async def land(self, result: str) -> bool:
        """Commit, with the result under the name of the call.

        False: this attempt cannot land any more (another one did, or it was given up), and nothing was changed.
        A StoreError may leave it open whether it did: `Store.landed` decides.
        """
        ...

    async def roll_back(self) -> None: ...


class RunStore(Protocol):
    """Runs and their journals."""

    async def create(
        self, append: Append, *, owner: WorkerId | None, fence: Fence | None = None, act: Act | None = None
    ) -> RunRow:
        """Store a new run with its first records, owned by `owner`, unless the id exists; return what is stored now.

        `fence`: for which run it is done; raises Fenced if that one is somebody else's. `act`: who started it, if it is
        new.
        """
        ...

    async def claim(
        self,
        row: RunRow,
        *,
        owner: WorkerId,
        expected_epoch: int,
        expected_owner: WorkerId | None,
        limits: Mapping[str, Limit] | None = None,
    ) -> bool:
        """Make `owner` the owner and `row` (which carries the new epoch) the state, if epoch and owner are as expected.

        Counts the claim: `claims` goes up by one in the same commit. `limits` as for `claim_many`. If somebody is
        writing to the run, that is waited for.
        """
        ...

    async def claim_many(
        self, claims: Sequence[Claim], *, owner: WorkerId, limits: Mapping[str, Limit] | None = None
    ) -> list[bool]:
        """Claim several runs in one commit, each if its own conditions hold, in the order given.

        `limits`, by queue: a run is left if its queue, or its key there, has that many owned runs already, those
        claimed before it in this call included. A run that changes hands is counted already and is never left. Of
        several claims of one run, the first that fits is the one.
        """
        ...

    def submit(self, append: Append, acknowledge: Acknowledge, *, urgent: bool) -> None:
        """Hand over an append to the writer. Appends of one run are applied in the order submitted.

        `urgent`: somebody waits for it. Not urgent: may share the next commit.
        An append that is refused is `fenced` if epoch or owner differ, else `diverged` if the head does, else `unread`.
        Giving a run up sets its count of claims to 0, as progress does: nobody died.
        """
        ...

    def commit_alone(self, append: Append, acknowledge: Acknowledge) -> Awaitable[None] | bool:
        """Commit an append that shares its commit with no other, for who waits for nothing else, and whom nobody else
        waits for: it may happen on this thread.

        False: declined, nothing was changed; `submit` it. True: it is committed, and was acknowledged. Else what is
        to be awaited at once: it is acknowledged when that ends, or later, as after `submit`, also if the awaiting is
        cancelled. Only for a run that has no append submitted and not acknowledged.
        A new run's (`base_seq` is 0) is stored as its row has it, or declined: `create` it then.
        """
        ...

    async def amend(self, append: Append, *, seize: bool = False, act: Act | None = None) -> bool:
        """Append to a run that nobody owns, and leave it unowned.

        `append.row.epoch` is one more than the stored epoch, so whoever had the run before is fenced; head and, if
        given, `append.mail` must match. `seize`: also if somebody owns it. The count of claims starts anew.
        `act`: who did it, kept in the same commit.
        """
        ...

    async def quarantine(self, run_id: RunId, reason: str) -> None:
        """Mark a run as failing verification, whatever its row says; it loses its owner. Idempotent."""
        ...

    # reads: short, never holding up a writer
    async def run(self, run_id: RunId) -> RunRow | None: ...

    async def runs(self, which: RunFilter) -> list[RunRow]:
        """Newest first (by created_at, id)."""
        ...

    async def queue_counts(self, queues: Sequence[str]) -> dict[str, dict[Status, int]]:
        """How many runs each of these queues has that are queued, and running. No row is loaded."""
        ...

    async def family_use(self, owner: RunId, asks: RunId) -> FamilyUse:
        """What a run and all that came of it have used, as their rows say, without what `asks` has used itself."""
        ...

    async def records(self, run_id: RunId, *, after: int = 0, limit: int | None = None) -> list[Record]:
        """In order, at most `limit`. Records never change: pages fit together, if the run is not pruned meanwhile."""
        ...

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
        """Row and records of one moment."""
        ...

    async def checkpoints(
        self, run_id: RunId, *, turn: int | None = None, after: int = 0, limit: int = 1000
    ) -> list[tuple[Record, bytes]]:
        """Checkpoints of a run behind a record, in order, with the hash that each is linked to; or that of one turn."""
        ...

    async def load_many(self, run_ids: Sequence[RunId]) -> list[Loaded]:
        """What a resume needs of those that exist, in the order given, of one moment: row, records and mail.

        Of a run with turns that is its prologue, the last checkpoint and what follows, and mail behind its cursor.
        One that cannot be read is left out: `load` says why.
        """
        ...

    async def ready(
        self,
        *,
        agents: Sequence[str],
        queues: Sequence[str] | None,
        now: int,
        limit: int,
        after: str = "",
        closed: Sequence[str] = (),
    ) -> list[RunRow]:
        """Unowned runs of these agents that may be claimed: their `wake_at` has come.

        Queued ones: for each queue (of these, None means any, and not of those that are `closed`) and key, in the order
        of priority (higher first) and `wake_at`, evenly from all keys if there are more than `limit`; keys come in
        order, and queues with the same key by name, starting behind the place `after` and wrapping around, so a caller
        can be fair with a moving cursor (`store.lines.place`). Also parked ones (sleeping, waiting, in doubt) of these
        queues whose time has come, earliest first.
        In the answer the parked ones come first, then the first of each key, the second of each key, and so on. If
        there are more than `limit`, each sort gets at least half, and queues take turns: what cannot be claimed now,
        because its queue is full, does not hide the next queue.
        What it costs does not grow with the number of runs that wait; only past thousands that are due does it grow
        with those that stand in the same line and are not due, or are another worker's agents'.
        """
        ...

    async def next_wake(self) -> int | None:
        """The earliest `wake_at` of an unowned run that can be claimed then, if any; in the past if one is due now."""
        ...

    async def blobs(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        """Those that exist, decompressed; CorruptJournal when one does not decompress."""
        ...

    # the user's own tables
    def transaction(self, landing: Landing) -> UserTransaction:
        """A transaction for one attempt of a call, not begun."""
        ...

    async def landed(self, landing: Landing) -> str | None:
        """The result of the attempt of this call that landed; None: none did, and from now on neither this attempt nor
        one before it can."""
        ...


class MailStore(Protocol):
    """Mail for runs, and the news that there is something to look at."""

    async def send(
        self,
        mail: Mail,
        *,
        wake: Wake,
        expected: int | None = None,
        decides: tuple[QuestionState, str] | None = None,
        act: Act | None = None,
    ) -> Sent:
        """Accept mail for a run: bump its counter, insert under the new number (`mail.number` is ignored).

        `wake` sees the run's row inside the transaction, refuses the mail by raising, and may give an unowned run a
        new row (same epoch, same head). It may be called several times, on any thread, while others wait for the
        store: it must be fast and do nothing but decide. A known dedup id changes nothing and asks nobody: what was
        accepted once stays so, also for a run that has ended since. The answer tells what that was.
        `expected`: the number of the last mail that the sender knows of; not accepted if there is a later one.
        `decides`: (new state, digest of what was shown): the question `mail.key` of the run must be open and show
        that, and is decided in the same commit, with `by` and `note` from the mail's body; else it is not accepted.
        `act`: who did it, kept in the same commit if it is new.
        RunNotFound if there is no such run.
        """
        ...

    async def mail(self, run_id: RunId, *, after: int, limit: int | None = None) -> list[Mail]:
        """In the order of acceptance, at most `limit`."""
        ...

    async def mail_of_numbers(self, run_id: RunId, numbers: Sequence[int]) -> list[Mail]: ...

    async def mail_counts(self, owner: WorkerId) -> dict[RunId, tuple[int, int]]:
        """Epoch and mail counter of each run that a worker owns."""
        ...

    # news
    def ring(self) -> None:
        """Let every process know that there is mail, or a run to claim. `send`, and making a run claimable, ring."""
        ...

    async def changed(self, timeout_s: float) -> bool:
        """Return True when somebody rang since the last call, False after a time or when the store is closed.

        It only speeds up polling.
        """
        ...

    def serve(self, worker_id: WorkerId, deliver: Callable[[Mail], None]) -> None:
        """Have mail that this store has committed for runs of this worker given to `deliver`, on the running loop.

        Nobody is rung for it then. Mail that others send is looked for, as ever.
        """
        ...


class QuestionStore(Protocol):
    """What runs ask people."""

    async def open_question(self, question: QuestionRow, *, fence: Fence | None = None) -> QuestionRow:
        """Store a question unless it is; one that is open and shows something else is changed. What is stored now.

        The digest covers what is asked, not what became of it.
        """
        ...

    async def close_question(
        self, run_id: RunId, key: str, state: QuestionState, at: int, *, fence: Fence | None = None
    ) -> QuestionRow | None:
        """Decide a question that is still open, without an answer; what is stored now."""
        ...

    async def questions(
        self, *, run_id: RunId | None = None, id_prefix: str | None = None, only_open: bool = True, limit: int = 200
    ) -> list[QuestionRow]:
        """Oldest first."""
        ...


class DefinitionStore(Protocol):
    """What workers share by name."""

    async def define(
        self, definitions: Sequence[Definition], *, within: Any = None, act: Act | None = None, guarded: bool = False
    ) -> list[bool]:
        """Write each one whose stored revision is one less (for 1: there is none); in one commit, with the act of who
        does it, if one was written. `guarded`: the first one is the condition of all; unless it is written, none is.

        `within`: a connection of the user's own to the same database, with an open transaction: they are written with
        that, and are there when the user commits. UsageError if it is none. New ones only (revision 1).
        """
        ...

    async def definitions(
        self, kind: str, *, names: Sequence[str] | None = None, due: int | None = None, limit: int = 10_000
    ) -> list[Definition]:
        """Of one kind, in the order of names; `due`: only those that are due by then, earliest first."""
        ...

    async def forget(
        self, kind: str, names: Sequence[str], *, bodies: Sequence[str] | None = None, act: Act | None = None
    ) -> None:
        """Remove definitions; with `bodies`, one for each name, only those that still have it. The act of who does it
        is kept in the same commit, if there was one."""
        ...

    async def add_act(self, act: Act) -> None:
        """Keep what somebody did that changes nothing else in one commit."""
        ...


class WorkerStore(Protocol):
    """Who executes runs, and who is dead."""

    async def add_worker(self, worker: Worker) -> None:
        """Take the worker's OS-level lock, then store its row."""
        ...

    async def renew_worker(self, worker_id: WorkerId, lease_until_ms: int) -> bool: ...

    async def remove_worker(self, worker_id: WorkerId) -> None: ...

    async def workers(self) -> list[Worker]: ...

    async def dead_workers(self) -> dict[WorkerId, Proof]:
        """Workers known to be dead, with the proof: `lock` (released, or the process is gone), `session` (lost, and the
        process cannot be seen or is still there), `boot` (another one), `lease` (expired), or
        `gone`: it owns an unfinished run and has no row."""
        ...

    def lease_clock_ms(self) -> int:
        """Now, on the clock that leases are measured with."""
        ...

    def wall_clock_us(self) -> int:
        """The time of day where the data is, as far as it is known here."""
        ...


class Store(RunStore, MailStore, QuestionStore, ThreadStore, DefinitionStore, WorkerStore, FileStore, Upkeep, Protocol):
    """Where runs live: all of it. Who needs a part asks for the part."""

    home: Home | None  #: of the app that has it open

    @property
    def surveys(self) -> Surveys:
        """Reads over many runs."""
        ...

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

    @property
    def failure(self) -> StoreError | None:
        """Why this store cannot be used any more by this process, whatever happens; None as long as it can."""
        ...

    async def open(self, *, read_only: bool = False) -> None:
        """Connect, check that the data is sound, bring the schema up to date (never with `read_only`)."""
        ...

    async def close(self) -> None: ...

    async def reach(self) -> None:
        """Return when appends and reads have what they need: a worker asks before it claims anything.

        Costs nothing if they do. StoreError says what is missing, if that is known; it may also take its time.
        """
        ...
