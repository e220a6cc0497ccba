"""Signals: typed messages to a run, kept in order until the run receives them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from holdfast.base.clock import due_us
from holdfast.base.data import data
from holdfast.codec import Coder, coder_for, encode_error, read_outside
from holdfast.durations import Duration
from holdfast.errors import Undecodable, UsageError
from holdfast.journal.blobs import in_mail
from holdfast.model import Kind, Mail, NoteKind, WaitKind
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.call import DurableCall
from holdfast.running.outcomes import remember_key
from holdfast.running.scopes import Scope, in_branch
from holdfast.running.waiting import WaitCall, waiting

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from holdfast.running.context import RunContext

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PREFIX = "hf:receive."
#: So many characters of a value are in the journal, for people; it is stored in its mail.
_SHOWN = 100


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
    wanted: Any = Signal(*signal) if isinstance(signal, tuple) and len(signal) == 2 else signal
    if not hasattr(wanted, "name") or not hasattr(wanted, "type"):
        raise UsageError(f'hf.receive() takes a Signal, or its name and type, like ("approved", bool); got {signal!r}.')
    return await ReceiveCall(in_branch("hf.receive()"), wanted, timeout).make()


class ReceiveCall(DurableCall[Any]):
    """One wait for a signal."""

    __slots__ = ("timeout", "wanted")

    outlasts = False  # nobody knows whether a signal comes: in clean-up too, whoever cancels is heard

    def __init__(self, scope: Scope, wanted: Receivable[Any], timeout: Duration | None) -> None:
        super().__init__(scope, _PREFIX + wanted.name)
        self.wanted = wanted
        self.timeout = timeout

    @property
    def coder(self) -> Coder[Any]:
        return coder_for(self.wanted.type)

    async def execute(self) -> Any:
        run, entry = self.run, self.entry
        async with waiting(self, due_us=due_us(self.timeout, "hf.receive(timeout=)")) as call:
            # What was decided for a wait that the code gave up then is for whoever asks next.
            how = entry.decided if entry is not None and not entry.was_cancelled else None
            mail: Mail | None = None
            try:
                if how is not None:
                    mail = run.inbox.take_decided(how.get("mail", 0))
                    text = await self._decided(how, mail)
                else:
                    mail, text = await _next(run, call, self.wanted)
                    how = {"expired": True}
                    if mail is not None and text is not None:
                        how = {"mail": mail.number, "digest": mail.digest, "begins": text[:_SHOWN]}
                    await call.decide(how)
                return await self._end(call, mail, text)
            except BaseException:
                if mail is not None and not call.has_ended and not run.life.dead:
                    run.inbox.return_signal(mail)
                raise

    async def _decided(self, how: dict[str, Any], mail: Mail | None) -> str | None:
        """The value that it was decided to end with, as it is stored; None: that it came too late."""
        if how.get("expired"):
            return None
        if "value" in how:  # as former versions wrote it
            return str(how["value"])
        if mail is None or mail.digest != how.get("digest"):
            detail = f"mail {how.get('mail')}, which this wait was given, is missing or was changed"
            return str(await self.run.block(Blocked(Trouble(Cause.mail, self.key, detail=detail))))
        return _value_in(mail, self.wanted)

    async def _end(self, call: WaitCall, mail: Mail | None, text: str | None) -> Any:
        name = self.wanted.name
        if text is None:
            error = TimeoutError(f"run {self.run.id}: no signal {name!r} came in time")
            await call.end(Kind.failed, encode_error(error))
            raise remember_key(error, call.key)
        value = self.coder.loads(text, what=f"signal {name}")
        await call.end(Kind.done, text if mail is None else in_mail(mail, text))
        return value


async def _next(run: RunContext, call: WaitCall, wanted: Receivable[Any]) -> tuple[Mail | None, str | None]:
    """The next signal that fits and came in time, with its value as it is stored; None: it is too late."""
    while True:
        mail = run.inbox.next_signal(wanted.name)
        if mail is None:
            mail = await run.waits.wait(call.key, WaitKind.signal, {"name": wanted.name}, due_us=call.due_us)
        if mail is None:
            return None, None
        if call.due_us is not None and mail.at > call.due_us:
            run.inbox.return_signal(mail)
            return None, None
        try:
            text = _value_in(mail, wanted)
        except Undecodable as error:
            note = {"mail": mail.number, "problem": str(error)}
            run.journal.add(Kind.noted, "", NoteKind.refused, payload=json.dumps(note))
        else:
            return mail, text


def _value_in(mail: Mail, wanted: Receivable[Any]) -> str:
    """What a signal brought, as it is stored; Undecodable if it does not fit."""
    return read_outside(wanted.type, json.loads(mail.body)["value"], what=f"signal {wanted.name}")[0]
