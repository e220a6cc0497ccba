"""Why a run stands as it does: the `reason` of its row, as a closed union, and as the JSON that is stored.

`read` is the only reader of what is stored, `text` its only writer. What was read is written back as it was read, to
the byte: a later version may have said more, and a row's digest covers all of it. So reading is lenient. What is
missing gets a default, a status that this version does not know counts as queued (a replay finds out), and a reason
that it does not know is `Other`, which keeps nobody from looking at the run.

reason       status                      stored as `why`
Waiting      waiting sleeping in_doubt   timer, signal, question, child, in doubt
Paused       paused                      paused
HandedOver   queued                      handed over
Cleanup      queued                      (none)
Blocked      blocked                     a `Cause`
Moving       blocked                     moving
Arriving     blocked                     arriving
Frozen       blocked, final              frozen
Moved        any                         moved
Pruned       final                       pruned
Corrupt      quarantined                 corrupt
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, assert_never

from holdfast.base.data import brisk
from holdfast.model import diagnoses
from holdfast.model.diagnoses import (
    Backwards,
    Cause,
    ChangedOutside,
    Diagnosis,
    Left,
    Mismatch,
    Plain,
    given,
    listed,
    number,
    words,
)
from holdfast.model.statuses import Status
from holdfast.model.waits import Wait, WaitKind, foremost

_encode: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class _Stored:
    """Has what it was read from, or is stored as."""

    __slots__ = ("_kept",)
    _kept: Plain


@brisk
class Waiting(_Stored):
    """Its calls wait for something from outside."""

    waits: tuple[Wait, ...]
    due: int | None  #: when it is to be taken up at the latest, µs
    mail: int  #: the last that it had seen
    cleanup: bool  #: there is something to undo, should it be cancelled


@brisk
class HandedOver(_Stored):
    """Its worker closed, or lost the store: another one goes on."""

    cleanup: bool | None = None
    detail: str | None = None


@brisk
class Cleanup(_Stored):
    """What it waited for has come, and there is something to undo, should it be cancelled."""


@brisk
class Stood:
    """How a run stood that was paused."""

    over: Reason | None
    wake_at: int | None


@brisk
class Paused(_Stored):
    """A person stopped it."""

    was: Status = Status.queued  #: what it goes back to
    by: str | None = None
    note: str = ""
    stood: Stood | None = None  #: None: it was in the middle of something, or had not begun
    mail: int | None = None  #: the last that it had seen, where `stood` does not tell
    cleanup: bool | None = None  #: likewise


@brisk
class Tried:
    """What was executed before it came to that."""

    source: str | None  #: the file that it was executed from
    executed: int | None


@brisk
class Blocked(_Stored):
    """It needs a fix."""

    found: Diagnosis
    paused: bool = False  #: it was paused too
    tried: Tried | None = None


@brisk
class Was(_Stored):
    """How a run stood before it was shut, to be moved to another store."""

    status: Status
    reason: Reason | None
    wake_at: int | None
    updated_at: int


@brisk
class Moving(_Stored):
    """It is shut here, with all it has, until another store has it."""

    to: str
    at: int | None
    was: Was
    mail: int


@brisk
class Arriving(_Stored):
    """It is here, with all it has, and shut until that is known."""

    origin: str
    at: int | None
    was: Was


@brisk
class Frozen(_Stored):
    """It is a copy, of a run that lives elsewhere: to be looked at and forked, never to be executed."""

    origin: str
    at: int | None
    was: Was


@brisk
class Moved(_Stored):
    """Another store has it, and what it did was removed here."""

    to: str
    at: int | None


@brisk
class Pruned(_Stored):
    """What it did was removed."""

    at: int | None


@brisk
class Corrupt(_Stored):
    """Its stored data failed verification."""

    detail: str


@brisk
class Other(_Stored):
    """One that this version does not know."""

    said: Plain


Reason = (
    Waiting | Paused | HandedOver | Cleanup | Blocked | Moving | Arriving | Frozen | Moved | Pruned | Corrupt | Other
)


# what it says, whatever it is


def waits_of(reason: Reason | None) -> tuple[Wait, ...]:
    """What the run waits for; of a paused one, what it waited for."""
    match reason:
        case Waiting():
            return reason.waits
        case Paused(stood=Stood(over=Waiting() as over)):
            return over.waits
        case Other():
            return _waits(reason.said)
        case _:
            return ()


def doubts_of(reason: Reason | None) -> list[Wait]:
    """The effects that wait for a person's verdict."""
    return [wait for wait in waits_of(reason) if wait.kind is WaitKind.doubt]


def cleans_up(reason: Reason | None) -> bool:
    """Is there something to undo, should the run be cancelled?"""
    match reason:
        case Cleanup():
            return True
        case Paused(cleanup=None, stood=Stood(over=over)):
            return cleans_up(over)
        case Waiting() | HandedOver() | Paused():
            return bool(reason.cleanup)
        case Other():
            return bool(reason.said.get("cleanup"))
        case _:
            return False


def seen_mail(reason: Reason | None) -> int:
    """The number of the last mail that the run had seen when it was given up."""
    match reason:
        case Paused(mail=None, stood=Stood(over=over)):
            return seen_mail(over)
        case Waiting() | Moving() | Paused():
            return reason.mail or 0
        case Other():
            return number(reason.said.get("mail")) or 0
        case _:
            return 0


def due_of(reason: Reason | None) -> int | None:
    """When something that the run waits for is due, µs."""
    match reason:
        case Waiting():
            return reason.due
        case Paused(stood=Stood(over=over)):
            return due_of(over)
        case Other():
            return number(reason.said.get("due"))
        case _:
            return None


def paused_by(reason: Reason | None) -> tuple[str, str]:
    """Who stopped it, and what they said; empty if that is not known."""
    match reason:
        case Paused():
            return reason.by or "", reason.note
        case Other():
            return words(reason.said.get("by")) or "", words(reason.said.get("note")) or ""
        case _:
            return "", ""


def asked_of(reason: Reason | None) -> str:
    """What the code of a blocked run asked for when it could not go on."""
    found = blocked(reason).found
    return "" if isinstance(found, Backwards) else found.asked or ""


def recorded_of(reason: Reason | None) -> tuple[Left, ...]:
    """The calls that the code did not ask for."""
    match reason:
        case Blocked(found=Mismatch() as found):
            return found.recorded
        case Other():
            return diagnoses.recorded(reason.said)
        case _:
            return ()


def is_changed_outside(reason: Reason | None) -> bool:
    """Does it wait for somebody to accept what changed outside?"""
    return isinstance(reason, Blocked) and isinstance(reason.found, ChangedOutside)


def why(reason: Reason | None) -> str:
    """The reason in a word; empty for none."""
    return "" if reason is None else str(plain(reason).get("why") or "")


def detail_of(reason: Reason | None) -> str:
    """What else is to be said of it to people; often nothing."""
    said = plain(reason) if reason is not None else {}
    return str(said.get("detail") or said.get("message") or "")


def summed_up(reason: Blocked) -> Plain:
    """What a journal notes of it."""
    return {"why": reason.found.cause.value, "detail": reason.found.detail}


def blocked(reason: Reason | None) -> Blocked:
    """The diagnosis of a run that is blocked, whatever its row says of it."""
    return reason if isinstance(reason, Blocked) else _blocked(plain(reason) if reason is not None else {})


# pausing


def went_on(reason: Reason | None, row_mail: int) -> tuple[Status, Reason | None, int | None]:
    """What a paused run becomes that is to go on: its status, the reason, and when it wakes up.

    Status.queued: it goes on at once, since there is mail that it has not seen, or it was in the middle of something.
    """
    said = dict(plain(reason)) if reason is not None else {}
    was = _status(said.get("was"))
    if was not in _WAITING or row_mail > seen_mail(reason):
        return Status.queued, Cleanup() if cleans_up(reason) else None, None
    wake_at: int | None = said.get("wake_at")
    for gone in ("was", "wake_at", "by", "note"):
        said.pop(gone, None)
    return was, of({**said, "why": _word(foremost(waits_of(reason)))}), wake_at


_WAITING = frozenset({Status.waiting, Status.sleeping, Status.in_doubt})


# as it is stored


def text(reason: Reason) -> str:
    """The reason as JSON text, to be stored."""
    return _encode(plain(reason))


def plain(reason: Reason) -> Plain:
    """The reason as what JSON has: what people see, and the digest of a row covers."""
    kept: Plain | None = getattr(reason, "_kept", None)
    if kept is None:
        kept = reason._kept = _plain(reason)  # it is asked for once to be stored, and once for the digest
    return kept


def read(stored: str) -> Reason:
    """A reason that was stored; ValueError if it is damaged."""
    said = json.loads(stored)
    if not isinstance(said, dict):
        raise ValueError("not an object")
    return of(said)


def of(said: Plain) -> Reason:
    """A reason from what JSON has."""
    word = said.get("why")
    if word is None and said == {"cleanup": True}:
        return _keep(Cleanup(), said)
    reader = _READERS.get(word) if isinstance(word, str) else None
    return Other(said) if reader is None else _keep(reader(said), said)


T = TypeVar("T", bound=_Stored)


def _keep(reason: T, said: Plain) -> T:
    reason._kept = said
    return reason


def _plain(reason: Reason) -> Plain:
    match reason:
        case Waiting(waits, due, mail, cleanup):
            shown = [{"kind": wait.kind.value, "key": wait.key, "due": wait.due, **wait.shown} for wait in waits]
            return {"why": _word(foremost(waits)), "waits": shown, "due": due, "mail": mail, "cleanup": cleanup}
        case HandedOver(cleanup, detail):
            return {"why": "handed over", **given(cleanup=cleanup, detail=detail)}
        case Cleanup():
            return {"cleanup": True}
        case Paused():
            return _plain_pause(reason)
        case Blocked(found, paused, tried):
            more = {"source": tried.source, "executed": tried.executed} if tried is not None else {}
            return {"why": found.cause.value, **diagnoses.plain(found), **({"paused": True} if paused else {}), **more}
        case Moving(to, at, was, mail):
            return {"why": "moving", "to": to, "at": at, "was": plain_was(was), "mail": mail}
        case Arriving(origin, at, was):
            return {"why": "arriving", "from": origin, "at": at, "was": plain_was(was)}
        case Frozen(origin, at, was):
            return {"why": "frozen", "from": origin, "at": at, "was": plain_was(was)}
        case Moved(to, at):
            return {"why": "moved", "to": to, "at": at}
        case Pruned(at):
            return {"why": "pruned", "at": at}
        case Corrupt(detail):
            return {"why": "corrupt", "detail": detail}
        case Other(said):
            return said
        case _:
            assert_never(reason)


def _plain_pause(paused: Paused) -> Plain:
    act = {} if paused.by is None else {"by": paused.by, "note": paused.note}
    if paused.stood is None:
        seen = given(mail=paused.mail, cleanup=paused.cleanup)
        return {"why": "paused", "was": paused.was.value, **seen, **act}
    over = plain(paused.stood.over) if paused.stood.over is not None else {}
    stood = {"was": paused.was.value, "wake_at": paused.stood.wake_at}
    seen = {} if "mail" in over else given(mail=paused.mail)
    return {**over, "why": "paused", **stood, **act, **given(cleanup=paused.cleanup), **seen}


def plain_was(was: Was) -> Plain:
    """How a run stood, as what JSON has."""
    kept: Plain | None = getattr(was, "_kept", None)
    if kept is not None:
        return kept
    reason = None if was.reason is None else plain(was.reason)
    return {"status": was.status.value, "reason": reason, "wake_at": was.wake_at, "updated_at": was.updated_at}


def _word(kind: WaitKind) -> str:
    return "in doubt" if kind is WaitKind.doubt else kind.value


# and back


def _waiting(said: Plain) -> Waiting:
    return Waiting(_waits(said), number(said.get("due")), number(said.get("mail")) or 0, bool(said.get("cleanup")))


def _waits(said: Plain) -> tuple[Wait, ...]:
    return tuple(
        Wait(
            WaitKind.of(each.get("kind")),
            str(each.get("key") or ""),
            number(each.get("due")),
            {name: value for name, value in each.items() if name not in ("kind", "key", "due")},
        )
        for each in listed(said.get("waits"))
        if isinstance(each, Mapping)
    )


def _handed_over(said: Plain) -> HandedOver:
    return HandedOver(said.get("cleanup"), words(said.get("detail")))


def _paused(said: Plain) -> Paused:
    over: Reason | None = None
    mail, cleanup = number(said.get("mail")), said.get("cleanup")
    if "waits" in said:
        over, mail, cleanup = _waiting(said), None, None
    elif said.get("detail"):
        over = HandedOver(detail=str(said["detail"]))
    stood = Stood(over, number(said.get("wake_at"))) if over is not None or "wake_at" in said else None
    by, note = words(said.get("by")), words(said.get("note"))
    return Paused(_status(said.get("was")), by, note or "", stood, mail, cleanup)


def _blocked(said: Plain) -> Blocked:
    tried = Tried(words(said.get("source")), number(said.get("executed"))) if "executed" in said else None
    return Blocked(diagnoses.read(Cause.of(said.get("why")), said), bool(said.get("paused")), tried)


def _was(said: object) -> Was:
    """Of a run that was not shut before: what is nested deeper was not written by us, and is not looked into."""
    found: Plain = said if isinstance(said, Mapping) else {}
    nested = found.get("reason")
    reason: Reason | None = None
    if isinstance(nested, Mapping):
        reason = Other(nested) if nested.get("was") and isinstance(nested["was"], Mapping) else of(nested)
    wake_at, updated_at = number(found.get("wake_at")), number(found.get("updated_at"))
    return _keep(Was(_status(found.get("status")), reason, wake_at, updated_at or 0), found)


def _status(value: object) -> Status:
    return _STATUSES.get(value, Status.queued) if isinstance(value, str) else Status.queued


_STATUSES: Mapping[str, Status] = {each.value: each for each in Status}

#: By the word that it is stored under.
_READERS: Final[Mapping[str, Callable[[Plain], Reason]]] = {
    **{_word(kind): _waiting for kind in WaitKind if kind is not WaitKind.unknown},
    **{cause.value: _blocked for cause in Cause if cause is not Cause.unknown},
    "handed over": _handed_over,
    "paused": _paused,
    "moving": lambda said: Moving(
        str(said.get("to") or ""), number(said.get("at")), _was(said.get("was")), number(said.get("mail")) or 0
    ),
    "arriving": lambda said: Arriving(str(said.get("from") or ""), number(said.get("at")), _was(said.get("was"))),
    "frozen": lambda said: Frozen(str(said.get("from") or ""), number(said.get("at")), _was(said.get("was"))),
    "moved": lambda said: Moved(str(said.get("to") or ""), number(said.get("at"))),
    "pruned": lambda said: Pruned(number(said.get("at"))),
    "corrupt": lambda said: Corrupt(str(said.get("detail") or "")),
}
