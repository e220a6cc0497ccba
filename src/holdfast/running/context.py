"""One execution of a run: its journal, what the journal answers, and the parts that hold what happens to it.

`life` says whether the code may still go on, `gate` whether new bodies may start, `activity` what is under way, `waits`
what is waited for, `inbox` what has arrived. Each has its own file; here is what takes several of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from holdfast.base.telemetry import warn
from holdfast.codec import blob_digest
from holdfast.errors import Fenced, StoreError, StoreReplaced
from holdfast.journal.blobs import STATE, Texts, blob_in
from holdfast.journal.copied import copied_in
from holdfast.journal.journal import Journal
from holdfast.journal.replay import Entry, Replay
from holdfast.journal.savings import Savings
from holdfast.journal.ticks import Ticks
from holdfast.model import Fence, Kind, NoteKind, Record, RunRow, ThreadId
from holdfast.model.budgets import BUDGET, BUDGETS, Budget
from holdfast.model.plans import Plan
from holdfast.model.reasons import Blocked
from holdfast.running.activity import Activity
from holdfast.running.gate import Gate
from holdfast.running.guards import Guards
from holdfast.running.host import Host
from holdfast.running.inbox import Inbox
from holdfast.running.life import Branch, RunLife
from holdfast.running.outputs import AttemptOutputs, Outputs
from holdfast.running.places import Places
from holdfast.running.spending import Spending
from holdfast.running.streams import Streams
from holdfast.running.turning import Turning
from holdfast.running.waits import Waits

T = TypeVar("T")

_ASK_AGAIN_S, _LONGEST_S = 0.2, 5.0  # how long a store that is away is left alone


class RunContext:
    """One execution of one run."""

    def __init__(
        self,
        host: Host,
        row: RunRow,
        records: list[Record],
        *,
        blobs: Texts,
        code: str,
        on_stop: Callable[[BaseException | None], None],
        on_wait: Callable[[], None],
    ) -> None:
        self.host = host
        self.id = row.id
        loop = asyncio.get_running_loop()
        self.journal = Journal(host.store, row, host.settings, on_lost=on_stop)
        self.replay = Replay(records, turn=row.turn, code=code)
        self.life = RunLife(loop, on_stop)
        self.activity = Activity(loop)
        self.ticks = Ticks(self.replay, self.activity.quiet, self.activity.own_timers)
        self.waits = Waits(self.life, self.journal, host=host, on_wait=on_wait, is_held=self._holds_timers)
        self.gate = Gate(self.life, loop, paused=self.replay.paused, on_wait=on_wait, on_open=self.waits.expire_all)
        self.inbox = Inbox(self.waits, self.replay)
        self.guards = Guards(self)
        self.plan = Plan()
        self.receipt = Savings()
        self.copied = copied_in(row, records[0], self.replay)  #: what a fork was made with
        self.turning = Turning()
        self.outputs = Outputs(host.store, row.id)
        self.streams = Streams(self.journal, loop, records)
        self.places = Places()
        self._blobs = blobs
        self.spending: Spending | None = None  #: if it has a budget, or came of a run that has one
        if BUDGET in row.summary or BUDGETS in row.summary:
            self._watch_spending()

    # what it is

    @property
    def thread_id(self) -> ThreadId:
        return self.journal.row.thread_id

    @property
    def fence(self) -> Fence:
        row = self.journal.row
        return Fence(row.id, row.epoch, row.owner)

    def place(self, key: str) -> str:
        """What names a call of this run, and no other call of any run; the same on every replay."""
        return f"{self.journal.row.nonce}/0/{key}"  # the number was once another one, and never will be

    def random_place(self, branch: str, key: str) -> str:
        """As `place`, for what is derived and not recorded: a fork has the original's as long as copied calls are left
        in the branch."""
        copied, replay = self.copied, self.replay
        nonce = copied.nonce(branch, is_closed=replay.is_closed) if copied is not None and replay.unclaimed else None
        return self.place(key) if nonce is None else f"{nonce}/0/{key}"

    def idempotency_key(self, key: str, known: Entry | None = None) -> str:
        """Stable over attempts, processes and hosts; never shared by two calls, two stores or a fork.

        What is recorded of the call counts: that of one which a fork was made with is the original's.
        """
        if known is not None and (recorded := known.idempotency_key) is not None:
            return recorded
        return "hf-" + blob_digest(self.place(key).encode("utf-8", "surrogatepass"))

    def text(self, stored: str | None) -> str:
        """The JSON text of a stored value, wherever it lies."""
        digest = blob_in(stored)
        return self._blobs[digest].decode() if digest is not None else stored or "null"

    def know_state(self, stored: str | None, text: str) -> None:
        """The state of the last checkpoint, as stored: the next one may be a difference to it."""
        base = self._blobs.base(stored, text)
        if base is not None:
            self.journal.spills.keep(STATE, base)

    new_outputs = AttemptOutputs

    # what it is doing

    @property
    def may_commit_inline(self) -> bool:
        """Would nobody but this run's only branch wait, if a commit happened on the loop's own thread?"""
        return self.activity.lines == 1 and self.host.is_alone

    @property
    def may_have_left_over(self) -> bool:
        """Is anything of the journal not claimed or not delivered yet? Else nothing can be left over."""
        return self.replay.unclaimed > 0 or not self.ticks.is_replayed or self.replay.has_elsewhere

    @property
    def goes_on(self) -> bool:
        """Does code of the run still execute: the agent, or branches that clean up after its end?"""
        life = self.life
        return not life.dead and (not life.has_returned or (life.ending and bool(self.activity.tasks)))

    @property
    def is_waiting(self) -> bool:
        """Is every call that was made and has not returned one that waits for something that has not come?"""
        waits = self.waits.undecided
        made = self.activity.made
        return waits == len(self.waits) and made <= waits + self.gate.kept_back + len(self.ticks.cancels)

    def _holds_timers(self) -> bool:
        return self.gate.paused or self.life.parking or self.life.dead

    def adopt(self, task: asyncio.Task[Any], branch: Branch) -> None:
        """A task of this run was created."""
        self.activity.add(task, branch)
        self.ticks.touch()
        task.add_done_callback(self._task_done, context=self.activity.stillness.context)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if self.activity.remove(task):
            self.activity.end_line()
        self.ticks.touch()

    # what it may use

    @property
    def budgets(self) -> tuple[str, ...]:
        """The runs whose budgets bind what it starts."""
        return () if self.spending is None else self.spending.owners

    def limit_spending(self, given: Budget, said: Mapping[str, Any]) -> None:
        """Have it use no more than this, with all that comes of it; who said so."""
        (self.spending or self._watch_spending()).change(given, said)

    def _watch_spending(self) -> Spending:
        self.spending = spending = Spending(self, may_have_others=self.journal.row.epoch > 1)
        self.gate.levy(spending.toll)
        return spending

    # what it says

    def report(self, what: NoteKind, state: dict[str, Any], *, key: str = "") -> None:
        """Note something for people; a replay does not note it again."""
        if self.life.dead or (not key and self.replay.unclaimed > 0):
            return
        if asyncio._get_running_loop() is self.life.loop:  # None in a thread
            self._note(what, state, key)
        else:
            self.life.loop.call_soon_threadsafe(self._note, what, state, key)  # before the body's own end arrives there

    def _note(self, what: NoteKind, state: dict[str, Any], key: str) -> None:
        if self.life.dead:
            return
        summary = (
            self.journal.summary
        )  # changed with the note: the row's sums are those of the records it is stored with
        if what is NoteKind.usage:
            for each in ("input_tokens", "output_tokens", "cost"):
                summary[each] = summary.get(each, 0) + state[each]
        else:
            summary[what] = state
        self.journal.add(Kind.noted, key, what, payload=json.dumps(state))

    # the store

    async def wait_lease(self) -> None:
        """Wait until this process may act again; if somebody took the run over meanwhile, it never may."""
        host, lapses = self.host, -1
        while lapses != host.lapses or not host.has_lease():
            lapses = host.lapses
            await host.wait_lease()
            row = await self.patiently(lambda: host.store.run(self.id))
            if row is None or (row.epoch, row.owner) != self.fence[1:]:
                await self.fenced()

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store; while it is away, again and again: that is no failure of the agent's."""
        wait_s = _ASK_AGAIN_S
        while True:
            try:
                return await ask()
            except StoreError as error:
                if self.life.dead or isinstance(error, Fenced | StoreReplaced):
                    raise
                warn("run.waits_for_the_store", run=self.id, error=str(error))
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_S)

    # how it ends

    async def block(self, reason: Blocked) -> Any:
        """This code cannot go on with this journal: stop the run, execute nothing more."""
        return await self.life.block(reason)

    async def fenced(self) -> Any:
        """Somebody else owns the run: this execution has nothing more to say."""
        self.journal.oust()
        return await self.life.lose()

    def freeze(self) -> None:
        """It is being given up: from here on nothing arrives, and nothing expires."""
        self.life.park()
        self.ticks.stop()

    def thaw(self) -> None:
        """It was not given up after all: what came meanwhile counts."""
        self.life.go_on()
        self.ticks.go_on()
        self.waits.expire_all()

    def die(self) -> None:
        """From here on durable calls neither happen nor return."""
        self.life.die()
        self.ticks.stop()

    def stop(self) -> None:
        """Mark every branch dead: whatever they still do, they change nothing."""
        self.life.tear_down()
        self.ticks.stop()
        self.journal.abandon()
        for task in list(self.activity.tasks):
            task.cancel()

    def let_go(self) -> None:
        """The execution is over: hold nothing that holds this, so that no garbage collector is needed."""
        self.outputs.let_go(is_over=self.journal.row.status.is_final)
        self.life.let_go()
        self.gate.let_go()
        self.waits.let_go()
        self.journal.let_go()
        self.ticks.let_go()
        self.activity.let_go()
        self.turning.let_go()
