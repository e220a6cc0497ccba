"""The write side of one run's journal.

Records are drafts until a batch is formed: only then do they get their number and hash, so a `started` that its outcome
overtook leaves no gap, and a batch that is submitted again is the same to the byte. Nothing here waits for the disk
except `barrier()` and a backlog that is too long. A batch is formed when somebody waits for it, when enough drafts have
come together, or when the run has nothing more to say for a turn of the event loop. Whoever waits from the same turn on
shares one batch: ten thousand effects at once are a few appends, not ten thousand.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.config import Settings
from holdfast.codec import Recent
from holdfast.errors import Unserialisable
from holdfast.journal.blobs import STATE, Spills
from holdfast.journal.chain import Draft, draft, linked, revised
from holdfast.journal.checkpoints import TURN, turn_path
from holdfast.journal.drafts import OpenCall, Streaming
from holdfast.journal.heads import Heads, linked_turns
from holdfast.journal.waiters import Waiters
from holdfast.model import CUT, Append, Applied, Kind, Outgoing, RunRow, Status, following
from holdfast.model.reasons import Reason
from holdfast.store.contract import RunStore

_BATCH = 250
# Looked up once: on Python 3.11 a look at a member of an enum takes as long as a small function.
_INTENT, _NOTED, _COMMITTED = Kind.intent, Kind.noted, Applied.committed
#: Kinds whose payload is a value that may be large; the other payloads are read when the journal is.
_VALUES = frozenset({Kind.done, Kind.failed, Kind.finished})
_STATE_LIMIT = 1000  # characters; a state is there in each turn, and mostly changes a little
_OLD_US = 100_000
_REMEMBERED = 1000  # effects
_TURN_US = 5000  # the loop turns at least so often while a run that is alone commits on its thread
_QUIET_TURNS = 3  # an effect's outcome and the next one's intent come two turns apart, and share a commit


class Journal:
    """Appends to one run, as its owner. Lives on the event loop's thread."""

    def __init__(
        self, store: RunStore, row: RunRow, settings: Settings, on_lost: Callable[[BaseException | None], None]
    ) -> None:
        self.row = row
        self.store = store
        self._settings = settings
        self.value_limit = settings.value_limit
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._drafts: list[Draft] = []
        self._blobs: list[tuple[str, bytes]] = []
        self.spills = Spills()  #: its large values
        self.recent = Recent()  #: what its calls were given
        self._heads = Heads()
        self._open: dict[str, OpenCall] = {}
        self._fresh_open: dict[str, OpenCall] = {}
        self._head_seq = row.head_seq
        self._head_hash = row.head_hash
        self.durable_seq = row.head_seq  #: the number of the last record that is known to be on disk
        self.durable_hash = row.head_hash  #: of that record
        self.acted: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)  #: effects that were begun: intent, key
        self._undurable_since_us = 0
        self._oldest_at = 0
        self._waiters = Waiters(self._loop)
        self._is_forming = False  # it is formed in the next turn of the loop
        self._asked = 0  # how many have asked for it
        self._is_lone = False  # the last time nobody else did
        self._turn_scheduled = False
        self._scheduled_us = 0
        self._said = self._said_last_turn = 0
        self._quiet_turns = 0
        self.thawed: asyncio.Future[None] | None = None  #: while the run is being parked: nothing is written then
        self.lost = False
        self.ousted = False  #: it was lost, because the store has somebody else's word for it
        self.summary: dict[str, Any] = dict(row.summary)
        self.streams: Streaming | None = None  #: if bodies of this execution write, or of the last one did

    # what the run says

    def begin(self, call: OpenCall) -> None:
        """A call began. It costs no record unless it is still open when a batch is formed."""
        if self.streams is not None:
            self.streams.begun(call.key)
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
        if self.streams is not None:
            if kind != _NOTED:
                self.streams.told(kind, key, payload)
            elif key in self._fresh_open:  # it began before something is said of it
                self._write_started()
        limit = self._settings.inline_limit
        if payload is not None and len(payload) > limit and kind in _VALUES:
            payload = self._spill(payload, f"the result of {key}", f"result {name}")
        if args is not None and len(args) > limit:
            args = self._spill(args, f"the arguments of {key}", f"args {name}")
        at = now_us()
        if not self._drafts:
            self._oldest_at = at
            if not self._undurable_since_us:
                self._undurable_since_us = monotonic_us()
        self._drafts.append((key, kind, name, attempt, tick, at, took, digest, args, payload))
        self._said += 1
        if not soon:
            return
        if len(self._drafts) >= _BATCH or at - self._oldest_at > _OLD_US:
            self.flush(urgent=False)
        elif not self._turn_scheduled:
            self._schedule_turn()

    def checkpoint(self, turn: int, *, state: str, shape: str, past: str, mail: int) -> None:
        """A turn begins: what follows is part of it. What is open, timeouts of the prologue, was begun before."""
        self._write_started()
        self.spills.begin_turn()
        if len(state) > _STATE_LIMIT:
            state = self._spill(state, f"the state of turn {turn}", STATE)
        self._heads.add(len(self._drafts), mail)
        self.add(Kind.checkpoint, turn_path(turn), TURN, digest=shape, args=state, payload=past)

    def check_size(self, text: str, what: str) -> None:
        """Refuse a value that is too large to store, before anything depends on it."""
        if len(text) > self._settings.value_limit:
            raise Unserialisable(
                f"Run {self.row.id}: {what} is {len(text):,} characters of JSON; the limit is "
                f"{self._settings.value_limit:,}. Store it outside (a file, a bucket) and return a reference to it."
            )

    # waiting for the disk

    @property
    def is_backlogged(self) -> bool:
        """Too much is not on disk yet; the next call has to wait."""
        undurable = self._head_seq - self.durable_seq + len(self._drafts)
        if undurable >= self._settings.backlog_records:
            return True
        return (
            self._undurable_since_us > 0
            and undurable > 0
            and monotonic_us() - self._undurable_since_us > self._settings.backlog_s * 1_000_000
        )

    async def wait_backlog(self) -> None:
        """Wait until what is un-durable is within bounds again."""
        self.flush(urgent=True)
        await self._wait_durable(self._head_seq - self._settings.backlog_records // 2)

    async def barrier(self, *, inline: bool = False) -> None:
        """Return when everything said so far is on disk.

        `inline`: nobody else is waiting for the loop, so the commit may happen on this thread.
        """
        while self.thawed is not None:
            await asyncio.shield(self.thawed)
        if inline and self._turn_scheduled and monotonic_us() - self._scheduled_us > _TURN_US:
            await asyncio.sleep(0)
        if not inline:
            waiter = self.formed()
            if waiter is not None:
                await waiter
            return
        append = self._form()
        if append is not None:
            lone: Awaitable[None] | bool = False
            if self.durable_seq == append.base_seq:
                lone = self.store.commit_alone(append, lambda result: self._acknowledged(append, result))
            if lone is False:
                self._submit(append, urgent=True)
            elif lone is not True:
                await lone
        if self.durable_seq < self._head_seq or self.lost:
            await self._wait_durable(self._head_seq)

    def formed(self) -> asyncio.Future[None] | None:
        """What to wait for until a batch with everything said so far is on disk; None: it is.

        What `barrier` does unless the run is being parked, without a coroutine for each of those who wait. Those share
        a batch who ask in the same turn of the loop.
        """
        if self._is_lone and not self._asked and self.durable_seq == self._head_seq:
            append = self._form()  # there is one branch, as it seems, and nobody to wait for
            if append is not None:
                self._submit(append, urgent=True)
            return self._durable(self._head_seq)
        self._asked += 1
        self._form_soon()
        return self._waiters.until_next()

    def _form_soon(self) -> None:
        if not self._is_forming:
            self._is_forming = True
            self._loop.call_soon(self._form_for_all)

    def _form_for_all(self) -> None:
        self._is_forming = False
        self._is_lone, self._asked = self._asked == 1, 0
        if self._waiters.unformed and self.thawed is None and not self.lost:
            self.flush(urgent=True)
            if self._waiters.unformed:  # nothing was left to say: they wait for what is under way
                self._waiters.number(self._head_seq)
            self._waiters.wake(self.durable_seq)

    async def _wait_durable(self, seq: int) -> None:
        waiter = self._durable(seq)
        if waiter is not None:
            await waiter

    def _durable(self, seq: int) -> asyncio.Future[None] | None:
        if self.durable_seq >= seq and not self.lost:
            return None
        return self._waiters.until(seq)

    # the end of an execution

    async def park(
        self, status: Status, reason: Reason, *, wake_at: int | None, mail: int, drops_open: bool = False
    ) -> Applied:
        """Write what is pending together with a status to wait in, and give the run up, if it has seen all its mail.

        `unread`: there is more mail, nothing was changed, and the run goes on. `drops_open`: calls that have begun and
        are not written are forgotten, as by `finish`.
        """
        if drops_open:
            self._open.clear()
        else:
            self._write_started()
        self._fresh_open.clear()
        drafts, blobs, head, row = list(self._drafts), list(self._blobs), (self._head_seq, self._head_hash), self.row
        heads, cut = self._heads.taken(), self.summary.get(CUT)
        self._heads.give_back(heads, 0)
        append = self._form(status=status, reason=reason, wake_at=wake_at, release=True, mail=mail)
        if append is None:
            return Applied.fenced
        self.thawed = self._loop.create_future()
        try:
            applied = await self._decided(append)
        finally:
            self.thawed.set_result(None)
            self.thawed = None
        if applied is Applied.unread:
            self._drafts[:0] = drafts
            self._blobs[:0] = blobs
            self._head_seq, self._head_hash = head
            self.row = row
            if heads:
                self._heads.give_back(heads, len(drafts))
                self.summary.pop(CUT)
                self.summary |= {} if cut is None else {CUT: cut}
            if self._drafts and not self._turn_scheduled:
                self._schedule_turn()
            if self._waiters.unformed:
                self._form_soon()
        return applied

    async def finish(
        self,
        status: Status,
        reason: Reason | None = None,
        *,
        wake_at: int | None = None,
        outgoing: Outgoing | None = None,
        inline: bool = False,
    ) -> bool:
        """Write what is pending together with the run's new status, and give the run up.

        True once it is durable; False if the run was lost to another owner. `outgoing` is sent with it. `inline` as for
        `barrier`.
        """
        self._open.clear()
        self._fresh_open.clear()
        append = self._form(status=status, reason=reason, wake_at=wake_at, release=True, outgoing=outgoing)
        if append is None:
            return False
        is_lone = inline and self.durable_seq == append.base_seq
        return await self._decided(append, is_lone=is_lone) is _COMMITTED

    async def _decided(self, append: Append, *, is_lone: bool = False) -> Applied:
        """Have it committed, and wait for what becomes of it."""
        decided: asyncio.Future[Applied] = self._loop.create_future()

        def acknowledged(result: Applied | BaseException) -> None:
            self._acknowledged(append, result)
            if decided.done():
                return
            if isinstance(result, BaseException):
                decided.set_exception(result)
            else:
                decided.set_result(result)

        lone = self.store.commit_alone(append, acknowledged) if is_lone else False
        if lone is False:
            self.store.submit(append, acknowledged, urgent=True)
        elif lone is not True:
            await lone
        return decided.result() if decided.done() else await decided

    def oust(self) -> None:
        """Somebody else has the run."""
        self.ousted = True
        self.abandon()

    def abandon(self) -> None:
        """Write nothing more: the run belongs to somebody else, or its process is going away."""
        self.lost = True
        self._drafts.clear()
        self._fresh_open.clear()
        self._open.clear()
        self._waiters.abandon()

    def let_go(self) -> None:
        """Nobody is to be told that the run was lost, and nobody writes."""
        self._on_lost = lambda _: None
        self.streams = None

    # batches

    def _spill(self, text: str, what: str, sort: str) -> str:
        """`sort`: values of the same sort are often alike, so one is stored as the difference to the last."""
        self.check_size(text, what)
        reference, blob = self.spills.spill(text, sort)
        if blob is not None:
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
            self.flush(urgent=False)

    def flush(self, *, urgent: bool) -> int:
        """Have everything said so far appended, without waiting; the number of its last record."""
        if self.thawed is None:  # if the run is not parked after all, what was said meanwhile is written then
            append = self._form()
            if append is not None:
                self._submit(append, urgent=urgent)
        return self._head_seq

    def _form(
        self,
        *,
        status: Status | None = None,
        reason: Reason | None = None,
        wake_at: int | None = None,
        release: bool = False,
        mail: int | None = None,
        outgoing: Outgoing | None = None,
    ) -> Append | None:
        """Give the drafts their numbers and hashes."""
        if self._fresh_open:
            self._write_started()
        if (not self._drafts and status is None) or self.lost:
            return None
        row, base_seq, base_hash = self.row, self._head_seq, self._head_hash
        turn = row.turn
        if self._heads.found:
            heads = self._heads.taken()
            records, cut = linked_turns(self._drafts, heads, row, head_seq=base_seq, head_hash=base_hash)
            self.summary[CUT] = cut.plain()
            turn += len(heads)
        else:
            records = linked(self._drafts, epoch=row.epoch, turn=turn, head_seq=base_seq, head_hash=base_hash)
        self._drafts.clear()
        if records:
            self._head_seq, self._head_hash = records[-1].seq, records[-1].hash
        if self._waiters.unformed:
            self._waiters.number(self._head_seq)
        self.row = revised(
            row,
            updated_at=now_us(),
            status=following(row.status, status) if status is not None else row.status,
            reason=reason if status else row.reason,
            wake_at=wake_at,
            turn=turn,
            head_seq=self._head_seq,
            head_hash=self._head_hash,
            summary=dict(self.summary),
        )
        blobs, self._blobs = tuple(self._blobs), []
        return Append(self.row, base_seq, base_hash, records, blobs, release, mail, outgoing)

    def _write_started(self) -> None:
        """Calls that have begun, and are written nowhere, are."""
        limit = self._settings.inline_limit
        for call in self._fresh_open.values():
            call.written = True
            args = call.args
            if args is not None and len(args) > limit:
                args = self._spill(args, f"the arguments of {call.key}", f"args {call.name}")
            self._drafts.append(
                draft(
                    Kind.started,
                    call.name,
                    key=call.key,
                    attempt=call.attempt,
                    at=call.at,
                    args_digest=call.args_digest,
                    args=args,
                    payload=call.payload,
                )
            )
        self._fresh_open.clear()

    def _submit(self, append: Append, *, urgent: bool) -> None:
        self.store.submit(append, lambda result: self._acknowledged(append, result), urgent=urgent)

    def _acknowledged(self, append: Append, result: Applied | BaseException) -> None:
        if result is _COMMITTED:
            if append.row.head_seq > self.durable_seq:
                self.durable_seq, self.durable_hash = append.row.head_seq, append.row.head_hash
                for record in append.records:
                    if record.kind == _INTENT:
                        self.acted.append((record.seq, record.key))
            undurable = self._head_seq > self.durable_seq or self._drafts
            self._undurable_since_us = monotonic_us() if undurable else 0
            self._waiters.wake(self.durable_seq)
            return
        if not self.lost and result is not Applied.unread:
            self.lost = True
            self.ousted = isinstance(result, Applied)
            self._on_lost(result if isinstance(result, BaseException) else None)
