"""The run that the current task belongs to: its branch, its calls, and the task factory that names branches.

A branch is named when its task is *created*, from its parent's path, the coroutine's name and how many of that name the
parent has created. Naming it at its first durable call would let a plain `await` before that call hand one branch
another's data. A task that is itself a durable call (`gather(search(a), search(b))`) is not a branch: it takes its key
in the parent's scope, at creation too.

`asyncio.as_completed` creates its tasks from a set, in arbitrary order; those are named by their arguments instead.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from holdfast.clock import now_us
from holdfast.codec import digest, encode_call
from holdfast.config import Settings
from holdfast.errors import NestedCall, NotInRun, UsageError
from holdfast.journal.journal import Journal
from holdfast.journal.recovery import PROVEN, Doubt
from holdfast.journal.replay import Entry, Replay, mismatch
from holdfast.journal.ticks import Quiet, Ticks
from holdfast.model import Kind, Record, RunId, RunRow, ThreadId
from holdfast.store.base import Store

_PACKAGE = str(Path(__file__).parent)


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

    async def start_child(self, call: Any, run_id: RunId, *, parent: RunContext, thread_id: str | None, tags: Any) -> Any:
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


class Scope:
    """One branch of a run (or the inside of a body): where its calls and tasks get their names."""

    __slots__ = ("body", "branches", "calls", "in_call", "path", "reserved", "run", "saga", "task")

    def __init__(self, run: RunContext, path: str) -> None:
        self.run = run
        self.path = path
        self.task: asyncio.Task[Any] | None = None
        self.calls: dict[str, int] = {}
        self.branches: dict[str, int] = {}
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
    task = scope.task
    if task is None:
        scope.task = asyncio.current_task()
    elif task is not asyncio.current_task():
        raise UsageError(
            f"{verb} was called in a task that Holdfast did not see being created (run {scope.run.id}), so its place "
            "in the run is unknown. Create tasks with asyncio (create_task, TaskGroup, gather) in the agent's own loop."
        )


def body_scope(scope: Scope, info: StepInfo) -> Scope:
    inside = Scope(scope.run, scope.path)
    inside.body = info
    return inside


def outside() -> contextvars.Context:
    """A copy of the current context that belongs to no run."""
    context = contextvars.copy_context()
    context.run(_scope.set, None)
    return context


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
        self.threads = 0  #: `def` bodies whose thread lives
        self.holds: dict[str, asyncio.Future[dict[str, Any]]] = {}  #: effects in doubt that a person must settle
        self.hold_reasons: dict[str, dict[str, Any]] = {}
        self.verdicts: dict[str, dict[str, Any]] = {}  #: what persons said, not acted on yet, by key
        self.unpatched: set[str] = set()
        self.used_keys: set[str] = set()  #: explicit keys of this execution
        self.dead = False
        self.parking = False
        self.stop_reason: dict[str, Any] | None = None
        self._on_stop = on_stop
        self._on_hold = on_hold
        self.saved_us = 0
        self.replayed = 0
        self.executed = 0

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
            if waiter is None or waiter.done():
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
        self.loop.call_soon_threadsafe(self._note, what, state, key)

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
                self.record_verdict(entry.key, entry.name, entry.attempt, given["verdict"], "person", {"cause": "code change"}, given)
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
        self._on_hold()
        try:
            return await future
        finally:
            self.holds.pop(key, None)
            self.hold_reasons.pop(key, None)

    def settle_by(self, key: str, verdict: dict[str, Any]) -> None:
        """A person's verdict arrived."""
        hold = self.holds.get(key)
        if hold is not None and not hold.done():
            hold.set_result(verdict)
        elif key in self.replay.entries:
            self.verdicts[key] = verdict

    # calls

    def new_key(self, scope: Scope, name: str, explicit: str | None) -> str:
        """The key of a call that the journal does not know."""
        if explicit is not None:
            return explicit
        reserved = scope.reserved
        entries = self.replay.entries
        if reserved is not None:
            scope.reserved = None
            key = f"{reserved.scope.prefix()}{name}#{reserved.occurrence}"
            if key not in entries:
                return key
            scope = reserved.scope
        calls = scope.calls
        path = scope.prefix()
        while True:
            occurrence = calls.get(name, 0) + 1
            calls[name] = occurrence
            key = f"{path}{name}#{occurrence}"
            if key not in entries:
                return key

    def claim(self, scope: Scope, name: str, args_digest: str, explicit: str | None) -> Entry | None:
        """The recorded call that this one is, if the journal has it."""
        replay = self.replay
        self.ticks.touch()
        if explicit is not None:
            if explicit in self.used_keys:
                raise UsageError(f"Run {self.id}: {name} was called with {explicit!r} a second time; a key= names one call of a run.")
            self.used_keys.add(explicit)
        if not replay.has_unclaimed:
            return None
        place = scope.reserved.scope if scope.reserved is not None else scope
        asked = replay.attempted.setdefault(place.path, [])
        if len(asked) < 50:
            asked.append(f"{name}  {caller()}")
        entry, fits = replay.claim(place.path, name, args_digest, explicit=explicit)
        if entry is None:
            return None
        scope.reserved = None
        if not fits:
            self.journal.add(Kind.noted, entry.key, "unstable", digest=args_digest)
        return entry

    def idempotency_key(self, key: str) -> str:
        """Stable over attempts, processes and hosts; never shared by two calls, two stores or a fork."""
        return "hf-" + digest(f"{self.nonce}/{self.generation}/{key}") + digest(f"{key}/{self.generation}/{self.nonce}")

    def text(self, stored: str | None) -> str:
        """The JSON text of a stored value, wherever it lies."""
        if stored is None:
            return "null"
        if stored.startswith("@"):
            return self.blobs[stored[1:].partition(":")[0]].decode()
        return stored

    async def refuse_left_over(self, scope: Scope, name: str) -> None:
        """Before a new effect runs: block the run if a recorded one is left over that it might be."""
        if not self.replay.has_unclaimed and self.ticks.is_replayed:
            return
        await self.ticks.wait_replayed()
        left = self.without_settled(self.replay.left_over_effects(scope.path))
        if left:
            attempted = self.replay.attempted.get(scope.path, [])
            await self.block(
                mismatch(self.id, asked=f"{scope.prefix()}{name}", where=caller(), recorded=left, attempted=attempted)
            )


def caller() -> str:
    """file:line of the user's code that made the current call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE) and "/asyncio/" not in name and not name.startswith("<"):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


# what tasks wait for

_INSIDE_CODES = frozenset(
    code
    for code in (
        getattr(asyncio.tasks, "_wait", None),
        asyncio.TaskGroup.__aexit__,
        asyncio.Queue.get,
        asyncio.Queue.put,
        asyncio.Queue.join,
        asyncio.Event.wait,
        asyncio.Lock.acquire,
        asyncio.Condition.wait,
        asyncio.Semaphore.acquire,
        asyncio.Barrier.wait,
    )
    if code is not None
    for code in (code.__code__,)
)


def waits_outside(task: asyncio.Task[Any], waiter: asyncio.Future[Any], own: dict[asyncio.Task[Any], Scope]) -> bool:
    """Does a task wait for something that is neither a task of its run nor a primitive shared by them?"""
    if waiter in own or hasattr(waiter, "_children"):
        return False
    awaited: Any = task.get_coro()
    while awaited is not None:
        code = getattr(awaited, "cr_code", None) or getattr(awaited, "gi_code", None) or getattr(awaited, "ag_code", None)
        if code in _INSIDE_CODES:
            return False
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None) or getattr(awaited, "ag_await", None)
    return True


# the task factory



class Definition(Protocol):
    """A decorated function: what its calls are named, and how one is made."""

    name: str
    explicit_key: str | None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]: ...


def durable_function(definition: Definition, fn: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The function that users call: a real `async def`, recognised by the task factory."""

    @functools.wraps(fn)
    async def durable(*args: Any, **kwargs: Any) -> Any:
        return await definition.call(args, kwargs)

    return durable


_DURABLE_CODE = durable_function(None, lambda: None).__code__  # type: ignore[arg-type]


_AS_COMPLETED = frozenset(
    f.__code__
    for f in (
        asyncio.as_completed,
        getattr(getattr(asyncio.tasks, "_AsCompletedIterator", None), "__init__", None),
    )
    if f is not None and hasattr(f, "__code__")
)


def _is_from_as_completed() -> bool:
    frame: FrameType | None = sys._getframe(2)
    for _ in range(7):
        if frame is None:
            return False
        if frame.f_code in _AS_COMPLETED:
            return True
        frame = frame.f_back
    return False


def _arguments(coro: Any) -> str:
    frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
    values = dict(frame.f_locals) if frame is not None else getattr(coro, "durable_arguments", dict)()
    return encode_call(_arguments, (), values)[1][:8]


def _describe(coro: Any) -> tuple[str, str | None] | None:
    """Name and explicit key of the durable call that a coroutine is, or None."""
    if getattr(coro, "cr_code", None) is _DURABLE_CODE:
        definition: Definition = coro.cr_frame.f_locals["definition"]
        return definition.name, definition.explicit_key
    name = getattr(coro, "durable_name", None)
    return (name(), None) if name is not None else None


def _child_scope(parent: Scope, coro: Any) -> Scope:
    by_arguments = _is_from_as_completed()
    call = _describe(coro)
    run = parent.run
    if call is not None:
        name, explicit = call
        scope = Scope(run, parent.path)
        if explicit is None:
            scope.reserved = Reservation(parent, _occurrence(parent.calls, name, coro, by_arguments=by_arguments))
        scope.saga = parent.saga
        return scope
    name = getattr(coro, "__name__", type(coro).__name__)
    scope = Scope(run, f"{parent.prefix()}{name}~{_occurrence(parent.branches, name, coro, by_arguments=by_arguments)}")
    scope.saga = parent.saga
    run.replay.reappeared.add(scope.path)
    return scope


def _occurrence(counts: dict[str, int], name: str, coro: Any, *, by_arguments: bool) -> str:
    if not by_arguments:
        counts[name] = counts.get(name, 0) + 1
        return str(counts[name])
    mark = f"@{_arguments(coro)}"
    counted = f"{name}{mark}"
    counts[counted] = counts.get(counted, 0) + 1
    return mark if counts[counted] == 1 else f"{mark}.{counts[counted]}"


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Make the loop name the branches of runs; a factory that is there already goes on making the tasks."""
    inner = loop.get_task_factory()
    if getattr(inner, "is_holdfast", False):
        return

    def factory(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        *,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Future[Any]:
        parent = _scope.get() if context is None else context.get(_scope)
        if type(parent) is not Scope or parent.body is not None or parent.run.dead:
            if parent is not None and type(coro).__name__ in ("async_generator_athrow", "async_generator_asend"):
                context = contextvars.copy_context() if context is None else context.copy()
                context.run(_scope.set, Lineless())
            return _make(loop, coro, context, options)
        context = contextvars.copy_context() if context is None else context.copy()
        if type(coro).__name__ in ("async_generator_athrow", "async_generator_asend"):
            context.run(_scope.set, Lineless())
            return _make(loop, coro, context, options)
        run = parent.run
        scope = _child_scope(parent, coro)
        context.run(_scope.set, scope)
        run.lines += 1  # before the task is made: an eager one runs at once
        task = _make(loop, coro, context, options)
        if isinstance(task, asyncio.Task) and not task.done():
            scope.task = task
            run.adopt(task, scope)
        else:
            run.lines -= 1
        return task

    def _make(
        loop: asyncio.AbstractEventLoop, coro: Any, context: contextvars.Context | None, options: dict[str, Any]
    ) -> asyncio.Future[Any]:
        if inner is None:
            return asyncio.Task(coro, loop=loop, context=context, **options)
        if context is not None:
            options["context"] = context
        return inner(loop, coro, **options)

    factory.is_holdfast = True  # type: ignore[attr-defined]
    loop.set_task_factory(factory)  # type: ignore[arg-type]
