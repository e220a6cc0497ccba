"""One execution of a run: its journal, what the journal answers, what it waits for, and the keys of its calls.

Calls are counted per branch and name as the code makes them, whether the journal answers or not: so a call has the same
key in every execution of the same code. How branches get their names is told in `branches`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.base.clock import now_us
from holdfast.base.shields import Shield, go_on_with
from holdfast.base.telemetry import warn
from holdfast.codec import blob_digest
from holdfast.errors import Fenced, StoreError, StoreReplaced, UsageError
from holdfast.journal.blobs import blob_in
from holdfast.journal.journal import Journal
from holdfast.journal.mismatches import mismatch
from holdfast.journal.receipts import Receipt
from holdfast.journal.recovery import CANCELLED, PROVEN, Doubt
from holdfast.journal.replay import Entry, Replay
from holdfast.journal.stillness import Quiet, Stillness
from holdfast.journal.ticks import Ticks
from holdfast.model import Fence, Kind, Mail, Record, RunRow
from holdfast.running.host import Host, Timer
from holdfast.running.own_waits import OwnTimers
from holdfast.running.scopes import Scope, where

T = TypeVar("T")

_ASK_AGAIN_S, _LONGEST_S = 0.2, 5.0  # how long a store that is away is left alone
_SWALLOWED = 2  # how often code may catch its cancellation and go on, before it is stopped
_IGNORED = 100  # how often code may ignore that its execution is over, before it is left to itself
ASIDE = "hf:interrupt"  #: the branches of interrupt handlers


def is_handler(path: str) -> bool:
    """Is it the branch of an interrupt's handler itself?"""
    return path.startswith(ASIDE) and "/" not in path


@dataclass(slots=True, eq=False)
class Wait:
    """A branch that waits for something from outside: a time, a signal, a person, a child."""

    key: str
    kind: str  #: timer signal question child doubt
    shown: dict[str, Any]
    due_us: int | None
    future: asyncio.Future[Any]
    timer: Timer | None = None

    @property
    def subject(self) -> str:
        """Which signal or child it waits for."""
        return str(self.shown.get("child" if self.kind == "child" else "name", ""))

    def end(self, value: Any) -> bool:
        """What was waited for is there; False if something else was first."""
        if self.future.done():
            return False
        self.future.set_result(value)
        return True


def _ignore(*_: object) -> None:
    pass


class RunContext:
    """One execution of one run: its journal, what the journal answers, and its branches."""

    def __init__(
        self,
        host: Host,
        row: RunRow,
        records: list[Record],
        *,
        blobs: dict[str, bytes],
        code: str,
        on_stop: Callable[[BaseException | None], None],
        on_wait: Callable[[], None],
    ) -> None:
        self.host = host
        self.id = row.id
        self.thread_id = row.thread_id
        self.nonce = row.nonce
        self.generation = row.generation
        self.blobs = blobs
        self.loop = asyncio.get_running_loop()
        self.journal = Journal(host.store, row, host.settings, on_lost=on_stop)
        self.replay = Replay(records, generation=row.generation, code=code)
        self.own_timers = OwnTimers(self.loop)  #: what the code waits for by itself, and no other process would
        self.ticks = Ticks(self.replay, self.quiet, self.own_timers)
        self.tasks: dict[asyncio.Task[Any], Scope] = {}
        self.stillness = Stillness(self.tasks)
        self.lines = 1  #: branches and timeouts that may go on by themselves
        self.bodies = 0  #: bodies, verifications and waits for a retry under way
        self.apart = 0  #: branches that do something between two calls, which takes its time
        self.acting = 0  #: effects whose body is under way
        self.threads = 0  #: `def` bodies whose thread lives
        self.waits: dict[str, Wait] = {}
        self._listening: dict[tuple[str, str], OrderedDict[str, Wait]] = {}  # the same, by what they wait for
        self.deadlines: dict[str, tuple[int, Callable[[], None]]] = {}  #: open timeouts: when due (µs), what then
        self.sagas: list[Any] = []  #: blocks that are open
        self.verdicts: dict[str, dict[str, Any]] = {}  #: what persons said about effects, not acted on yet, by key
        self.answers: dict[str, dict[str, Any]] = {}  #: what persons answered, by the question's key
        self.signals: dict[str, deque[Mail]] = {}  #: not received yet, by name
        self.decided_signals: dict[int, Mail] = {}  #: given to a wait before, in case the code gives it up now
        self.ended_children: set[str] = set()
        self.queue = row.queue
        self.unpatched: set[str] = set()
        self.used_keys: set[str] = set()  #: explicit keys of this execution
        self._thread = threading.get_ident()
        self.dead = False
        self.parking = False  #: being given up: nothing that is waited for arrives any more
        self.paused = self.replay.paused
        self.draining = False  #: the process is closing: no new bodies
        self.cancelling = False  #: the cancellation is on its way to the code: no new bodies
        self.cancelled = False  #: the code was told to stop
        self.ending = False  #: the agent has returned or raised, and its branches are being ended
        self.intents: set[str] = set()  #: effects that may have happened, and whose outcome is not recorded
        self.unsure: set[str] = set()  #: effects that are tried again, and may have happened before
        self.left_in_doubt: set[str] = set()  #: effects that nobody was asked about, because the run was cancelled
        self._swallowed = 0
        self._is_torn_down = False
        self._ignored = 0
        self.forgotten: UsageError | None = None  #: the code made a call, and did not await it
        self.halted = False  #: dead, cancelled or wrong: a durable call has to ask whether it may go on
        self.gate: asyncio.Future[None] | None = None  #: while something keeps new bodies from starting
        self.kept_back = 0  #: calls that wait at the gate
        self.asides = 0  #: handlers of interrupts under way
        self.stop_reason: dict[str, Any] | None = None
        self._on_stop = on_stop
        self._on_wait = on_wait
        self.ambient: BaseException | None = None  #: what is being handled by whoever runs the loop
        self.receipt = Receipt()

    @property
    def may_commit_inline(self) -> bool:
        """Would nobody but this run's only branch wait, if a commit happened on the loop's own thread?"""
        return self.lines == 1 and self.host.is_alone

    # the life of its tasks

    def adopt(self, task: asyncio.Task[Any], scope: Scope) -> None:
        """A task of this run was created."""
        self.tasks[task] = scope
        self.stillness.loosen(scope)
        self.ticks.touch()
        task.add_done_callback(self._task_done, context=self.stillness.context)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if self.tasks.pop(task, None) is not None:
            self.lines -= 1
        self.ticks.touch()

    def quiet(self) -> Quiet:
        """What its tasks are doing, apart from durable calls."""
        now = self.stillness.now()
        return Quiet.outside if self.apart and now is Quiet.settled else now

    def thread_ended(self) -> None:
        self.threads -= 1

    def stop(self) -> None:
        """Mark every branch dead: whatever they still do, they change nothing."""
        self.die()
        self._is_torn_down = True
        self.journal.abandon()
        for task in list(self.tasks):
            task.cancel()

    def let_go(self) -> None:
        """The execution is over: hold nothing that holds this, so that no garbage collector is needed."""
        self._on_stop, self._on_wait = _ignore, _ignore
        self.ambient = None
        self.journal.let_go()
        self.ticks.let_go()
        self.stillness.let_go()
        for task in [task for task in self.tasks if task.done()]:
            del self.tasks[task]

    def is_dead(self) -> bool:
        return self.dead

    def die(self) -> None:
        """From here on durable calls neither happen nor return."""
        self.dead = self.halted = True
        self.ticks.stopped = True

    # clean-up: what no cancellation cuts off

    def handled(self) -> type[BaseException] | None:
        """What the code is handling that asks; of the task that it runs in, not of whoever runs the loop."""
        error = sys.exception()
        return None if error is None or error is self.ambient else type(error)

    def is_unwinding(self, handling: type[BaseException] | None) -> bool:
        """Does code that handles such an exception clean up?"""
        return handling is not None and (issubclass(handling, asyncio.CancelledError) or self.cancelled or self.ending)

    def is_clean_up(self, scope: Scope) -> bool:
        """Is the call that this branch made last one that goes on to its end, whoever cancels it?"""
        return scope.cleans_up or self.is_unwinding(scope.handling)

    def owe(self, scope: Scope, shield: Shield) -> None:
        """Clean-up has kept a cancellation. The one that is being handled goes on; if the code drops it, this comes."""
        if shield.kept is not None:
            scope.owed = shield.kept
            self.halted = True
            go_on_with(shield.handled, shield.kept)

    async def check(self, scope: Scope) -> None:
        """Called by durable calls of a halted run, in the branch's own task: returns if this one may be made."""
        await self._check(scope, self.handled())

    async def _check(self, scope: Scope, handling: type[BaseException] | None) -> None:
        if self.dead:
            await self.never()
        if scope.owed is not None and handling is None and not scope.cleans_up:
            owed, scope.owed = scope.owed, None
            if scope.task is not None and scope.task.cancelling():
                raise owed
        if self.forgotten is not None and not scope.cleans_up and handling is None:
            raise UsageError(str(self.forgotten))
        if self.cancelled and not scope.cleans_up and handling is None:
            # The code caught its cancellation and goes on: it is told again, then stopped for good. Other branches
            # than the agent's own hear of it here, and may have something to undo.
            self._swallowed += scope.was_told or not scope.path
            scope.was_told = True
            if self._swallowed > _SWALLOWED:
                await self.block({"why": "cancelled"})
            raise asyncio.CancelledError("this run was cancelled")

    def forget(self, said: str) -> None:
        """The code made a call and did not await it: whatever it calls next, and its end, is told so."""
        self.forgotten = self.forgotten or UsageError(said)
        self.halted = True

    # the gate: a pause, a closing process, an interrupt that is being handled

    def shut_gate(self) -> None:
        if self.gate is None:
            self.gate = self.loop.create_future()

    def open_gate(self) -> None:
        """Let new bodies start again, unless another reason not to remains."""
        gate = self.gate
        if gate is None or self.paused or self.draining or self.cancelling or self.asides:
            return
        self.gate = None
        gate.set_result(None)
        self._expire_all()

    async def pass_gate(self, scope: Scope, *, takes_back: bool = False) -> None:
        """Return when a new body may start. Handlers of interrupts pass while they hold up the rest.

        `takes_back`: it is an undo, which no cancellation keeps from being done.
        """
        while (gate := self.gate) is not None:
            if self.asides and scope.path.startswith(ASIDE) and not (self.paused or self.draining or self.cancelling):
                return
            was_in_call, scope.in_call = scope.in_call, True
            self.kept_back += 1
            self._on_wait()
            try:
                await asyncio.shield(gate)
            finally:
                self.kept_back -= 1
                scope.in_call = was_in_call
        if self.halted and (self.dead or not takes_back):
            await self._check(scope, scope.handling)

    async def never(self) -> Any:
        """Wait for the end of this execution: the branch is being torn down."""
        if self._is_torn_down and self._ignored < _IGNORED:
            self._ignored += 1
            raise asyncio.CancelledError("this execution is over")  # a `finally` may come here on its way out
        await self.loop.create_future()

    @property
    def fence(self) -> Fence:
        row = self.journal.row
        return Fence(row.id, row.epoch, row.owner)

    async def wait_lease(self) -> None:
        """Wait until this process may act again; if somebody took the run over meanwhile, it never may."""
        await self.host.wait_lease()
        row = await self.patiently(lambda: self.host.store.run(self.id))
        if row is None or (row.epoch, row.owner) != self.fence[1:]:
            await self.fenced()

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store; while it is away, again and again: that is no failure of the agent's."""
        wait_s = _ASK_AGAIN_S
        while True:
            try:
                return await ask()
            except StoreError as error:
                if self.dead or isinstance(error, Fenced | StoreReplaced):
                    raise
                warn("run.waits_for_the_store", run=self.id, error=str(error))
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_S)

    async def fenced(self) -> Any:
        """Somebody else owns the run: this execution has nothing more to say."""
        self.journal.oust()
        self._on_stop(None)
        return await self.never()

    async def block(self, reason: dict[str, Any]) -> Any:
        """This code cannot go on with this journal: stop the run, execute nothing more."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self._on_stop(None)
        return await self.never()

    def report(self, what: str, state: dict[str, Any], *, key: str = "") -> None:
        """Note something for people; a replay does not note it again."""
        if self.dead or (not key and self.replay.has_unclaimed):
            return
        summary = self.journal.summary
        if what == "usage":
            for each in ("input_tokens", "output_tokens", "cost"):
                summary[each] = summary.get(each, 0) + state[each]
        else:
            summary[what] = state
        if threading.get_ident() == self._thread:
            self._note(what, state, key)
        else:
            self.loop.call_soon_threadsafe(self._note, what, state, key)  # before the body's own end arrives there

    def _note(self, what: str, state: dict[str, Any], key: str) -> None:
        if not self.dead:
            self.journal.add(Kind.noted, key, what, payload=json.dumps(state))

    # effects in doubt

    def doubt(self, intent: Record) -> Doubt:
        """What is known about an attempt that was cut off: nobody works at it once the claim after it was proven."""
        for epoch, at, proof in self.replay.claims:
            if epoch > intent.epoch:
                return Doubt("crash", is_over=proof in PROVEN, since_us=at)
        return Doubt("crash", is_over=False, since_us=now_us())

    def take_verdict(self, key: str) -> dict[str, Any] | None:
        """What a person said about an effect in doubt, if they did."""
        return self.verdicts.pop(key, None)

    def without_settled(self, entries: list[Entry]) -> list[Entry]:
        """Those of the recorded calls, which the code no longer makes, that no person has settled."""
        left = []
        for entry in entries:
            given = self.take_verdict(entry.key)
            if given is None:
                left.append(entry)
            else:
                self.record_verdict(
                    entry.key, entry.name, entry.attempt, given["verdict"], "person", {"cause": "code change"}, given
                )
                entry.given = given
        return left

    def record_verdict(
        self,
        key: str,
        name: str,
        attempt: int,
        verdict: str,
        by: str,
        evidence: dict[str, Any],
        given: dict[str, Any] | None = None,
    ) -> None:
        """How an effect in doubt was settled, with the evidence; `given` is what a person said."""
        payload = {"verdict": verdict, "by": by, "evidence": evidence, "attempt": attempt, "given": given}
        self.journal.add(Kind.settled, key, name, attempt=attempt, payload=json.dumps(payload))

    # waiting

    @contextmanager
    def busy(self) -> Generator[None, None, None]:
        """Something is under way that the run must not be parked in the middle of."""
        self.bodies += 1
        try:
            yield
        finally:
            self.bodies -= 1

    @property
    def is_waiting(self) -> bool:
        """Is every call that was made and has not returned one that waits for something that has not come?"""
        made = sum(scope.in_call for scope in self.tasks.values())
        waits = sum(not wait.future.done() for wait in self.waits.values())
        return waits == len(self.waits) and made <= waits + self.kept_back + self.ticks.awaited_cancels

    async def wait(self, key: str, kind: str, shown: dict[str, Any], *, due_us: int | None = None) -> Any:
        """Hold this branch until something ends the wait with a value; None once it is due."""
        wait = Wait(key, kind, shown, due_us, self.loop.create_future())
        self.waits[key] = wait
        listening = self._listening.setdefault((kind, wait.subject), OrderedDict())
        listening[key] = wait
        if due_us is not None:
            wait.timer = self.host.timers.at(due_us, lambda: self._expire(wait))
        self._on_wait()
        try:
            return await wait.future
        finally:
            if self.waits.get(key) is wait:
                del self.waits[key]
            listening.pop(key, None)
            if not listening and self._listening.get((kind, wait.subject)) is listening:
                del self._listening[kind, wait.subject]
            if wait.timer is not None:
                wait.timer.cancel()

    @property
    def holds_timers(self) -> bool:
        """Does nothing expire now, however late it is?"""
        return self.paused or self.parking or self.dead

    def _expire(self, wait: Wait) -> None:
        if wait.due_us is not None and wait.due_us <= now_us() and not self.holds_timers:
            wait.end(None)

    def _expire_all(self) -> None:
        """What became due while nothing could expire."""
        for wait in list(self.waits.values()):
            self._expire(wait)
        now = now_us()
        for due, expire in list(self.deadlines.values()):
            if due <= now:
                expire()

    async def wait_until(self, key: str, due_us: int) -> None:
        """Wait for the time of the next attempt of a call; the run may leave memory meanwhile."""
        if due_us > now_us():
            await self.wait(key, "timer", {"name": key}, due_us=due_us)

    async def hold(self, key: str, reason: dict[str, Any]) -> dict[str, Any]:
        """Hold this branch until a person settles the effect; the rest of the run goes on.

        A run that was cancelled asks nobody any more.
        """
        if self.cancelled:
            return {"verdict": CANCELLED}
        self.journal.add(Kind.noted, key, "held", payload=json.dumps(reason))
        self._show_doubts(key)
        try:
            verdict: dict[str, Any] = await self.wait(key, "doubt", reason)
            return verdict
        finally:
            self._show_doubts()

    def stop_asking(self) -> None:
        """The run was cancelled: what is in doubt ends so, and the code that waits for it can clean up."""
        for wait in list(self.waits.values()):
            if wait.kind == "doubt":
                wait.end({"verdict": CANCELLED})

    def _show_doubts(self, *more: str) -> None:
        """Let people see what is in doubt while other branches go on."""
        self.journal.summary["held"] = sorted({*more, *(w.key for w in self.waits.values() if w.kind == "doubt")})

    def thaw(self) -> None:
        """It was not given up after all: what came meanwhile counts."""
        self.parking = False
        self.ticks.go_on()
        self._expire_all()

    def next_due_us(self) -> int | None:
        """When the first of what it waits for is due."""
        due = [w.due_us for w in self.waits.values() if w.due_us is not None]
        return min([*due, *(due for due, _ in self.deadlines.values())], default=None)

    # what comes from outside

    def settle_by(self, key: str, verdict: dict[str, Any]) -> None:
        """A person's verdict arrived."""
        wait = self.waits.get(key)
        if (wait is None or wait.kind != "doubt" or not wait.end(verdict)) and key in self.replay.entries:
            self.verdicts[key] = verdict

    def answer_by(self, key: str, answer: dict[str, Any]) -> None:
        """A person's answer to a question arrived."""
        self.answers[key] = answer
        wait = self.waits.get(key)
        if wait is not None and wait.kind == "question":
            wait.end(answer)

    def signal(self, mail: Mail) -> None:
        """A signal arrived: it goes to whoever waits for it longest, or waits itself."""
        listening = self._listening.get(("signal", mail.key))
        while listening:
            if listening.popitem(last=False)[1].end(mail):
                return
        self.signals.setdefault(mail.key, deque()).append(mail)

    def next_signal(self, name: str) -> Mail | None:
        waiting = self.signals.get(name)
        return waiting.popleft() if waiting else None

    def return_signal(self, mail: Mail) -> None:
        """Nobody has seen it: it is the next one again."""
        waiting = self.signals.setdefault(mail.key, deque())
        if not waiting or mail.number < waiting[0].number:
            waiting.appendleft(mail)
        else:
            self.signals[mail.key] = deque(sorted([*waiting, mail], key=lambda m: m.number))

    def child_ended(self, child: str) -> None:
        self.ended_children.add(child)
        for wait in self._listening.get(("child", child), {}).values():
            wait.end(child)

    # calls

    def new_key(self, scope: Scope, name: str, explicit: str | None) -> str:
        """The key of a call that was not claimed: the journal does not know it."""
        if explicit is not None:
            return explicit
        key, scope = self._expected_key(scope, name)
        while key in self.replay.entries:
            scope.calls[name] += 1
            key = f"{scope.prefix()}{name}#{scope.calls[name]}"
        return key

    def _expected_key(self, scope: Scope, name: str) -> tuple[str, Scope]:
        """The key of the call that was counted last, and the scope in which it counts."""
        reserved = scope.reserved
        if reserved is None:
            return f"{scope.prefix()}{name}#{scope.calls[name]}", scope
        reserved.scope.calls.setdefault(name, 0)
        return f"{reserved.scope.prefix()}{name}#{reserved.occurrence}", reserved.scope

    def claim(self, scope: Scope, name: str, args_digest: str, explicit: str | None) -> Entry | None:
        """Count a call; the recorded call that it is, if the journal has it."""
        replay = self.replay
        self.ticks.touch()
        error = sys.exception()  # as `handled()` does, without a call
        scope.handling = None if error is None or error is self.ambient else type(error)
        if explicit is not None:
            if explicit in self.used_keys:
                raise UsageError(
                    f"Run {self.id}: {name} was called with {explicit!r} a second time; a key= names one call of a run."
                )
            self.used_keys.add(explicit)
        elif scope.reserved is None:
            scope.calls[name] = scope.calls.get(name, 0) + 1
        if not replay.has_unclaimed:
            return None
        place = scope.reserved.scope if scope.reserved is not None else scope
        asked = replay.attempted.setdefault(place.path, [])
        if len(asked) < 50:
            asked.append(f"{name}  {where(scope)}")
        if explicit is not None:
            entry, fits = replay.claim_explicit(explicit, args_digest)
        else:
            entry, fits = replay.claim(place.path, name, args_digest, key=self._expected_key(scope, name)[0])
        if entry is not None and not fits:
            self.journal.add(Kind.noted, entry.key, "unstable", digest=args_digest)
        return entry

    def idempotency_key(self, key: str) -> str:
        """Stable over attempts, processes and hosts; never shared by two calls, two stores or a fork."""
        return "hf-" + blob_digest(f"{self.nonce}/{self.generation}/{key}".encode("utf-8", "surrogatepass"))

    def text(self, stored: str | None) -> str:
        """The JSON text of a stored value, wherever it lies."""
        digest = blob_in(stored)
        return self.blobs[digest].decode() if digest is not None else stored or "null"

    @property
    def may_have_left_over(self) -> bool:
        """Is anything of the journal not claimed or not delivered yet? Else nothing can be left over."""
        return self.replay.has_unclaimed or not self.ticks.is_replayed

    async def refuse_left_over(self, scope: Scope, name: str, args_digest: str) -> None:
        """Before a new effect runs: block the run if a recorded one is left over that it might be."""
        if not self.may_have_left_over:
            return
        replay = self.replay
        await self.ticks.wait_replayed(lambda: not replay.has_left_over(scope.path, name, args_digest))
        left = self.without_settled(replay.left_over_effects(scope.path, name, args_digest))
        if left:
            attempted = replay.attempted.get(scope.path, [])
            await self.block(
                mismatch(asked=f"{scope.prefix()}{name}", where=where(scope), recorded=left, attempted=attempted)
            )
