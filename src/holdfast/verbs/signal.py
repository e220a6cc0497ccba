"""Signals: typed messages to a run, kept in order until the run receives them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from holdfast.base.clock import due_us
from holdfast.base.data import data
from holdfast.codec import Coder, coder_for, encode_error, read_outside
from holdfast.durations import Duration
from holdfast.errors import Undecodable, UsageError
from holdfast.model import Kind, Mail
from holdfast.running.calls import answer, remember_key
from holdfast.running.pending import until_cancelled
from holdfast.running.scopes import Scope, in_branch
from holdfast.running.waits import WaitCall, waiting

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from holdfast.running.context import RunContext

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PREFIX = "hf:receive."


@data
class Signal(Generic[T]):
    """A kind of message that runs take: its name, and the type of its value.

    Declare it with the agent, and a value of another shape is refused to its sender.

    Example:
        approved = hf.Signal("approved", bool)

        @hf.agent(signals=[approved])
        async def publish(text: str) -> str:
            return "published" if await hf.receive(approved) else "dropped"
    """

    name: str
    type: TypeForm[T]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or not 1 <= len(self.name) <= 100:
            raise UsageError(f"The name of a signal has 1 to 100 printable characters; got {self.name!r}.")


class Receivable(Protocol[T_co]):
    """A signal, for whoever receives it: a value of its type is one of a wider type too. Not so for who sends it."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> TypeForm[T_co]: ...


@overload
async def receive(signal: Receivable[T], *, timeout: Duration | None = None) -> T: ...
@overload
async def receive(signal: tuple[str, TypeForm[T]], *, timeout: Duration | None = None) -> T: ...
async def receive(signal: Receivable[Any] | tuple[str, Any], *, timeout: Duration | None = None) -> Any:
    """Wait for the next signal of this name, in the order of sending. Those sent before are not lost.

    The run needs no process while it waits. With `timeout`, TimeoutError is raised when nothing has come by then; the
    time is absolute, a crash does not start it anew.

    Example: `ok = await hf.receive(("approved", bool), timeout=timedelta(days=2))`
    """
    scope = in_branch("hf.receive()")
    run = scope.run
    if run.halted:
        await run.check(scope)
    wanted: Receivable[Any] = Signal(*signal) if isinstance(signal, tuple) else signal
    coder: Coder[Any] = coder_for(wanted.type)
    name = _PREFIX + wanted.name
    entry = run.claim(scope, name, "", None)
    if entry is not None and entry.outcome is not None:
        if not entry.was_cancelled:
            return await answer(scope, entry, coder, ())
        await until_cancelled(scope, entry)
    if run.gate is not None:
        await run.pass_gate(scope)
    async with waiting(scope, name, entry, due_us=due_us(timeout, "hf.receive(timeout=)")) as call:
        # What was decided for a wait that the code gave up then is for whoever asks next.
        how = entry.decided if entry is not None and not entry.was_cancelled else None
        mail: Mail | None = None
        try:
            if how is not None:
                mail = run.decided_signals.pop(how.get("mail", 0), None)
            else:
                mail, text = await _next(run, call, wanted)
                how = {"expired": True} if mail is None else {"mail": mail.number, "value": text}
                await call.decide(how)
            return await _end(scope, call, how, wanted.name, coder)
        except BaseException:
            if mail is not None and not call.has_ended and not run.dead:
                run.return_signal(mail)
            raise


async def _next(run: RunContext, call: WaitCall, wanted: Receivable[Any]) -> tuple[Mail | None, str]:
    """The next signal that fits and came in time, with its value as it is stored; None: it is too late."""
    while True:
        mail = run.next_signal(wanted.name)
        if mail is None:
            mail = await run.wait(call.key, "signal", {"name": wanted.name}, due_us=call.due_us)
        if mail is None:
            return None, ""
        if call.due_us is not None and mail.at > call.due_us:
            run.return_signal(mail)
            return None, ""
        try:
            text, _ = read_outside(wanted.type, json.loads(mail.body)["value"], what=f"signal {wanted.name}")
        except Undecodable as error:
            note = {"mail": mail.number, "problem": str(error)}
            run.journal.add(Kind.noted, "", "refused", payload=json.dumps(note))
        else:
            return mail, text


async def _end(scope: Scope, call: WaitCall, how: dict[str, Any], name: str, coder: Coder[Any]) -> Any:
    if how.get("expired"):
        error = TimeoutError(f"run {scope.run.id}: no signal {name!r} came in time")
        await call.end(Kind.failed, encode_error(error))
        raise remember_key(error, call.key)
    value = coder.loads(how["value"], what=f"signal {name}")
    await call.end(Kind.done, how["value"])
    return value
