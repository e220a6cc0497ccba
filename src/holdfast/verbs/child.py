"""Agents, and runs started by runs.

Calling an agent makes a `Call`: what to run, with which input. Awaited inside a run it is a child run, whose id follows
from its parent and its place there; so a parent that is resumed finds the child it started.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast.base import faults
from holdfast.base.clock import due_us, in_seconds, monotonic_us
from holdfast.base.data import data
from holdfast.base.shields import Shield, go_on_with
from holdfast.base.source_code import code_of
from holdfast.base.system import blake2b
from holdfast.codec import Coder, Input, bind_input, coder_for, decode_input, digest, encode_error, result_annotation
from holdfast.durations import Duration
from holdfast.errors import ConflictingStart, Fenced, NotInRun, RunError, UsageError
from holdfast.journal.replay import CHILD_ENDED
from holdfast.model import Kind, RunId, ThreadId
from holdfast.running.calls import (
    answer,
    checked_name,
    clean_up,
    deliver,
    elapsed_us,
    key_of,
    remember_key,
    to_its_end,
)
from holdfast.running.forgotten import tell_run
from holdfast.running.pending import block_child, until_cancelled
from holdfast.running.scopes import Scope, check_branch, in_branch, scope_or_none

if TYPE_CHECKING:
    from holdfast.handle.run import Run
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_REFUSALS = (ConflictingStart, UsageError)  # of a start: nothing was started
_ENDED = ".ended"  # of a child that was given up, and had to undo what it had done
#: How long the ids of children get, in characters.
LONGEST_CHILD = 120
_MARK, _WHOLE_MARK = 5, 10  # bytes that tell a child from its siblings, and from every other run


class Signal(Protocol):
    """A message that an agent takes: its name and the type of its value."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> Any: ...


@data
class MainLine:
    """Where a run stood when it was interrupted."""

    now: str  #: what it was doing
    calls: tuple[str, ...]  #: the keys of its last calls that ended, the latest last
    last: Any  #: what the latest of them returned
    progress: dict[str, Any] | None  #: what it last reported with `hf.progress`


class Agent(Generic[P, R_co]):
    """A durable program: an `async` function whose steps and effects are recorded."""

    __name__: str

    def __init__(
        self,
        fn: Callable[P, Coroutine[Any, Any, R_co]],
        *,
        name: str | None = None,
        version: str | None = None,
        timeout_s: float | None = None,
        queue: str | None = None,
        signals: Iterable[Signal] = (),
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(
                f"@hf.agent takes an async function; {getattr(fn, '__name__', fn)!r} is not one. Make it `async def`."
            )
        self.fn = fn
        self.name: str = checked_name(name, fn)
        self.version = version
        self._timeout_s = timeout_s
        self.queue = queue
        self.signals: dict[str, Signal] = {signal.name: signal for signal in signals}
        self._interrupted: Callable[..., Coroutine[Any, Any, Any]] | None = None
        functools.update_wrapper(self, fn)
        self.__code__, self.__defaults__, self.__kwdefaults__ = _code_of(fn)  # so `inspect` sees an async function

    def on_interrupt(self, fn: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Declare what happens when somebody interrupts a run with a message.

        The handler is an async function of the message, or of the message and a `MainLine` that says where the run
        stands. It runs as a branch of its own while the main line is held at its next durable call; what it returns is
        the reply. Then the main line goes on exactly where it was.

        Example:
            @newsletter.on_interrupt
            async def interrupted(message: str, main: hf.MainLine) -> str:
                return f"I am at {main.now}"
        """
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(f"on_interrupt takes an async function; {getattr(fn, '__name__', fn)!r} is not one.")
        self._interrupted = fn
        return fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        return Call(self, args, kwargs)

    @functools.cached_property
    def coder(self) -> Coder[R_co]:
        return coder_for(result_annotation(self.fn))

    @functools.cached_property
    def _source(self) -> str | None:
        """The file that the agent is in, for whoever wants to resume one of its runs."""
        try:
            return os.path.realpath(inspect.getfile(self.fn))
        except TypeError:
            return None

    @functools.cached_property
    def _code(self) -> str:
        """What the code is, whatever its layout: a digest of its module and of what that imports of its project."""
        return digest(f"{self.version or ''}/{code_of(self.fn)}")

    def __repr__(self) -> str:
        return f"<agent {self.name}>"


def _code_of(fn: Any) -> tuple[Any, Any, Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn.__code__, fn.__defaults__, fn.__kwdefaults__


class Call(Coroutine[Any, Any, R_co]):
    """An agent with its input: what to run. `await` it inside a run; elsewhere pass it to `hf.run` or `app.start`."""

    def __init__(self, agent: Agent[..., R_co], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.agent = agent
        self.args = args
        self.kwargs: dict[str, Any] = dict(kwargs)
        self._coroutine: Coroutine[Any, Any, R_co] | None = None

    @functools.cached_property
    def input(self) -> Input:
        """What is stored of it, defaults included; raises if it cannot be stored."""
        return bind_input(self.agent.fn, self.args, self.kwargs)

    @classmethod
    def _decoded(cls: type[Call[R]], agent: Agent[..., R], text: str) -> Call[R]:
        """The call that was stored."""
        args, kwargs = decode_input(agent.fn, text)
        return cls(agent, args, kwargs)

    @classmethod
    def _stored(cls: type[Call[R]], agent: Agent[..., R], given: Input) -> Call[R]:
        """A call to be started with what was stored, without being read."""
        call = cls(agent, (), {})
        call.input = given
        return call

    def _durable_name(self) -> str:
        return self.agent.name

    def _durable_arguments(self) -> dict[str, Any]:
        return {"args": self.args, **self.kwargs}

    def __await__(self) -> Generator[Any, Any, R_co]:
        self._coroutine = _await_child(self)
        return self._coroutine.__await__()

    def __del__(self) -> None:
        is_used = self._coroutine is not None or "input" in self.__dict__
        if not is_used:  # neither awaited nor started
            tell_run(self.agent.__name__)

    # a coroutine as well, so that create_task and TaskGroup take it

    def send(self, value: Any, /) -> Any:
        if self._coroutine is None:
            self._coroutine = _await_child(self)
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        if self._coroutine is None:
            self._coroutine = _await_child(self)
        return self._coroutine.throw(kind if value is None else value)

    def close(self) -> None:
        if self._coroutine is None:
            self._coroutine = _await_child(self)
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<call of {self.agent.name}>"


@data
class ChildStart:
    """How a run is started by another one."""

    run_id: str | None = None
    thread_id: str | None = None
    queue: str | None = None
    queue_key: str = ""
    priority: int = 0
    wake_at: int = 0  #: µs
    tags: Mapping[str, str] = field(default_factory=dict)


class AgentDecorator(Protocol):
    """What `agent(...)` with options returns."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...


@overload
def agent(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...
@overload
def agent(
    *,
    name: str | None = None,
    version: str | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
    signals: Iterable[Signal] = (),
) -> AgentDecorator: ...
def agent(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
    signals: Iterable[Signal] = (),
) -> Any:
    """Make an async function an agent: a program that survives its process.

    What it asks of the world goes through steps and effects; everything else it computes again on resume, so it should
    depend on nothing but its input and their results. `timeout` limits the whole run, crashes included. Runs wait on
    `queue`, if it is given, until a worker has room for them. `signals` declares what can be sent to a run: anything
    else, and values of another shape, are refused to their sender.

    Example:
        @hf.agent
        async def newsletter(topic: str) -> str:
            return await send_email("list@example.org", await write(topic))
    """
    timeout_s = None if timeout is None else in_seconds(timeout, "timeout=")

    def decorate(fn: Callable[..., Any]) -> Agent[..., Any]:
        return Agent(fn, name=name, version=version, timeout_s=timeout_s, queue=queue, signals=signals)

    return decorate if fn is None else decorate(fn)


def child_id(parent: str, place: str) -> RunId:
    """The id of a run that a run starts; `place` names the call, and no other call of any run.

    It says whose child the run is, for as many levels as fit. Below them it says only where the family begins: ids of
    any depth have room for children, and so has every id that a run may be given.
    """
    mark = blake2b(place.encode(), digest_size=_MARK).hexdigest()
    if len(parent) + 1 + len(mark) <= LONGEST_CHILD:
        return RunId(f"{parent}.{mark}")
    whole = blake2b(place.encode(), digest_size=_WHOLE_MARK).hexdigest()
    return RunId(f"{parent[: LONGEST_CHILD - 2 - len(whole)]}..{whole}")


def _child_of(run: RunContext, key: str, entry: Entry | None, given: str | None = None) -> RunId:
    """The child that a call started. What is recorded counts, whatever ids are made of, or given, by now."""
    if entry is not None and entry.child is not None:
        return RunId(entry.child)
    if given is not None:
        return RunId(given)
    return child_id(run.id, f"{run.nonce}/{run.generation}/{key}")


async def _await_child(call: Call[R]) -> R:
    """A child run: start it (once), wait for its end, record what it was."""
    scope = scope_or_none()
    if scope is None:
        raise NotInRun(
            f"{call.agent.name}(…) was awaited outside of a run. Use `hf.run({call.agent.name}(…))`, or "
            f"`run = await app.start({call.agent.name}(…))` and `await run.result()`."
        )
    check_branch(scope, call.agent.name)
    run = scope.run
    if run.halted:
        await run.check(scope)
    entry = run.claim(scope, call.agent.name, call.input.given, None)
    if run.is_clean_up(scope):
        return await clean_up(scope, _answer_or_wait(scope, call, entry))
    return await _answer_or_wait(scope, call, entry)


async def _answer_or_wait(scope: Scope, call: Call[R], entry: Entry | None) -> R:
    run = scope.run
    if entry is not None and entry.outcome is not None:
        if not entry.was_cancelled:
            value: R = await answer(scope, entry, call.agent.coder, ())
            return value
        try:
            await until_cancelled(scope, entry)
        except asyncio.CancelledError:
            if not run.dead:
                await _end_child(scope, entry.key, _child_of(run, entry.key, entry))  # a crash may have come in between
            raise
        if entry.outcome.seq > run.replay.reopened:
            await block_child(scope, entry)
    if run.gate is not None:
        try:
            await run.pass_gate(scope)
        except asyncio.CancelledError:
            if entry is not None and entry.child is not None and not run.dead:
                await _give_up(scope, call, entry.key, RunId(entry.child), monotonic_us())
            raise
    scope.in_call = True
    try:
        with run.busy():
            key, child, cancelled = await _start_once(scope, call, entry, ChildStart())
        return await _wait_child(scope, call, key, child, cancelled)
    finally:
        scope.in_call = False


async def _start_once(
    scope: Scope, call: Call[Any], entry: Entry | None, how: ChildStart
) -> tuple[str, RunId, asyncio.CancelledError | None]:
    """Store the child run unless it is stored; the key of the call, the child, and the cancellation that came."""
    run = scope.run
    given = call.input.given
    if entry is None:
        await run.refuse_left_over(scope, call.agent.name, given)
        key = run.new_key(scope, call.agent.name, None)
    else:
        key = entry.key
    started = _child_of(run, key, entry, how.run_id)
    if entry is None or entry.child is None:
        payload = json.dumps({"run": started, "defaults": call.input.defaults})
        run.journal.add(Kind.child, key, call.agent.name, digest=given, args=call.input.text, payload=payload)
    else:  # it may be stored with what it was called with then, whatever the code calls it with by now
        defaults = tuple(json.loads(entry.first.payload or "{}").get("defaults", ()))
        call = Call._stored(call.agent, Input.read(run.text(entry.args), defaults))

    async def start_durably() -> None:
        await run.journal.barrier()
        faults.point("child.before_start")
        await run.patiently(lambda: run.host.start_child(call, started, parent=run, how=how))
        faults.point("child.after_start")

    try:
        _, cancelled = await to_its_end(run, start_durably())
    except Fenced:
        await run.fenced()
        raise
    except _REFUSALS as error:
        raise remember_key(error, key) from None
    return key, started, cancelled


async def _wait_child(
    scope: Scope, call: Call[R], key: str, child: RunId, cancelled: asyncio.CancelledError | None
) -> R:
    """Wait for the end of a child. One that does not execute here is waited for without a process."""
    run = scope.run
    began = monotonic_us()
    try:
        if cancelled is not None:
            raise cancelled
        read = await _end_of(run, child, key, call.agent.name)
    except asyncio.CancelledError:
        if not run.dead:
            await _give_up(scope, call, key, child, began)
        raise
    value: R | None = None
    error: Exception | None = None
    try:
        value = read(call.agent.coder)
        payload = call.agent.coder.dumps(cast("R", value), what=f"the result of {key}")
    except RunError as failed:
        error = failed
        payload = encode_error(failed)
    kind = Kind.done if error is None else Kind.failed

    def record(tick: int) -> None:
        run.journal.add(kind, key, call.agent.name, tick=tick, took=elapsed_us(began), payload=payload)

    await deliver(scope, record)
    if error is not None:
        raise remember_key(error, key)
    return cast("R", value)


async def _give_up(scope: Scope, call: Call[Any], key: str, child: RunId, began: int) -> None:
    """Nobody waits for the child any more: it is cancelled too."""
    run = scope.run
    run.journal.add(Kind.cancelled, key, call.agent.name, tick=run.ticks.tick, took=elapsed_us(began))
    await _end_child(scope, key, child)


async def _end_child(scope: Scope, key: str, child: RunId) -> None:
    """Have a child cancelled, and wait until it has undone what it did: that came after what the parent did.

    When the parent goes on is a record with a tick, if it had to wait; so a replay has the same order.
    """
    run, handled = scope.run, sys.exception()
    ended = run.replay.entries.get(key + _ENDED)
    if ended is not None and ended.outcome is not None:
        run.replay.pass_by(ended)
        await _endure(run, answer(scope, ended, coder_for(type(None)), ()))
        return

    async def end() -> bool:
        # Why nobody waits any more is on disk first: a crash must not bring back a run that waits for one cancelled.
        await run.journal.barrier()
        return await run.host.cancel_child(child, parent=run)

    was_in_call, scope.in_call = scope.in_call, False
    run.apart += 1
    try:
        with run.busy():
            has_ended, kept = await to_its_end(run, end())
            go_on_with(handled, kept)
    finally:
        run.apart -= 1
        scope.in_call = was_in_call
    if not has_ended:
        scope.in_call = True
        try:
            await _endure(run, _wait_undone(scope, child, key))
        finally:
            scope.in_call = was_in_call


async def _endure(run: RunContext, work: Coroutine[Any, Any, None]) -> None:
    """Await something, whoever cancels; the cancellation that is being handled goes on."""
    shield = Shield(run.is_dead)
    await shield.drive(work)
    go_on_with(shield.handled, shield.kept)


async def _wait_undone(scope: Scope, child: RunId, key: str) -> None:
    run = scope.run
    await _end_of(run, child, key + _ENDED, "the end of a child")

    def record(tick: int) -> None:
        run.journal.add(Kind.done, key + _ENDED, CHILD_ENDED, tick=tick, payload="null")

    await deliver(scope, record, shielded=True)


async def _end_of(run: RunContext, child: RunId, key: str, name: str) -> Callable[[Coder[Any]], Any]:
    """Wait until a child has ended; its result, to be read by a coder (or raised)."""
    handle = run.host.handle(child, run.thread_id)
    while True:
        run.ended_children.discard(child)
        with run.busy():
            if (execution := run.host.local(child)) is not None:
                await execution.wait_ended()
            look = partial(handle._ended, execution)
            read: Callable[[Coder[Any]], Any] | None = await run.patiently(look)
        if read is not None:
            return read
        if run.host.local(child) is None and child not in run.ended_children:
            await run.wait(key, "child", {"name": name, "child": child})


async def start(
    call: Call[R],
    *,
    id: str | None = None,
    thread_id: str | None = None,
    queue: str | None = None,
    queue_key: str = "",
    priority: int = 0,
    delay: Duration | None = None,
    tags: Mapping[str, str] | None = None,
) -> Run[R]:
    """Inside a run: start another run and go on without waiting for it. A replay does not start it twice.

    The options are those of `app.start`. Without an `id` the run is known by its place in this one; with one, a run
    that exists is returned if agent and arguments are the same, else ConflictingStart is raised.

    Example: `side = await hf.start(summarise(page), queue="slow"); ...; text = await side.result()`
    """
    if not isinstance(call, Call):
        raise UsageError(f"hf.start() takes a call of an agent, like `my_agent(1, 2)`; got {call!r}.")
    due = due_us(delay, "delay=")
    how = ChildStart(id, thread_id, queue, queue_key, priority, due or 0, tags or {})
    scope = in_branch("hf.start()")
    run = scope.run
    if run.halted:
        await run.check(scope)
    entry = run.claim(scope, call.agent.name, call.input.given, None)
    starting = _start(scope, call, entry, how)
    child = await (clean_up(scope, starting) if run.is_clean_up(scope) else starting)
    handle: Run[R] = run.host.handle(child, ThreadId(thread_id or run.thread_id))
    return handle


async def _start(scope: Scope, call: Call[Any], entry: Entry | None, how: ChildStart) -> RunId:
    run = scope.run
    if run.gate is not None and (entry is None or entry.outcome is None):
        await run.pass_gate(scope)
    scope.in_call = True
    try:
        if entry is not None and entry.outcome is not None:
            child = _child_of(run, entry.key, entry)
            await answer(scope, entry, coder_for(str), _REFUSALS)
            run.host.adopt_child(call, child)
        else:
            try:
                with run.busy():
                    key, child, cancelled = await _start_once(scope, call, entry, how)
            except _REFUSALS as error:
                await _record_refusal(scope, call, error)
                raise
            payload = json.dumps(child)
            record = lambda tick: run.journal.add(Kind.done, key, call.agent.name, tick=tick, payload=payload)  # noqa: E731
            await deliver(scope, record, shielded=True)
            if cancelled is not None:
                raise cancelled
        return child
    finally:
        scope.in_call = False


async def _record_refusal(scope: Scope, call: Call[Any], error: Exception) -> None:
    """Nothing was started: that is how the call ended, at each replay too."""
    run, payload, key = scope.run, encode_error(error), key_of(error)
    if key:
        record = lambda tick: run.journal.add(Kind.failed, key, call.agent.name, tick=tick, payload=payload)  # noqa: E731
        await deliver(scope, record, shielded=True)


@overload
def get(token: str) -> Run[Any]: ...
@overload
def get(token: str, agent: Agent[..., R]) -> Run[R]: ...
def get(token: str, agent: Agent[..., Any] | None = None) -> Run[Any]:
    """Inside a run: the handle of another run, by its token or id. It has no side effect.

    With its agent the result has the type that the agent returns.

    Example: `status = await hf.get(token).status()`
    """
    run = in_branch("hf.get()").run
    run_id, _, thread_id = token.partition("@")
    handle: Run[Any] = run.host.handle(RunId(run_id), thread_id or run.thread_id)  # type: ignore[arg-type]
    return handle._of(agent)


async def resume(token: str) -> Run[Any]:
    """Inside a run: have another run go on, if it is paused, blocked or left over.

    Example: `await hf.resume(token)`
    """
    run = get(token)
    await run.resume()
    return run
