"""The writer of a store in a process: whatever is queued goes to the server together, while the last is committed.

It lives on the event loop of whoever opened the store; a thread of its own would fight with that loop for the
interpreter lock at every answer. There are two lanes, each with a connection: appends and new runs in one, a batch a
call; everything else in the other, where a transaction may take several trips. Appends of one run stay in order: one
that goes to the other lane (because it sends mail to another run) waits for those before it.

A batch is a set of writes that stand alone. If the database refuses the whole of it, it is cut in halves until the
write that is at fault is alone. Nobody is told anything before the answer of the commit is here.

If a connection is lost, the outcome of what was under way is unknown. The same writes are sent again with `again`
set, on a new connection: each finds out by what is stored whether it was committed, and is acknowledged after one
more commit. While the server is away, appends wait, for as long as it takes; the other writes wait for a while
(`_PATIENCE_S`) and then fail with a StoreError, since their callers can decide. `trouble` says what is waited for.
Deadlocks and serialisation failures are the database's answer to single statements of ours; they are repeated here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from holdfast.base import clock, faults
from holdfast.errors import Fenced, HoldfastError, StoreError
from holdfast.model import Append, Applied, RunId
from holdfast.store.carrier import AcceptedMail
from holdfast.store.contract import Acknowledge
from holdfast.store.postgres import apply
from holdfast.store.postgres.connection import STATEMENT_S, Backoff, Keeper, Role, Sort, Target, explain, sort_of
from holdfast.store.postgres.mail import MailingAppend, write_all
from holdfast.store.postgres.ops import AppendOp, CallOp, CreateOp, MailOp, Op, Outcomes, has_news
from holdfast.store.queries import Queries

_BATCH = 1024  # writes in one call
_BATCH_BYTES = 16 * 1024 * 1024  # of large values in one call
_BATCH_RECORDS = 5000
_PATIENCE_S = 30.0
_LAST_S = 3.0  # the same when closing
_LAST_ANSWER_S = 10.0  # how long an answer is waited for then
_CONFLICTS = 50
_LOOK_S = 1.0
_SLOW_S = 5.0  # an answer that takes longer is trouble
_APPEND_POINTS = ("append.before_commit", "append.after_commit")
CREATE_POINTS = ("start.before_commit", "start.after_commit")
SEND_POINTS = ("send.before_commit", "send.after_commit")
AMEND_POINTS = ("amend.before_commit", "amend.after_commit")


async def _nothing(connection: Any, again: bool) -> None:
    """A write that is about its connection."""


class Writer:
    """Both lanes. Everything here happens on the event loop that made it."""

    def __init__(
        self, target: Target, queries: Queries, ring: Callable[[], None], carry: Callable[[list[AcceptedMail]], bool]
    ) -> None:
        self._target = target
        self._queries = queries
        self._ring = ring
        self._carry = carry
        self.main = _Lane(self, target, queries)
        self.side = _Lane(self, target, queries)
        self._in_main: Counter[RunId] = Counter()  # appends of a run on their way through the main lane
        self._in_side: Counter[RunId] = Counter()
        self._behind: dict[RunId, list[AppendOp]] = {}  # appends for the side lane that wait for those in the main one
        self.is_closing = False
        self._next_look: asyncio.TimerHandle | None = None

    @property
    def trouble(self) -> str | None:
        return self.main.trouble or self.side.trouble

    @property
    def connections(self) -> list[Any]:
        return [lane.keeper.connection for lane in (self.main, self.side) if lane.keeper.connection is not None]

    @property
    def is_connected(self) -> bool:
        """Can both lanes write at once, as far as is known?"""
        return self.main.is_connected and self.side.is_connected

    async def reach(self) -> None:
        """Have both lanes connect; raises what keeps them from it."""
        await self.main.reach()
        await self.side.reach()

    def begin(self) -> None:
        self.main.begin()
        self.side.begin()
        self._look()

    def _look(self) -> None:
        self.main.look()
        self.side.look()
        self._next_look = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def submit(self, op: Op) -> None:
        if self.is_closing:
            raise StoreError(f"{self._target.shown} is closed.")
        if isinstance(op, CreateOp):
            self.main.put(op)
        elif not isinstance(op, AppendOp):
            self.side.put(op)
        else:
            run_id = op.append.row.id
            if run_id in self._behind:
                self._behind[run_id].append(op)
            elif op.append.outgoing is None and not self._in_side[run_id]:
                self._in_main[run_id] += 1
                self.main.put(op)
            elif self._in_main[run_id]:
                self._behind[run_id] = [op]
            else:
                self._in_side[run_id] += 1
                self.side.put(op)

    def commit_alone(self, append: Append, acknowledge: Acknowledge) -> Awaitable[None] | Literal[False]:
        """Send an append at once, if nothing else is under way; see `RunStore.commit_alone`."""
        run_id = append.row.id
        is_fit = not self.is_closing and not self._target.is_pooled and append.base_seq and apply.is_small(append)
        if not is_fit or run_id in self._behind or self._in_side[run_id] or not self.main.is_idle:
            return False
        self._in_main[run_id] += 1
        return self.main.send_alone(AppendOp(append, acknowledge))

    async def close(self) -> None:
        """Commit what is queued, if that is possible soon; then close."""
        self.is_closing = True
        await asyncio.gather(self.main.close(), self.side.close())
        if self._next_look is not None:
            self._next_look.cancel()

    def deliver(self, lane: _Lane, outcomes: Outcomes) -> None:
        accepted, lane.accepted = lane.accepted, []
        if self._carry(accepted) or has_news(outcomes):
            self._ring()
        for op, outcome in outcomes:
            if isinstance(op, AppendOp):
                self._leave(lane, op.append.row.id)
            try:
                if isinstance(op, AppendOp):
                    op.acknowledge(outcome)
                elif op.future.done():
                    continue
                elif isinstance(outcome, BaseException):
                    op.future.set_exception(outcome)
                else:
                    op.future.set_result(outcome)
            except Exception as error:  # one callback's bug must not keep the news from the others
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "an acknowledgement raised", "exception": error}
                )

    def deliver_alone(self, op: AppendOp) -> None:
        """The same for one append of the main lane that was committed."""
        if op.append.release and op.append.row.wake_at is not None:
            self._ring()
        self._leave(self.main, op.append.row.id)
        op.acknowledge(Applied.committed)

    def _leave(self, lane: _Lane, run_id: RunId) -> None:
        count = self._in_main if lane is self.main else self._in_side
        left = count[run_id] - 1
        if left > 0:
            count[run_id] = left
        else:
            del count[run_id]
            if lane is self.main and run_id in self._behind:
                for op in self._behind.pop(run_id):
                    self._in_side[run_id] += 1
                    self.side.put(op)


class _Lane:
    """One connection, and what is queued for it."""

    def __init__(self, writer: Writer, target: Target, queries: Queries) -> None:
        self.keeper = Keeper(target, Role.write, None if target.is_pooled else queries["sync_commits"])
        self._writer = writer
        self._target = target
        self._queries = queries
        self._queue: deque[Op] = deque()
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._small: apply.SmallAppends | None = None
        self._is_busy = False
        self._alone: asyncio.Future[None] | None = None  # while somebody else uses the connection
        self._unsure: deque[AppendOp] = deque()  # sent, and it is not known what became of them
        self._probe: asyncio.Future[None] | None = None  # of whoever wants to know whether there is a connection
        self.accepted: list[AcceptedMail] = []  #: mail that was committed, and nobody was told of
        self._problem = ""
        self._since_us = 0
        self._began_us = 0  # what is under way; 0: nothing is

    @property
    def trouble(self) -> str | None:
        now_us = clock.monotonic_us()
        if self._problem:
            return f"{self._problem} Writes have been waiting for {(now_us - self._since_us) / 1e6:.0f} s."
        if self._began_us and now_us - self._began_us > _SLOW_S * 1e6:
            return f"{self._target.shown} has not answered a write for {(now_us - self._began_us) / 1e6:.0f} s."
        return None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run())

    def look(self) -> None:
        """Give up on a server that does not answer: what is under way ends as if the connection had been lost."""
        limit_s = _LAST_ANSWER_S if self._writer.is_closing else STATEMENT_S
        if self._began_us and clock.monotonic_us() - self._began_us > limit_s * 1e6:
            self.keeper.drop()

    def put(self, op: Op) -> None:
        self._queue.append(op)
        self._filled.set()

    @property
    def is_idle(self) -> bool:
        small = self._small
        is_free = not (self._is_busy or self._queue or self._unsure or self._problem) and self._alone is None
        return is_free and small is not None and small.connection is self.keeper.connection

    @property
    def is_connected(self) -> bool:
        return self.keeper.is_connected and not self._problem

    async def reach(self) -> None:
        """Return when the lane has a connection, and what was queued before is written."""
        if self.is_connected:
            return
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().create_future()
            self._probe.add_done_callback(lambda probe: None if probe.cancelled() else probe.exception())
            self.put(CallOp(_nothing, self._probe, ("", "")))
        await asyncio.shield(self._probe)

    async def send_alone(self, op: AppendOp) -> None:
        """Commit an append without a turn of the lane. Whatever keeps it from that, the lane does it then."""
        assert self._small is not None
        self._alone = alone = asyncio.get_running_loop().create_future()
        self._began_us = clock.monotonic_us()
        faults.point(_APPEND_POINTS[0])
        try:
            is_committed = await self._small.append(op.append, inline=True)
        except BaseException as error:
            self.keeper.drop()  # nobody knows what comes next on it
            self._unsure.append(op)
            if not isinstance(error, Exception):
                raise
        else:
            if is_committed:
                faults.point(_APPEND_POINTS[1])
                self._writer.deliver_alone(op)
            else:
                self._queue.appendleft(op)  # the lane finds out why
        finally:
            self._alone, self._began_us = None, 0
            alone.set_result(None)
            if self._queue or self._unsure:
                self._filled.set()

    async def close(self) -> None:
        self._filled.set()
        if self._task is not None:
            await self._task
        await self.keeper.close()

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            if self._alone is not None:
                await asyncio.shield(self._alone)
                continue
            if not self._queue and not self._unsure:
                if self._writer.is_closing:
                    return
                self._filled.clear()
                continue
            is_unsure = bool(self._unsure)
            ops: list[Op] = [self._unsure.popleft()] if is_unsure else self._next_batch()
            self._is_busy = True
            try:
                await self._commit(ops, again=is_unsure)
            except asyncio.CancelledError:
                self._writer.deliver(self, [(op, StoreError(f"{self._target.shown} is closed.")) for op in ops])
                raise
            except Exception as bug:  # the lane must live on, and everybody must be told
                self._writer.deliver(self, [(op, explain(bug, self._target)) for op in ops])
            finally:
                self._is_busy = False

    def _next_batch(self) -> list[Op]:
        """What goes together: writes of one sort, from the front of the queue."""
        first = self._queue.popleft()
        ops: list[Op] = [first]
        if isinstance(first, CallOp):
            return ops
        sorts = (MailOp, AppendOp) if isinstance(first, MailOp) or self is self._writer.side else type(first)
        size = records = 0
        new = {first.append.row.id} if isinstance(first, CreateOp) else set()
        later: list[Op] = []
        while self._queue and len(ops) < _BATCH and size < _BATCH_BYTES and records < _BATCH_RECORDS:
            op = self._queue.popleft()
            is_twice = isinstance(op, CreateOp) and op.append.row.id in new
            if not isinstance(op, sorts) or is_twice:
                later.append(op)
                continue
            ops.append(op)
            if isinstance(op, AppendOp | CreateOp):
                size += sum(len(data) for _, data in op.append.blobs)
                records += len(op.append.records)
                if isinstance(op, CreateOp):
                    new.add(op.append.row.id)
        self._queue.extendleft(reversed(later))
        return ops

    async def _commit(self, ops: Sequence[Op], *, again: bool = False) -> None:
        backoff, conflicts = Backoff(), 0
        since_us = clock.monotonic_us()
        while ops:
            under_way = False
            try:
                connection = await self.keeper.get()
                under_way = True
                self._began_us = clock.monotonic_us()
                outcomes = await self._attempt(connection, ops, again=again)
                if again:
                    await connection.execute(self._queries["settle"], timeout=STATEMENT_S)
                self._problem, self._began_us = "", 0
                self._writer.deliver(self, outcomes)
                return
            except Exception as error:
                self._began_us = 0
                sort, explained = sort_of(error), explain(error, self._target)
                explained.__cause__ = error if explained is not error else error.__cause__
            if sort is Sort.own or (sort is Sort.conflict and conflicts >= _CONFLICTS):
                if under_way:
                    await self._roll_back()
                await self._cut(ops, explained, again=again)
                return
            if sort is Sort.conflict:
                conflicts += 1
                await self._roll_back()
                await asyncio.sleep(min(0.001 * conflicts, 0.02) * (0.5 + clock.monotonic_us() % 1000 / 1000))
                continue
            if not self._problem:
                self._since_us = clock.monotonic_us()
            self._problem = str(explained)
            if sort is Sort.away:
                again = again or under_way
                self.keeper.drop()
            else:
                await self._roll_back()
            waited_s = (clock.monotonic_us() - since_us) / 1e6
            ops = self._give_up(ops, explained, waited_s=waited_s, at_once=sort is Sort.full)
            if ops:
                await asyncio.sleep(backoff.next_s())

    def _give_up(self, ops: Sequence[Op], why: HoldfastError, *, waited_s: float, at_once: bool) -> Sequence[Op]:
        """Those that go on waiting for the server."""
        if waited_s > _LAST_S and self._writer.is_closing:
            self._writer.deliver(self, [(op, why) for op in ops])
            return ()
        if not at_once and waited_s < _PATIENCE_S:
            return ops
        self._writer.deliver(self, [(op, why) for op in ops if not isinstance(op, AppendOp)])
        return [op for op in ops if isinstance(op, AppendOp)]

    async def _cut(self, ops: Sequence[Op], why: HoldfastError, *, again: bool) -> None:
        """One of these is at fault; find it, and have the others committed."""
        if len(ops) == 1:
            self._writer.deliver(self, [(ops[0], why)])
            return
        half = len(ops) // 2
        await self._commit(ops[:half], again=again)
        await self._commit(ops[half:], again=again)

    async def _roll_back(self) -> None:
        connection = self.keeper.connection
        if connection is not None and not connection.is_closed() and connection.is_in_transaction():
            try:
                await connection.execute("ROLLBACK", timeout=5)
            except Exception:
                self.keeper.drop()

    async def _attempt(self, connection: Any, ops: Sequence[Op], *, again: bool) -> Outcomes:
        """All of `ops`, committed; nobody was told yet."""
        first = ops[0]
        if isinstance(first, CallOp):
            faults.point(first.points[0]) if first.points[0] else None
            outcome = await first.work(connection, again)
            faults.point(first.points[1]) if first.points[1] else None
            return [(first, outcome)]
        if isinstance(first, CreateOp):
            return await self._create(connection, [op for op in ops if isinstance(op, CreateOp)])
        if self is self._writer.main:
            appends = [op for op in ops if isinstance(op, AppendOp)]
            faults.point(_APPEND_POINTS[0])
            is_small = len(appends) == 1 and not again and apply.is_small(appends[0].append)
            if is_small and not self._target.is_pooled and await self._append_small(connection, appends[0].append):
                faults.point(_APPEND_POINTS[1])
                return [(appends[0], Applied.committed)]
            found = await apply.append_all(connection, self._queries, [op.append for op in appends], again=again)
            faults.point(_APPEND_POINTS[1])
            return [(op, applied) for op, (applied, _) in zip(appends, found, strict=True)]
        return await self._write_mail(connection, ops, again=again)

    async def _append_small(self, connection: Any, append: Append) -> bool:
        if self._small is None or self._small.connection is not connection:
            self._small = apply.SmallAppends(connection, self._queries)
        return await self._small.append(append)

    async def _create(self, connection: Any, ops: Sequence[CreateOp]) -> Outcomes:
        faults.point(CREATE_POINTS[0])
        made = await apply.create_all(connection, self._queries, [(op.append, op.owner, op.fence) for op in ops])
        faults.point(CREATE_POINTS[1])
        outcomes: Outcomes = []
        for op, is_new in zip(ops, made, strict=True):
            if is_new:
                row = op.append.row
                outcomes.append((op, row if row.owner == op.owner else replace(row, owner=op.owner)))
            elif is_new is None:
                assert op.fence is not None
                outcomes.append(
                    (op, Fenced(f"Run {op.fence.run_id} has another owner by now; nothing was changed for it."))
                )
            else:
                try:
                    outcomes.append((op, await apply.run(connection, self._queries, op.append.row.id)))
                except HoldfastError as unreadable:
                    outcomes.append((op, unreadable))
        return outcomes

    async def _write_mail(self, connection: Any, ops: Sequence[Op], *, again: bool) -> Outcomes:
        writes = []
        for op in ops:
            assert isinstance(op, MailOp | AppendOp)
            writes.append(MailingAppend(op.append) if isinstance(op, AppendOp) else op.write)
        points = list(dict.fromkeys(_APPEND_POINTS if isinstance(op, AppendOp) else op.points for op in ops))  # type: ignore[union-attr]
        await connection.execute(self._queries["begin"], timeout=STATEMENT_S)
        found, accepted = await write_all(connection, self._queries, writes, again=again)
        for before, _ in points:
            faults.point(before)
        await connection.execute("COMMIT", timeout=STATEMENT_S)
        self.accepted = accepted
        for _, after in points:
            faults.point(after)
        outcomes: Outcomes = []
        for op, outcome in zip(ops, found, strict=True):
            is_bug = isinstance(outcome, Exception) and not isinstance(outcome, HoldfastError)
            outcomes.append((op, explain(outcome, self._target) if is_bug else outcome))  # type: ignore[arg-type]
        return outcomes
