"""What steps and effects have in common: options, running a body, answering from the journal, delivering an outcome."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import opcode
import os
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from holdfast.base.clock import in_seconds, monotonic_us
from holdfast.base.data import data
from holdfast.base.shields import Shield
from holdfast.codec import Coder, coder_for, decode_error, result_annotation
from holdfast.durations import Duration
from holdfast.errors import ResultNotStored, Undecodable, Unserialisable, UsageError
from holdfast.model import Kind
from holdfast.running.scopes import Scope, StepInfo, body_scope, enter, leave, outside

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
S_contra = TypeVar("S_contra", contravariant=True)

_SEND = opcode.opmap["SEND"]  # every await, `async for` and `async with` compiles to it
_NAME = r"[^\W\d][\w.\- ]{0,99}"


@data
class Retry:
    """How often and how patiently a failed attempt is repeated.

    `attempts` counts repetitions: `Retry(3)` tries at most four times. The wait before repetition n is
    `first * factor**(n-1)`, at most `most` (seconds, or a timedelta), varied by `jitter` (a share of it).

    Example: `@hf.step(retries=hf.Retry(5, first=0.2, most=timedelta(minutes=5)))`
    """

    attempts: int = 3
    first: Duration = 0.5
    factor: float = 2.0
    most: Duration = 60.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        in_seconds(self.first, "hf.Retry(first=)")
        in_seconds(self.most, "hf.Retry(most=)")

    def _delay_s(self, failed: int) -> float:
        """Seconds to wait after the `failed`-th failure."""
        first_s, most_s = in_seconds(self.first, "hf.Retry(first=)"), in_seconds(self.most, "hf.Retry(most=)")
        base = min(first_s * self.factor ** min(failed - 1, 64), most_s)
        chance = int.from_bytes(os.urandom(4), "big") / 2**32  # the module `random` would be loaded for nothing else
        return base * (1 + self.jitter * (2 * chance - 1))


@data
class Options:
    """How a step or effect is executed."""

    name: str
    retries: Retry
    timeout_s: float | None
    retry_on: tuple[type[BaseException], ...]
    raises: tuple[type[BaseException], ...]
    explicit_key: str | None = None

    @classmethod
    def checked(
        cls,
        fn: Callable[..., Any],
        *,
        name: str | None,
        retries: int | Retry,
        timeout: Duration | None,
        retry_on: type[BaseException] | tuple[type[BaseException], ...],
        raises: type[BaseException] | tuple[type[BaseException], ...],
    ) -> Options:
        """What a decorator was given; UsageError says what of it cannot be."""
        return cls(
            name=checked_name(name, fn),
            retries=as_retry(retries),
            timeout_s=None if timeout is None else in_seconds(timeout, "timeout="),
            retry_on=as_types(retry_on, "retry_on"),
            raises=as_types(raises, "raises"),
        )

    @property
    def failures(self) -> tuple[type[BaseException], ...]:
        """The exceptions of an effect that prove that nothing happened; they come back as themselves."""
        return (*self.raises, *self.retry_on)

    def changed(self, *, key: str | None, retries: int | Retry | None, timeout: Duration | None) -> Options:
        return replace(
            self,
            explicit_key=self.explicit_key if key is None else explicit_key(key),
            retries=self.retries if retries is None else as_retry(retries),
            timeout_s=self.timeout_s if timeout is None else in_seconds(timeout, "timeout="),
        )


def as_retry(retries: int | Retry) -> Retry:
    if isinstance(retries, Retry):
        return retries
    if not isinstance(retries, int) or retries < 0:
        raise UsageError(f"retries= takes a number from 0 on, or hf.Retry(…); got {retries!r}.")
    return Retry(retries)


def as_types(
    types: type[BaseException] | tuple[type[BaseException], ...], option: str
) -> tuple[type[BaseException], ...]:
    given = types if isinstance(types, tuple) else (types,)
    for each in given:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise UsageError(f"{option}= takes exception classes; got {each!r}.")
    return given


def explicit_key(key: str) -> str:
    if not isinstance(key, str) or not key or len(key) > 200 or not key.isprintable():
        raise UsageError(f"key= takes 1 to 200 printable characters; got {key!r}.")
    return f"key:{key}"


def checked_name(name: str | None, fn: Callable[..., Any]) -> str:
    """The name under which calls are recorded: `name=`, or the function's own; never its module."""
    chosen = name if name is not None else getattr(fn, "__name__", "")
    if not re.fullmatch(_NAME, chosen) or chosen.startswith("hf."):
        raise UsageError(
            f"{chosen!r} cannot be a name: use letters, digits, '_', '-', '.', at most 100, not starting with 'hf.'. "
            "Pass name= to the decorator."
        )
    return chosen


class BoundCall(Protocol[P, R_co]):
    """A step or effect that is a method, taken from its object."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class CallMethod(Protocol[S_contra, P, R_co]):
    """A step or effect that can be a method: its first argument is the object, or the class."""

    async def __call__(self, owner: S_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Body:
    """A user's function, run as the body of a call."""

    __slots__ = ("coder", "fn", "is_async", "never_suspends", "where")

    def __init__(self, fn: Callable[..., Any]) -> None:
        if not callable(fn):
            raise UsageError(f"The decorator takes a function, not {fn!r}.")
        if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
            raise UsageError(f"{fn.__name__} is a generator; a step or effect returns one value. Return a list.")
        self.fn = fn
        self.is_async = inspect.iscoroutinefunction(fn)
        self.where = f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}" if hasattr(fn, "__code__") else ""
        #: an async function without an `await` runs to its end in one go
        self.never_suspends = self.is_async and hasattr(fn, "__code__") and _SEND not in fn.__code__.co_code[::2]
        self.coder: Coder[Any] | None = None

    def result_coder(self) -> Coder[Any]:
        coder = self.coder
        if coder is None:
            coder = self.coder = coder_for(result_annotation(self.fn))
        return coder

    async def plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Outside of a run, or inside a body: an ordinary call."""
        if self.is_async:
            return await self.fn(*args, **kwargs)
        return await asyncio.to_thread(self.fn, *args, **kwargs)

    async def run(
        self, scope: Scope, info: StepInfo, args: tuple[Any, ...], kwargs: dict[str, Any], timeout_s: float | None
    ) -> Any:
        """Execute the body once, as part of a run; `def` in a thread."""
        token = enter(body_scope(scope, info))
        try:
            if self.is_async:
                if timeout_s is None:
                    return await self.fn(*args, **kwargs)
                async with asyncio.timeout(timeout_s):
                    return await self.fn(*args, **kwargs)
            return await self._run_in_thread(scope.run, args, kwargs, timeout_s)
        finally:
            leave(token)

    async def _run_in_thread(
        self, run: RunContext, args: tuple[Any, ...], kwargs: dict[str, Any], timeout_s: float | None
    ) -> Any:
        work = functools.partial(contextvars.copy_context().run, _in_thread, self.fn, args, kwargs)
        future = run.loop.run_in_executor(run.host.threads, work)
        run.threads += 1
        future.add_done_callback(lambda _: run.thread_ended())
        done, _ = await asyncio.wait({future}, timeout=timeout_s)
        if done:
            return future.result()
        raise LateThread(future)


def _in_thread(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:  # a future cannot hold it, and would never end
        raise RuntimeError("the body raised StopIteration") from error


class LateThread(TimeoutError):
    """A `def` body did not end in time; its thread lives on."""

    __module__ = "holdfast.calls"  # stored with the attempt that it ended; journals know it by this name

    def __init__(self, future: asyncio.Future[Any]) -> None:
        super().__init__()
        self.future = future


def remember_key(error: BaseException, key: str) -> BaseException:
    """Mark an exception with the call it came from, so that a retry of the run knows what to do again."""
    error.__dict__["_holdfast_key"] = key
    return error


def key_of(error: BaseException) -> str:
    """The call that an exception came from, if it is marked; else nothing."""
    return str(error.__dict__.get("_holdfast_key", ""))


def refuse_result(run: RunContext, name: str, body: Body) -> None:
    """Refuse a call whose result could never be stored, before anything happens."""
    problem = body.result_coder().problem
    if problem is not None:
        raise Unserialisable(f"Run {run.id}: the result of {name} ({body.where}) cannot be stored: {problem}")


async def answer(
    scope: Scope,
    entry: Entry,
    coder: Coder[Any],
    raises: tuple[type[BaseException], ...],
    *,
    on_turn: Callable[[], None] | None = None,
) -> Any:
    """What the journal knows of a call, delivered as it once was.

    `on_turn` is called at its tick, whether or not the call is cancelled then.
    """
    run = scope.run
    outcome = entry.outcome
    assert outcome is not None
    if run.lines == 1:
        run.ticks.at_once(entry)
        if on_turn is not None:
            on_turn()
    else:
        await _wait_turn(scope, entry, on_turn)
    run.receipt.answered(entry, run.replay.usage)
    match outcome.kind:
        case Kind.done:
            try:
                return coder.loads(run.text(outcome.payload), what=f"the recorded result of {entry.key}")
            except Undecodable as error:
                await run.block(
                    {"why": "result does not fit", "asked": entry.key, "seq": outcome.seq, "detail": str(error)}
                )
        case Kind.failed:
            raise remember_key(decode_error(run.text(outcome.payload), raises), entry.key)
        case Kind.unstored:
            raise not_stored(entry.key, run.id)
        case _:
            raise AssertionError(outcome.kind)


def not_stored(key: str, run_id: str) -> ResultNotStored:
    return ResultNotStored(
        f"Run {run_id}: {key} happened, but its result could not be stored; it is not repeated. "
        "Return something that can be stored (annotate the return type), and see `holdfast show` for what it was."
    )


async def _wait_turn(scope: Scope, entry: Entry, on_turn: Callable[[], None] | None) -> None:
    """Return when the recorded outcome is to be delivered, as many turns of the loop after its tick as it was live.

    An effect is shielded, as it was: a cancellation arrives after its outcome, and that takes one turn more.
    """
    run = scope.run
    is_shielded = entry.is_effect and entry.child is None
    turn: asyncio.Future[None] = run.loop.create_future()

    def come() -> None:
        if on_turn is not None:
            on_turn()
        if not turn.done():
            turn.set_result(None)

    if entry.delivered:
        run.journal.add(Kind.noted, entry.key, "late")
    scope.in_call = True
    run.ticks.await_recorded(entry, come)
    try:
        if not is_shielded:
            await turn
            return
        shield = Shield(run.is_dead)
        try:
            await shield.wait(turn)
            await shield.drive(asyncio.sleep(0))
        finally:
            shield.close()
    finally:
        scope.in_call = False
    raise_kept(scope, shield)


def raise_kept(scope: Scope, shield: Shield) -> None:
    """What was shielded has ended: raise the cancellation that came meanwhile, unless the call was clean-up."""
    kept = shield.kept
    if kept is None:
        return
    if scope.run.is_clean_up(scope):
        scope.run.owe(scope, shield)
    else:
        raise kept


async def clean_up(scope: Scope, call: Coroutine[Any, Any, T]) -> T:
    """Make a call that goes on to its end, whoever cancels it; but timeouts that the clean-up itself opened end it."""
    run = scope.run
    task = scope.task
    is_told_apart = task is not None and (scope.cleans_up or task.cancelling() > 0)
    outer, shield = scope.shield, Shield(run.is_dead, own=task if is_told_apart else None)
    scope.shield = shield
    try:
        return await shield.drive(call)
    finally:
        scope.shield = outer
        run.owe(scope, shield)


async def deliver(scope: Scope, record: Callable[[int], None], *, shielded: bool = False) -> None:
    """Have the outcome of a live call recorded, and return when it is the call's turn.

    `shielded`: the outcome is recorded even if the code cancels the call now.
    """
    run = scope.run
    if run.lines == 1:
        record(run.ticks.next_tick())
        if run.journal.backlogged:
            await run.journal.wait_backlog()
        return
    if run.journal.backlogged:
        await (
            run.journal.wait_backlog()
        )  # before its turn: what comes after that happens in a fixed number of loop turns
    turn: asyncio.Future[None] = run.loop.create_future()

    def complete(tick: int) -> None:
        record(tick)
        if not turn.done():
            turn.set_result(None)

    run.ticks.complete(complete)
    try:
        await turn
    except asyncio.CancelledError:
        if not shielded:
            run.ticks.withdraw(complete)
        raise


async def to_its_end(run: RunContext, work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Do something that cannot be left half done: its result, and the cancellation that came meanwhile."""
    task = asyncio.Task(work, context=outside())
    shield = Shield(run.is_dead)
    await shield.outlast(task)
    return task.result(), shield.kept


def elapsed_us(since_us: int) -> int:
    return monotonic_us() - since_us
