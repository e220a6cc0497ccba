"""The run that the current task belongs to, its branch there, and the keys of the calls that the branch makes.

Calls are counted per branch and name as the code makes them, whether the journal answers or not: so a call has the same
key in every execution of the same code. How branches get their names is told in `branches`.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from holdfast.clock import now_us
from holdfast.codec import digest
from holdfast.config import Settings
from holdfast.errors import NestedCall, NotInRun, UsageError
from holdfast.journal.blobs import blob_in
from holdfast.journal.journal import Journal
from holdfast.journal.recovery import PROVEN, Doubt
from holdfast.journal.replay import Entry, Replay, mismatch
from holdfast.journal.ticks import Quiet, Ticks, is_about_to_end, waits_outside
from holdfast.model import Kind, Record, RunId, RunRow, ThreadId
from holdfast.store.base import Store

_PACKAGE = str(Path(__file__).parent)
_ASYNCIO = str(Path(asyncio.__file__).parent)


class StepInfo:
    """What the body of a step or effect can know about itself."""

    __slots__ = ("_idempotency_key", "_run", "attempt", "key", "name", "undoes")

    def __init__(
        self,
        run: RunContext,
        name: str,
        key: str,
        attempt: int,
        idempotency_key: str | None = None,
        undoes: str | None = None,
    ) -> None:
        self._run = run
        self.undoes = undoes  #: inside an undo: the idempotency key of the call that is taken back
        self._idempotency_key = idempotency_key
        self.name = name
        self.key = key
        self.attempt = attempt

    @property
    def run_id(self) -> str:
        """The run that this body works for."""
        return self._run.id

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt, in every process and on every host; hand it to the target."""
        return self._idempotency_key or self._run.idempotency_key(self.key)

    def __repr__(self) -> str:
        return f"StepInfo({self.key!r}, attempt={self.attempt})"


class Host(Protocol):
    """What a run needs from the process that executes it."""

    store: Store
    settings: Settings
    threads: ThreadPoolExecutor

    async def start_child(
        self, call: Any, run_id: RunId, *, parent: RunContext, thread_id: str | None, tags: Any
    ) -> Any:
        """Store the run unless it exists, and execute it here; the handle."""
        ...

    def handle(self, run_id: RunId, thread_id: ThreadId) -> Any: ...

    @property
    def is_alone(self) -> bool:
        """Does this process execute one run only? Then its commits may happen on the loop's own thread."""
        ...

    def has_lease(self) -> bool:
        """Is enough of this worker's lease left to begin an effect?"""
        ...

    async def wait_lease(self) -> None: ...


@dataclass(slots=True)
class Receipt:
    """What an execution answered from the journal, what it executed, and what that saved."""

    replayed: int = 0
    executed: int = 0
    saved_us: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def answered(self, entry: Entry, usage: dict[str, list[dict[str, Any]]]) -> None:
        assert entry.outcome is not None
        self.replayed += 1
        self.saved_us += entry.outcome.took
        for used in usage.get(entry.key, ()):
            self.input_tokens += used["input_tokens"]
            self.output_tokens += used["output_tokens"]
            self.cost += used["cost"]


class Scope:
    """One branch of a run (or the inside of a body): where its calls and tasks get their names."""

    __slots__ = (
        "arguments",
        "body",
        "branches",
        "calls",
        "coro",
        "in_call",
        "path",
        "planned",
        "reserved",
        "run",
        "saga",
        "task",
    )

    def __init__(self, run: RunContext, path: str) -> None:
        self.run = run
        self.path = path
        self.task: asyncio.Task[Any] | None = None
        self.calls: dict[str, int] = {}
        self.branches: dict[str, int] = {}
        self.planned: dict[Any, str] = {}  #: occurrences of coroutines whose tasks are about to be created
        self.arguments: dict[str, dict[str, Any]] = {}  #: of coroutines that are named by them
        self.coro: Any = None  #: while its task is being created
        self.body: StepInfo | None = None
        self.reserved: Reservation | None = None
        self.in_call = False
        self.saga: Any = None

    def prefix(self) -> str:
        return f"{self.path}/" if self.path else ""


@dataclass(slots=True)
class Reservation:
    """The place of a call whose task was created before it runs."""

    scope: Scope
    occurrence: str
    where: str = ""


class Lineless:
    """The scope of what has no place in a run: generator finalisers."""


_scope: contextvars.ContextVar[Scope | Lineless | None] = contextvars.ContextVar("holdfast_scope", default=None)


def scope_or_none() -> Scope | None:
    """The current scope, or None outside of any run. Durable calls where no place can be named raise."""
    scope = _scope.get()
    if scope is None:
        return None
    if type(scope) is not Scope:
        raise UsageError(
            "A durable call was made by a generator's finaliser, which has no place in a run. "
            "Close the generator in the agent itself, with `async with contextlib.aclosing(...)`."
        )
    return scope


def in_branch(verb: str) -> Scope:
    """The current branch, for a verb that makes sense only there."""
    scope = scope_or_none()
    if scope is None:
        raise NotInRun(f"{verb} works inside a run only: call it from an agent (or what an agent calls).")
    check_branch(scope, verb)
    return scope


def check_branch(scope: Scope, verb: str) -> None:
    """Raise unless a durable call can be made here."""
    if scope.body is not None:
        raise NestedCall(
            f"{verb} was called inside the body of {scope.body.name} (run {scope.run.id}). A body is one indivisible "
            "thing: move the call into the agent, before or after."
        )
    try:
        current = asyncio.current_task()
    except RuntimeError:
        current = None
    if scope.task is None:
        scope.task = current
    if current is None or scope.task is not current:
        raise UsageError(
            f"{verb} was called in a thread or task that Holdfast did not see being created (run {scope.run.id}), so "
            "its place in the run is unknown. Create tasks with asyncio (create_task, TaskGroup, gather) in the "
            "agent's own loop."
        )


def body_scope(scope: Scope, info: StepInfo) -> Scope:
    inside = Scope(scope.run, scope.path)
    inside.body = info
    return inside


def current_scope() -> Scope | Lineless | None:
    return _scope.get()


def scope_in(context: contextvars.Context | None) -> Scope | Lineless | None:
    return _scope.get() if context is None else context.get(_scope)


def set_scope(context: contextvars.Context | None, scope: Scope | Lineless | None) -> contextvars.Context:
    """A copy of the context (the current one, if None) with another scope."""
    context = contextvars.copy_context() if context is None else context.copy()
    context.run(_scope.set, scope)
    return context


def outside() -> contextvars.Context:
    """A copy of the current context that belongs to no run."""
    return set_scope(None, None)


def enter(scope: Scope) -> contextvars.Token[Scope | Lineless | None]:
    return _scope.set(scope)


def leave(token: contextvars.Token[Scope | Lineless | None]) -> None:
    _scope.reset(token)


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
        on_hold: Callable[[], None],
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
        self.ticks = Ticks(self.replay, self.quiet)
        self.root = Scope(self, "")
        self.tasks: dict[asyncio.Task[Any], Scope] = {}
        self.lines = 1  #: branches and timeouts that may go on by themselves
        self.bodies = 0  #: bodies, verifications and waits for a retry under way
        self.acting = 0  #: effects whose body is under way
        self.threads = 0  #: `def` bodies whose thread lives
        self.holds: dict[str, asyncio.Future[dict[str, Any]]] = {}  #: effects in doubt that a person must settle
        self.hold_reasons: dict[str, dict[str, Any]] = {}
        self.verdicts: dict[str, dict[str, Any]] = {}  #: what persons said, not acted on yet, by key
        self.unpatched: set[str] = set()
        self.used_keys: set[str] = set()  #: explicit keys of this execution
        self._thread = threading.get_ident()
        self.dead = False
        self.parking = False
        self.stop_reason: dict[str, Any] | None = None
        self._on_stop = on_stop
        self._on_hold = on_hold
        self.receipt = Receipt()

    @property
    def may_commit_inline(self) -> bool:
        """Would nobody but this run's only branch wait, if a commit happened on the loop's own thread?"""
        return self.lines == 1 and self.host.is_alone

    # the life of its tasks

    def adopt(self, task: asyncio.Task[Any], scope: Scope) -> None:
        """A task of this run was created."""
        self.tasks[task] = scope
        self.ticks.touch()
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if self.tasks.pop(task, None) is not None:
            self.lines -= 1
        self.ticks.touch()

    def quiet(self) -> Quiet:
        """What its tasks are doing, apart from durable calls."""
        outside = False
        for task, scope in self.tasks.items():
            if scope.in_call:
                continue
            waiter = getattr(task, "_fut_waiter", None)
            if waiter is None or waiter.done() or is_about_to_end(waiter):
                return Quiet.busy
            outside = outside or waits_outside(task, waiter, self.tasks)
        return Quiet.outside if outside else Quiet.settled

    def thread_ended(self) -> None:
        self.threads -= 1

    def stop(self) -> None:
        """Mark every branch dead: whatever they still do, they change nothing."""
        self.dead = True
        self.ticks.stopped = True
        self.journal.abandon()
        for task in list(self.tasks):
            task.cancel()

    async def never(self) -> Any:
        """Wait for the end of this execution: the branch is being torn down."""
        await self.loop.create_future()

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

    async def hold(self, key: str, reason: dict[str, Any]) -> dict[str, Any]:
        """Hold this branch until a person settles the effect; the rest of the run goes on."""
        future: asyncio.Future[dict[str, Any]] = self.loop.create_future()
        self.holds[key] = future
        self.hold_reasons[key] = reason
        self._show_holds()
        self.journal.add(Kind.noted, key, "held", payload=json.dumps(reason))
        self._on_hold()
        try:
            return await future
        finally:
            self.holds.pop(key, None)
            self.hold_reasons.pop(key, None)
            self._show_holds()

    def _show_holds(self) -> None:
        """Let people see what is held while other branches go on."""
        self.journal.summary["held"] = sorted(key for key, reason in self.hold_reasons.items() if "child" not in reason)

    def settle_by(self, key: str, verdict: dict[str, Any]) -> None:
        """A person's verdict arrived."""
        hold = self.holds.get(key)
        if hold is not None and not hold.done():
            hold.set_result(verdict)
        elif key in self.replay.entries:
            self.verdicts[key] = verdict

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
            asked.append(f"{name}  {_where(scope)}")
        if explicit is not None:
            entry, fits = replay.claim_explicit(explicit, args_digest)
        else:
            entry, fits = replay.claim(place.path, name, args_digest, key=self._expected_key(scope, name)[0])
        if entry is not None and not fits:
            self.journal.add(Kind.noted, entry.key, "unstable", digest=args_digest)
        return entry

    def idempotency_key(self, key: str) -> str:
        """Stable over attempts, processes and hosts; never shared by two calls, two stores or a fork."""
        return "hf-" + digest(f"{self.nonce}/{self.generation}/{key}") + digest(f"{key}/{self.generation}/{self.nonce}")

    def text(self, stored: str | None) -> str:
        """The JSON text of a stored value, wherever it lies."""
        digest = blob_in(stored)
        return self.blobs[digest].decode() if digest is not None else stored or "null"

    async def refuse_left_over(self, scope: Scope, name: str, args_digest: str) -> None:
        """Before a new effect runs: block the run if a recorded one is left over that it might be."""
        if not self.replay.has_unclaimed and self.ticks.is_replayed:
            return
        replay = self.replay
        await self.ticks.wait_replayed(lambda: not replay.left_over_effects(scope.path, name, args_digest))
        left = self.without_settled(replay.left_over_effects(scope.path, name, args_digest))
        if left:
            attempted = replay.attempted.get(scope.path, [])
            await self.block(
                mismatch(
                    self.id, asked=f"{scope.prefix()}{name}", where=_where(scope), recorded=left, attempted=attempted
                )
            )


def _where(scope: Scope) -> str:
    return (scope.reserved.where if scope.reserved is not None else "") or caller()


def caller() -> str:
    """file:line of the user's code that made the current call, or created the task that is this call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_ASYNCIO):
            if frame.f_code.co_name == "_run":  # the event loop: whoever started that did not make this call
                return ""
        elif not name.startswith((_PACKAGE, "<")):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
