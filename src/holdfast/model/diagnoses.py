"""What is wrong with a run that is blocked, as data and as what JSON has: the part of `reasons` that says most."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, assert_never

from holdfast.base.data import data

Plain = Mapping[str, Any]


class Cause(StrEnum):
    """Why a run is blocked, in a word."""

    mismatch = "replay mismatch"  #: the code asks for what its journal does not have
    result = "result does not fit"  #: a recorded one, the type that the code has now
    input = "input does not fit"
    state = "state does not fit"  #: that of the last checkpoint, the type that the code has now
    prologue = "prologue is closed"  #: the code does something new before its loop, which had begun
    race = "race changed"
    sealed = "call cannot go on"  #: what it met must not be told to a model, which would try again
    answer = "answer missing"
    backwards = "history went backwards"  #: the store has lost what it had
    crash_loop = "crash loop"  #: whoever takes it dies
    open_effects = "effects left open"  #: at the end of the agent
    mail = "mail unreadable"
    thread = "thread"  #: what was read from one is not there any more, or is something else
    internal = "internal error"
    cancelled = "cancelled"  #: it was, and its code goes on
    budget = "budget"  #: what it may use is used up
    changed = "changed outside"  #: what a guard looks at is not what it was
    lost = "lost"
    unknown = "unknown"  #: one that this version does not know

    @classmethod
    def of(cls, text: object) -> Cause:
        return _CAUSES.get(text, cls.unknown) if isinstance(text, str) else cls.unknown


_CAUSES: Mapping[str, Cause] = {each.value: each for each in Cause}


@data
class Left:
    """A recorded call that the code did not ask for."""

    key: str
    name: str
    seq: int
    args: str
    open: bool  #: an effect that is not known to have happened


@data
class Mismatch:
    """The code asked for something, and the journal has something else."""

    asked: str
    where: str  #: file:line
    recorded: tuple[Left, ...]
    attempted: tuple[str, ...]  #: what the code asked for before, in that branch
    detail: str | None = None

    @property
    def cause(self) -> Cause:
        return Cause.mismatch


@data
class Head:
    """How far somebody knows a journal."""

    seq: int
    hash: str
    epoch: int


@data
class Backwards:
    """The store does not have what the worker was told is on disk."""

    detail: str
    advice: str
    effects: tuple[str, ...]  #: begun since, which the store does not know of
    here: Head
    there: Head

    @property
    def cause(self) -> Cause:
        return Cause.backwards


@data
class Trouble:
    """Any other cause, with what is to be said of it."""

    cause: Cause
    asked: str | None = None
    seq: int | None = None
    detail: str | None = None
    advice: str | None = None


@data
class OverBudget:
    """A limit is reached: its own, or that of a run that it came of."""

    owner: str  #: the run whose budget it is
    what: str  #: tokens, cost or steps
    limit: float
    used: float  #: by the owner and all that came of it

    @property
    def cause(self) -> Cause:
        return Cause.budget

    @property
    def asked(self) -> str:
        return f"{self.used:g} of {self.limit:g} {self.what}"

    @property
    def detail(self) -> str:
        return f"The budget of run {self.owner} is used up: {self.used:g} of {self.limit:g} {self.what}."


@data
class Change:
    """What a guard found."""

    name: str  #: of the guard
    was: str
    now: str | None  #: None: it could not be looked at
    failure: str = ""  #: why


@data
class ChangedOutside:
    """What guards look at is not what it was, and they say that the run is not to go on by itself then."""

    changes: tuple[Change, ...]

    @property
    def cause(self) -> Cause:
        return Cause.changed

    @property
    def asked(self) -> str:
        return ", ".join(each.name for each in self.changes)

    @property
    def detail(self) -> str:
        return "\n".join(map(change_text, self.changes))


def change_text(change: Change) -> str:
    """`repo: main at 1a2b → main at 3c4d`; of texts of several lines, those that differ."""
    if change.now is None:
        return f"{change.name} could not be looked at: {change.failure}"
    was, now = change.was.splitlines(), change.now.splitlines()
    gone, new = [each for each in was if each not in set(now)], [each for each in now if each not in set(was)]
    if len(was) <= 1 and len(now) <= 1:
        return f"{change.name}: {_shown(was)} → {_shown(now)}"
    return f"{change.name}: {_shown(gone)} → {_shown(new)}"


_SHOWN_LINES, _SHOWN_TEXT = 5, 200


def _shown(lines: list[str]) -> str:
    more = f" and {len(lines) - _SHOWN_LINES} more" if len(lines) > _SHOWN_LINES else ""
    text = ", ".join(lines[:_SHOWN_LINES])
    return (text if len(text) <= _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 1]}…") + more or "nothing"


Diagnosis = Mismatch | Backwards | OverBudget | ChangedOutside | Trouble


def plain(found: Diagnosis) -> Plain:
    """What is stored of it, besides the cause."""
    match found:
        case Mismatch(asked, where, recorded_, attempted, detail):
            left = [{"key": e.key, "name": e.name, "seq": e.seq, "args": e.args, "open": e.open} for e in recorded_]
            lists = {"recorded": left, "attempted": list(attempted)}
            return {"asked": asked, "where": where, **lists, **given(detail=detail)}
        case Backwards(detail, advice, effects, here, there):
            heads = {"here": _plain_head(here), "there": _plain_head(there)}
            return {"detail": detail, "advice": advice, "effects": list(effects), **heads}
        case OverBudget(owner, what, limit, used):
            return {"owner": owner, "what": what, "limit": limit, "used": used}
        case ChangedOutside(changes):
            return {"changes": [plain_change(each) for each in changes]}
        case Trouble(_, asked, seq, detail, advice):
            return given(asked=asked, seq=seq, detail=detail, advice=advice)
        case _:
            assert_never(found)


def _plain_head(head: Head) -> Plain:
    return {"seq": head.seq, "hash": head.hash, "epoch": head.epoch}


def read(cause: Cause, said: Plain) -> Diagnosis:
    """A diagnosis that was stored; what is missing gets a default."""
    asked, detail, advice = (words(said.get(each)) for each in ("asked", "detail", "advice"))
    if cause is Cause.mismatch:
        attempted = tuple(map(str, listed(said.get("attempted"))))
        return Mismatch(asked or "", str(said.get("where") or ""), recorded(said), attempted, detail)
    if cause is Cause.backwards:
        effects = tuple(map(str, listed(said.get("effects"))))
        return Backwards(detail or "", advice or "", effects, _head(said.get("here")), _head(said.get("there")))
    if cause is Cause.budget:
        limit, used = (_amount(said.get(each)) for each in ("limit", "used"))
        return OverBudget(str(said.get("owner") or ""), str(said.get("what") or ""), limit, used)
    if cause is Cause.changed:
        found = (each for each in listed(said.get("changes")) if isinstance(each, Mapping))
        return ChangedOutside(tuple(map(read_change, found)))
    return Trouble(cause, asked, number(said.get("seq")), detail, advice)


def plain_change(change: Change) -> Plain:
    """As it is stored, here and in notes."""
    failed = {"failure": change.failure} if change.now is None else {}
    return {"name": change.name, "was": change.was, "now": change.now, **failed}


def read_change(said: Plain) -> Change:
    return Change(
        str(said.get("name")), str(said.get("was") or ""), words(said.get("now")), str(said.get("failure") or "")
    )


def recorded(said: Plain) -> tuple[Left, ...]:
    """The calls that the code did not ask for."""
    found = (each for each in listed(said.get("recorded")) if isinstance(each, Mapping))
    return tuple(
        Left(
            str(e.get("key")),
            str(e.get("name")),
            number(e.get("seq")) or 0,
            str(e.get("args", "")),
            bool(e.get("open")),
        )
        for e in found
    )


def _head(said: object) -> Head:
    found: Plain = said if isinstance(said, Mapping) else {}
    return Head(number(found.get("seq")) or 0, str(found.get("hash") or ""), number(found.get("epoch")) or 0)


def given(**known: object) -> Plain:
    """Those that are not None."""
    return {name: value for name, value in known.items() if value is not None}


def _amount(value: object) -> float:
    return value if isinstance(value, int | float) else 0


def number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def words(value: object) -> str | None:
    return None if value is None else str(value)
