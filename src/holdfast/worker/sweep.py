"""What a worker does besides executing: it looks for mail, for runs to take up, for what is due.

One loop. It waits for the bell of the store, for the next due time, or for the next sweep, and then looks at
everything. Every worker looks at everything: there is no process whose death would stop the others from being woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.base.clock import AN_HOUR_US, is_ahead, monotonic_us, now_us
from holdfast.base.seldom import Seldom
from holdfast.base.telemetry import warn
from holdfast.codec import said_by
from holdfast.control import lifecycle
from holdfast.errors import HoldfastError, StoreError
from holdfast.model import FINAL, Proof, RunFilter, RunId, RunRow, Status
from holdfast.running.host import TimerHandle
from holdfast.worker.choosing import choose, closed, limits, next_cursor
from holdfast.worker.execution import Execution
from holdfast.worker.executor import Executor
from holdfast.worker.jumps import Jumps
from holdfast.worker.owners import forget_dead_workers
from holdfast.worker.reach import Reach
from holdfast.worker.strays import Strays

_AT_ONCE = 500  # runs claimed in one go
_LEAST = 200  # runs looked at: those of a queue that is full must not hide the others
_IN_VAIN = 3  # claims in a row that got nothing
_SUSPECT = 3  # claims without progress
_TRIAL_US = 400_000  # for how long such a run is alone under suspicion
_AHEAD = 1000  # runs looked through for times that are too far ahead
_EVER = 2**62
_LOST = 1000  # runs of dead workers looked at in one go


class Attendant:
    """The loop of one worker.

    `only_own`: it takes up nothing but the runs that were started or resumed by its own app.
    `chores` are done with every sweep: schedules, events. `remedies` put right what a wrong clock has written.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        only_own: bool,
        chores: Sequence[Callable[[int], Awaitable[object]]] = (),
        remedies: Sequence[Callable[[int], Awaitable[object]]] = (),
    ) -> None:
        self._executor = executor
        self._store = executor.store
        self._only_own = only_own
        self._chores = chores
        self._remedies = remedies
        self._task: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._cursor = ""
        self._suspected_us = 0
        self._trial = 1
        self._skip = 0
        self._swept_us = 0
        self._next: TimerHandle | None = None
        self._looks = 0
        self._found = 0
        self._missing: set[Execution] = set()
        self._told: dict[RunId, str] = {}
        self._failures = Seldom()
        self._reach = Reach(executor.store)
        self._jumps = Jumps()
        self._strays = Strays(executor.store, executor.pasts)
        self.queues: Sequence[str] | None = None  #: to take runs from; None: all
        executor.nudge, executor.quiet = self.nudge, self.quiet

    def begin(self) -> None:
        if self._only_own:
            self._swept_us = monotonic_us()  # what the app was asked for comes first
        if self._task is None:
            self._task = asyncio.create_task(self._attend())
            self._looking = asyncio.create_task(self._reach.keep_looking(self._executor.settings.sweep_s))

    async def stop(self) -> None:
        tasks = {task for task in (self._task, self._looking) if task is not None}
        self._task = self._looking = None
        if tasks and all(task.get_loop() is asyncio.get_running_loop() for task in tasks):  # else it was forked
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._next is not None:
            self._next.cancel()

    def nudge(self) -> None:
        """Look at everything now."""
        self._swept_us = 0
        self._store.ring()

    async def quiet(self) -> None:
        """Return when no run does anything here but wait, and nothing is left to be taken up."""
        calm = 0
        while calm < 2:
            looks, found = self._looks, self._found
            while self._looks < looks + 2:
                self.nudge()
                await asyncio.sleep(0.001)
            is_calm = self._found == found and all(execution.is_idle for execution in self._executor.executions)
            calm = calm + 1 if is_calm else 0

    async def _attend(self) -> None:
        sweep_s = self._executor.settings.sweep_s
        while True:
            try:
                await self._look()
            except StoreError as error:
                self._warn("sweep.failed", error=str(error))
            except Exception as error:  # whatever it is, the worker goes on looking
                self._warn("attend.failed", error=said_by(error))
            self._looks += 1
            since_s = (monotonic_us() - self._swept_us) / 1_000_000
            await self._store.changed(max(0.005, sweep_s - since_s))

    def _warn(self, event: str, *, error: str, chore: str = "") -> None:
        if self._failures.is_due(event + chore, error):  # looks are many
            warn(event, error=error, **({"chore": chore} if chore else {}))

    async def _look(self) -> None:
        if self._executor.lease.is_lost:
            for execution in self._executor.executions:
                execution.lose()  # somebody removed this worker: nothing here is its own any more
            return
        is_sweep = monotonic_us() - self._swept_us >= self._executor.settings.sweep_s * 1_000_000
        if is_sweep:
            self._swept_us = monotonic_us()
        if is_sweep and self._reach.is_there:
            await self._take_over()
            for chore in self._chores:
                if self._reach.is_there and self._jumps.is_steady():
                    await self._do(chore)
        if not self._reach.is_there:
            return
        await self._hear(is_sweep=is_sweep)
        if not self._jumps.is_steady():
            return
        if self._only_own:
            await self._take_own()
        else:
            if is_sweep and self._jumps.is_time_to_look():
                await self._put_right()
            await self._claim()

    async def _put_right(self) -> None:
        """Look for times that a clock which was ahead has written. Whose own is not the store's is no judge of them."""
        if abs(self._store.wall_clock_us() - now_us()) <= AN_HOUR_US:
            for each in (*self._remedies, self._put_runs_right):
                await self._do(each)

    async def _put_runs_right(self, now: int) -> None:
        """Have runs taken up that became ready by a clock that was ahead: theirs is a time that is far away."""
        executor = self._executor
        asked = await self._store.ready(agents=list(executor.agents), queues=self.queues, now=_EVER, limit=_AHEAD)
        for row in asked:
            was_ready = row.status is Status.queued and row.wake_at is not None and row.wake_at <= row.updated_at
            if was_ready and row.wake_at is not None and row.wake_at > now and is_ahead(row.updated_at, now):
                warn("run.ahead", run=row.id, why="a clock was ahead when it became ready; it is taken up now")
                note = "it became ready by a clock that was ahead"
                await lifecycle.requeue(self._store, row.id, by=executor.lease.worker_id, note=note)

    async def _do(self, chore: Callable[[int], Awaitable[object]]) -> None:
        """One that fails does not keep runs from being taken up."""
        try:
            self._found += bool(await chore(now_us()))
        except HoldfastError as error:
            self._warn("chore.failed", chore=getattr(chore, "__qualname__", "?"), error=str(error))

    async def _hear(self, *, is_sweep: bool) -> None:
        """Have the runs that execute here see their mail; drop those that are somebody else's by now."""
        executions = {execution.run.id: execution for execution in self._executor.executions}
        if not executions and not is_sweep:
            return
        counts = await self._store.mail_counts(self._executor.lease.worker_id)
        if is_sweep and not self._executor.is_starting:
            owned = {run_id: epoch for run_id, (epoch, _) in counts.items() if self._executor.local(run_id) is None}
            await self._strays.look(owned, self._executor.lease.worker_id)
        missing = set()
        for run_id, execution in executions.items():
            epoch, number = counts.get(run_id, (0, 0))
            if epoch != execution.run.journal.row.epoch:
                missing.add(execution)
            elif number > execution.seen_mail:
                self._found += 1
                execution.mail_came()
        for execution in missing & self._missing:  # at one look only, it may just be on its way out
            execution.lose()
        self._missing = missing

    # runs that may be claimed

    async def _claim(self) -> None:
        executor = self._executor
        in_vain = 0
        full: set[str] = set()
        while (free := min(executor.executions.free_slots, _AT_ONCE)) > 0:
            now = now_us()
            limit = max(free, _LEAST) + self._skip
            states = await executor.queues.load()
            ready = await self._store.ready(
                agents=list(executor.agents),
                queues=self.queues,
                now=now,
                limit=limit,
                after=self._cursor,
                closed=[*closed(states, now), *full],
            )
            if not ready:
                break
            there_are_more = len(ready) == limit
            if there_are_more:
                ready = ready[self._skip :]  # another worker is at the first ones
            chosen = choose(ready, states=states, slots=free, now=now, cursor=self._cursor)
            self._cursor = next_cursor(chosen, self._cursor, ready)
            taken = await executor.take_many(chosen)
            self._found += len(taken)
            self._skip = min(len(chosen) * 2, _AT_ONCE) if len(taken) * 2 < len(chosen) else 0
            left = {row.queue for row in chosen if row.id not in taken}
            found_full = (left & limits(states).keys()) - full
            full |= found_full
            if there_are_more and found_full:
                continue  # however many queues are full, they hide no other
            # Others may have been quicker, or the queues are full: then nothing is to be had before some run ends.
            in_vain = 0 if taken else in_vain + 1
            if in_vain == _IN_VAIN or (len(taken) < free and not self._skip):
                break
        self._wake_at(await self._store.next_wake())

    def _wake_at(self, due_us: int | None) -> None:
        """Look again when the next run is due; what is due by now and was left waits for room."""
        if self._next is not None:
            self._next.cancel()
        self._next = None
        if due_us is not None and due_us > now_us():
            self._next = self._executor.timers.at(due_us, self._store.ring)

    async def _take_own(self) -> None:
        due: list[int] = []
        ready: list[RunRow] = []
        executor = self._executor
        for run_id in list(executor.started):
            row = await self._store.run(run_id) if executor.local(run_id) is None else None
            if row is None:
                continue
            if row.status in FINAL:
                executor.started.discard(run_id)
            elif row.owner is None and row.wake_at is not None:
                if row.wake_at <= now_us():
                    ready.append(row)
                else:
                    due.append(row.wake_at)
        taken = await executor.take_many(ready)
        self._found += len(taken)
        for row in ready:
            if row.id not in taken:
                await self._tell_obstacle(row)
        self._wake_at(min(due, default=None))

    async def _tell_obstacle(self, row: RunRow) -> None:
        """Somebody waits for this very run, and has not asked about its queue."""
        why = await self._executor.admission.obstacle(row)
        if why and self._told.get(row.id) != why:
            self._told[row.id] = why
            warn("run.held_back", run=row.id, why=why, advice="it goes on when its queue lets it; see holdfast queues")

    # runs that others left

    async def _take_over(self) -> None:
        executor = self._executor
        proofs = {
            worker: proof
            for worker, proof in (await self._store.dead_workers()).items()
            if proof is not Proof.lease or executor.lease.trusts_leases()
        }
        if not proofs:
            return
        dead = frozenset(proofs)
        lost = [
            row
            for agent in list(executor.agents)
            for row in await self._store.runs(RunFilter(orphaned_from=dead, agent=agent, limit=_LOST))
            if row.owner in proofs
            and row.status not in FINAL
            and row.status is not Status.quarantined
            and (self.queues is None or row.queue in self.queues)
            and (not self._only_own or row.id in executor.started)
        ]
        if not lost:
            await forget_dead_workers(self._store)
        lost.sort(key=lambda row: row.created_at)
        lost = self._without_suspects(lost)
        roots = [row for row in lost if row.parent_id is None][: max(executor.executions.free_slots, 0)]
        taken = [row for row in lost if row.parent_id is not None] + roots
        for start in range(0, len(taken), _AT_ONCE):
            part = taken[start : start + _AT_ONCE]
            self._found += len(await executor.take_many(part, proofs=proofs))

    def _without_suspects(self, lost: list[RunRow]) -> list[RunRow]:
        """Of runs whose processes keep dying few are taken at a time, so that one that kills does not discredit others.

        One, then two, then four, as long as this process lives; those that are nearly blocked alone.
        """
        suspects = sorted((row for row in lost if row.claims >= _SUSPECT), key=lambda row: row.claims)
        if not suspects:
            return lost
        others = [row for row in lost if row.claims < _SUSPECT]
        now = monotonic_us()
        if now - self._suspected_us < _TRIAL_US:
            return others
        self._suspected_us = now
        nearly_blocked = self._executor.settings.crash_limit - _SUSPECT
        tried = [row for row in suspects if row.claims < nearly_blocked][: self._trial] or suspects[:1]
        self._trial *= 2  # this process has survived the one before
        return others + tried
