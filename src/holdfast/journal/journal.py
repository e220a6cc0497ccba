"""The write side of one run's journal.

Records are drafts until a batch is formed: only then do they get their number and hash, so a `started` that its outcome
overtook leaves no gap, and a batch that is submitted again is the same to the byte. Nothing here waits for the disk
except `barrier()` and a backlog that is too long. A batch is formed when somebody waits for it, when enough drafts have
come together, or when the run has nothing more to say for a turn of the event loop. Whoever waits from the same turn on
shares one batch: ten thousand effects at once are a few appends, not ten thousand.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.config import Settings
from holdfast.errors import Unserialisable
from holdfast.journal.blobs import spilled
from holdfast.journal.drafts import Draft, OpenCall
from holdfast.journal.integrity import record_hash, seal_row
from holdfast.model import Append, Applied, Kind, Letter, Record, RunRow, Status
from holdfast.store.contract import Store

_BATCH = 250
#: Kinds whose payload is a value that may be large; the other payloads are read when the journal is.
_VALUES = frozenset({Kind.done, Kind.failed, Kind.finished})
_OLD_US = 100_000
_REMEMBERED = 1000  # effects
_TURN_US = 5000  # the loop turns at least so often while a run that is alone commits on its thread
_QUIET_TURNS = 3  # an effect's outcome and the next one's intent come two turns apart, and share a commit


class Journal:
    """Appends to one run, as its owner. Lives on the event loop's thread."""

    def __init__(
        self, store: Store, row: RunRow, settings: Settings, on_lost: Callable[[BaseException | None], None]
    ) -> None:
        self.row = row
        self.store = store
        self._settings = settings
        self.value_limit = settings.value_limit
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._drafts: list[Draft] = []
        self._blobs: list[tuple[str, bytes]] = []
        self._stored_blobs: set[str] = set()
        self._open: dict[str, OpenCall] = {}
        self._fresh_open: dict[str, OpenCall] = {}
        self._head_seq = row.head_seq
        self._head_hash = row.head_hash
        self._durable_seq = row.head_seq
        self.durable_hash = row.head_hash  #: of the last record that is known to be on disk
        self.acted: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)  #: effects that were begun: intent, key
        self._undurable_since_us = 0
        self._oldest_at = 0
        self._waiters: list[tuple[int, int, list[asyncio.Future[None]]]] = []  # a heap, by what is to be on disk
        self._waits = 0
        self._unformed: list[asyncio.Future[None]] = []  # who waits for the batch that is formed next
        self._is_forming = False  # it is formed in the next turn of the loop
        self._asked = 0  # how many have asked for it
        self._is_lone = False  # the last time nobody else did
        self._turn_scheduled = False
        self._scheduled_us = 0
        self._said = self._said_last_turn = 0
        self._quiet_turns = 0
        self._thawed: asyncio.Future[None] | None = None  # while the run is being parked
        self.lost = False
        self.ousted = False  #: it was lost, because the store has somebody else's word for it
        self._is_abandoned = False
        self.summary: dict[str, Any] = dict(row.summary)

    # what the run says

    def begin(self, call: OpenCall) -> None:
        """A call began. It costs no record unless it is still open when a batch is formed."""
        self._open[call.key] = self._fresh_open[call.key] = call
        self._said += 1
        if not self._turn_scheduled:
            self._schedule_turn()

    def end(self, key: str, kind: str, *, tick: int, took: int, payload: str | None, args: str | None = None) -> None:
        """The outcome of a call that began with `begin`."""
        call = self._open.pop(key)
        if not call.written:
            del self._fresh_open[key]
            args = call.args
        self.add(
            kind,
            key,
            call.name,
            attempt=call.attempt,
            tick=tick,
            took=took,
            digest=call.args_digest,
            args=args,
            payload=payload,
        )

    def is_open(self, key: str) -> bool:
        return key in self._open

    def forget(self, key: str) -> None:
        """An open call ends without an outcome of its own (a following record says what became of it)."""
        self._open.pop(key, None)
        self._fresh_open.pop(key, None)

    def add(
        self,
        kind: str,
        key: str,
        name: str,
        *,
        attempt: int = 1,
        tick: int = 0,
        took: int = 0,
        digest: str = "",
        args: str | None = None,
        payload: str | None = None,
        soon: bool = True,
    ) -> None:
        """One more record. Not `soon`: it is written with what follows at once, and with nothing before that."""
        limit = self._settings.inline_limit
        if payload is not None and len(payload) > limit and kind in _VALUES:
            payload = self._spill(payload, f"the result of {key}")
        if args is not None and len(args) > limit:
            args = self._spill(args, f"the arguments of {key}")
        at = now_us()
        if not self._drafts:
            self._oldest_at = at
            if not self._undurable_since_us:
                self._undurable_since_us = monotonic_us()
        self._drafts.append((kind, key, name, attempt, tick, at, took, digest, args, payload))
        self._said += 1
        if not soon:
            return
        if len(self._drafts) >= _BATCH or at - self._oldest_at > _OLD_US:
            self._form_and_submit(urgent=False)
        elif not self._turn_scheduled:
            self._schedule_turn()

    def check_size(self, text: str, what: str) -> None:
        """Refuse a value that is too large to store, before anything depends on it."""
        if len(text) > self._settings.value_limit:
            raise Unserialisable(
                f"Run {self.row.id}: {what} is {len(text):,} characters of JSON; the limit is "
                f"{self._settings.value_limit:,}. Store it outside (a file, a bucket) and return a reference to it."
            )

    # waiting for the disk

    @property
    def backlogged(self) -> bool:
        """Too much is not on disk yet; the next call has to wait."""
        undurable = self._head_seq - self._durable_seq + len(self._drafts)
        if undurable >= self._settings.backlog_records:
            return True
        return (
            self._undurable_since_us > 0
            and undurable > 0
            and monotonic_us() - self._undurable_since_us > self._settings.backlog_s * 1_000_000
        )

    async def wait_backlog(self) -> None:
        """Wait until what is un-durable is within bounds again."""
        self._form_and_submit(urgent=True)
        await self._wait_durable(self._head_seq - self._settings.backlog_records // 2)

    async def barrier(self, *, inline: bool = False) -> None:
        """Return when everything said so far is on disk.

        `inline`: nobody else is waiting for the loop, so the commit may happen on this thread.
        """
        while self._thawed is not None:
            await asyncio.shield(self._thawed)
        if inline and self._turn_scheduled and monotonic_us() - self._scheduled_us > _TURN_US:
            await asyncio.sleep(0)
        if not inline:
            waiter = self._formed()
            if waiter is not None:
                await waiter
            return
        append = self._form()
        if append is not None:
            if self._durable_seq == append.base_seq:
                applied = self.store.commit_inline(append)
                if applied is not None:
                    self._acknowledged(append, applied)
                    append = None
                else:
                    append = await self._send_alone(append)
            if append is not None:
                self._submit(append, urgent=True)
        if self._durable_seq < self._head_seq or self.lost:
            await self._wait_durable(self._head_seq)

    def _formed(self) -> asyncio.Future[None] | None:
        """What to wait for until a batch with everything said so far is on disk; None: it is.

        Those share a batch who ask in the same turn of the loop.
        """
        if self._is_lone and not self._asked and self._durable_seq == self._head_seq:
            append = self._form()  # there is one branch, as it seems, and nobody to wait for
            if append is not None:
                self._submit(append, urgent=True)
            return self._durable(self._head_seq)
        self._asked += 1
        waiter = self._new_waiter()
        self._unformed.append(waiter)
        self._form_soon()
        return waiter

    def _form_soon(self) -> None:
        if not self._is_forming:
            self._is_forming = True
            self._loop.call_soon(self._form_for_all)

    def _form_for_all(self) -> None:
        self._is_forming = False
        self._is_lone, self._asked = self._asked == 1, 0
        if self._unformed and self._thawed is None and not self.lost:
            self._form_and_submit(urgent=True)
            self._number_waiters()  # nothing was left to say: they wait for what is under way
            self._wake_waiters()

    def _number_waiters(self) -> None:
        """Those who asked for a batch wait for its last record."""
        if self._unformed:
            self._add_waiters(self._head_seq, self._unformed)
            self._unformed = []

    def _add_waiters(self, seq: int, waiters: list[asyncio.Future[None]]) -> None:
        self._waits += 1  # whoever asked first is woken first
        heapq.heappush(self._waiters, (seq, self._waits, waiters))

    def _wake_waiters(self) -> None:
        while self._waiters and self._waiters[0][0] <= self._durable_seq:
            for waiter in heapq.heappop(self._waiters)[2]:
                if not waiter.done():
                    waiter.set_result(None)

    async def _send_alone(self, append: Append) -> Append | None:
        """Have the store commit an append by itself; the append, if it does not do that now."""
        sending = self.store.submit_alone(append, lambda result: self._acknowledged(append, result))
        if sending is None:
            return append
        await sending
        return None

    async def _wait_durable(self, seq: int) -> None:
        waiter = self._durable(seq)
        if waiter is not None:
            await waiter

    def _durable(self, seq: int) -> asyncio.Future[None] | None:
        if self._durable_seq >= seq and not self.lost:
            return None
        waiter = self._new_waiter()
        self._add_waiters(seq, [waiter])
        return waiter

    def _new_waiter(self) -> asyncio.Future[None]:
        """Of a run that was lost nothing more gets to the disk: whoever waits for it is torn down, now or soon."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        if self._is_abandoned:
            waiter.cancel()
        return waiter

    # the end of an execution

    async def park(
        self, status: Status, reason: dict[str, Any], *, wake_at: int | None, mail: int, drops_open: bool = False
    ) -> Applied:
        """Write what is pending together with a status to wait in, and give the run up, if it has seen all its mail.

        `unread`: there is more mail, nothing was changed, and the run goes on. `drops_open`: calls that have begun and
        are not written are forgotten, as by `finish`.
        """
        if drops_open:
            self._open.clear()
        else:
            for call in self._fresh_open.values():
                call.written = True
                self.add_started(call)
        self._fresh_open.clear()
        drafts, blobs, head, row = list(self._drafts), list(self._blobs), (self._head_seq, self._head_hash), self.row
        append = self._form(status=status, reason=reason, wake_at=wake_at, release=True, mail=mail)
        if append is None:
            return Applied.fenced
        self._thawed = self._loop.create_future()
        try:
            applied = await self._decided(append)
        finally:
            self._thawed.set_result(None)
            self._thawed = None
        if applied is Applied.unread:
            self._drafts[:0] = drafts
            self._blobs[:0] = blobs
            self._head_seq, self._head_hash = head
            self.row = row
            if self._drafts and not self._turn_scheduled:
                self._schedule_turn()
            if self._unformed:
                self._form_soon()
        return applied

    async def finish(
        self,
        status: Status,
        reason: dict[str, Any] | None = None,
        *,
        wake_at: int | None = None,
        tell: Letter | None = None,
        inline: bool = False,
    ) -> bool:
        """Write what is pending together with the run's new status, and give the run up.

        True once it is durable; False if the run was lost to another owner. `tell` is sent with it. `inline` as for
        `barrier`.
        """
        self._open.clear()
        self._fresh_open.clear()
        append = self._form(status=status, reason=reason, wake_at=wake_at, release=True, tell=tell)
        if append is None:
            return False
        if inline and tell is None and self._durable_seq == append.base_seq:
            applied = self.store.commit_inline(append)
            if applied is not None:
                self._acknowledged(append, applied)
                return applied is Applied.committed
        return await self._decided(append) is Applied.committed

    async def _decided(self, append: Append) -> Applied:
        """Submit, and wait for what becomes of it."""
        decided: asyncio.Future[Applied] = self._loop.create_future()

        def acknowledged(result: Applied | BaseException) -> None:
            self._acknowledged(append, result)
            if decided.done():
                return
            if isinstance(result, BaseException):
                decided.set_exception(result)
            else:
                decided.set_result(result)

        self.store.submit(append, acknowledged, urgent=True)
        return await decided

    @property
    def durable_seq(self) -> int:
        """The number of the last record that is known to be on disk."""
        return self._durable_seq

    def oust(self) -> None:
        """Somebody else has the run."""
        self.ousted = True
        self.abandon()

    def abandon(self) -> None:
        """Write nothing more: the run belongs to somebody else, or its process is going away."""
        self.lost = self._is_abandoned = True
        self._drafts.clear()
        self._fresh_open.clear()
        self._open.clear()
        self._fail_waiters()

    def let_go(self) -> None:
        """Nobody is to be told that the run was lost."""
        self._on_lost = lambda _: None

    def _fail_waiters(self) -> None:
        for waiters in (self._unformed, *(waiters for _, _, waiters in self._waiters)):
            for waiter in waiters:
                waiter.cancel()
        self._unformed.clear()
        self._waiters.clear()

    # batches

    def _spill(self, text: str, what: str) -> str:
        self.check_size(text, what)
        reference, blob = spilled(text)
        if blob[0] not in self._stored_blobs:
            self._stored_blobs.add(blob[0])
            self._blobs.append(blob)
        return reference

    def _schedule_turn(self) -> None:
        self._turn_scheduled = True
        self._scheduled_us = monotonic_us()
        self._said_last_turn = -1
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled_us = monotonic_us()
        if self.lost or not (self._drafts or self._fresh_open):
            self._turn_scheduled = False
        elif self._said != self._said_last_turn and now_us() - self._oldest_at < _OLD_US:
            self._said_last_turn = self._said
            self._quiet_turns = 0
            self._loop.call_soon(self._turn)
        elif self._quiet_turns < _QUIET_TURNS and now_us() - self._oldest_at < _OLD_US:
            self._quiet_turns += 1
            self._loop.call_soon(self._turn)
        else:
            self._turn_scheduled = False
            self._form_and_submit(urgent=False)

    def _form_and_submit(self, *, urgent: bool) -> None:
        if self._thawed is not None:
            return  # if the run is not parked after all, what was said meanwhile is written then
        append = self._form()
        if append is not None:
            self._submit(append, urgent=urgent)

    def _form(
        self,
        *,
        status: Status | None = None,
        reason: dict[str, Any] | None = None,
        wake_at: int | None = None,
        release: bool = False,
        mail: int | None = None,
        tell: Letter | None = None,
    ) -> Append | None:
        """Give the drafts their numbers and hashes."""
        if self._fresh_open:
            for call in self._fresh_open.values():
                call.written = True
                self.add_started(call)
            self._fresh_open.clear()
        if (not self._drafts and status is None) or self.lost:
            return None
        epoch, generation = self.row.epoch, self.row.generation
        base_seq, base_hash = self._head_seq, self._head_hash
        seq, previous = base_seq, base_hash
        records = []
        for kind, key, name, attempt, tick, at, took, digest, args, payload in self._drafts:
            seq += 1
            previous = record_hash(
                previous, seq, epoch, generation, key, kind, name, attempt, tick, at, took, digest, args, payload
            )
            records.append(
                Record(
                    seq, epoch, generation, key, kind, name, attempt, tick, at, took, digest, args, payload, previous
                )
            )
        self._drafts.clear()
        self._head_seq, self._head_hash = seq, previous
        if self._unformed:
            self._number_waiters()
        row = self.row
        self.row = seal_row(
            RunRow(
                row.id,
                row.thread_id,
                row.agent,
                row.nonce,
                row.parent_id,
                row.queue,
                row.queue_key,
                row.priority,
                row.created_at,
                now_us(),
                status or row.status,
                reason if status else row.reason,
                wake_at,
                generation,
                epoch,
                seq,
                previous,
                row.input_digest,
                dict(self.summary),
                row.owner,
                row.claims,
                row.mail,
                "",
            )
        )
        blobs, self._blobs = tuple(self._blobs), []
        return Append(self.row, base_seq, base_hash, tuple(records), blobs, release, mail, tell)

    def add_started(self, call: OpenCall) -> None:
        limit = self._settings.inline_limit
        args = call.args
        if args is not None and len(args) > limit:
            args = self._spill(args, f"the arguments of {call.key}")
        self._drafts.append(
            (Kind.started, call.key, call.name, call.attempt, 0, call.at, 0, call.args_digest, args, call.payload)
        )

    def _submit(self, append: Append, *, urgent: bool) -> None:
        self.store.submit(append, lambda result: self._acknowledged(append, result), urgent=urgent)

    def _acknowledged(self, append: Append, result: Applied | BaseException) -> None:
        if result is Applied.committed:
            if append.row.head_seq > self._durable_seq:
                self._durable_seq, self.durable_hash = append.row.head_seq, append.row.head_hash
                for record in append.records:
                    if record.kind == Kind.intent:
                        self.acted.append((record.seq, record.key))
            undurable = self._head_seq > self._durable_seq or self._drafts
            self._undurable_since_us = monotonic_us() if undurable else 0
            if self._waiters:
                self._wake_waiters()
            return
        if not self.lost and result is not Applied.unread:
            self.lost = True
            self.ousted = isinstance(result, Applied)
            self._on_lost(result if isinstance(result, BaseException) else None)
