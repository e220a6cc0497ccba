"""What a fork of a run would be: what answers from the journal, what happens again, and what is not copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from holdfast.base.data import data, mutable
from holdfast.history.calls import NO_CALL, kind_of
from holdfast.history.facts import Facts, note_of
from holdfast.history.words import count
from holdfast.journal.forks import FORKED, ForkedPart, InTheWay, told
from holdfast.model import OUTCOMES, Kind, MailKind, Record, RunRow
from holdfast.store.contract import Store

_PAGE = 2000
_SHOWN = 5  #: names in a sentence
#: Calls that people know as such; the rest is bookkeeping.
_SHOWN_KINDS = frozenset({"step", "effect", "child", "ask", "receive", "sleep", "interrupt"})
_ACTING = frozenset({"effect", "child"})
_READABLE = frozenset({MailKind.signal, MailKind.interrupt})


@data
class PlannedCall(Facts):
    """A call of the original, and where it ended (or began, if it did not)."""

    key: str
    name: str
    kind: str  #: step, effect, child, ask, receive, sleep, …
    seq: int


@data
class UnreadMail(Facts):
    """Something that was sent to the original, and that the fork does not get."""

    number: int
    kind: str
    name: str


@data
class ForkPlan(Facts):
    """What a fork would be, before it is made.

    Example: `print("\\n".join((await run.fork_plan(12)).sentences))`
    """

    run_id: str
    agent: str
    asked: int  #: the record that was asked for
    at: int  #: the record that the fork begins behind
    turn: int  #: that it is in; 0: in none
    in_the_way: tuple[InTheWay, ...]  #: what moved the point back
    replays: tuple[PlannedCall, ...]  #: answered from the copied part, as they once were
    again: tuple[PlannedCall, ...]  #: made by the original after the point; if the code comes to them, they run again
    effects_again: tuple[str, ...]  #: those of them that act outward
    not_copied: tuple[PlannedCall, ...]  #: open at the point: they begin anew
    unread: tuple[UnreadMail, ...]
    children: tuple[str, ...]  #: runs that the copied part started; they stay the original's
    changed: tuple[str, ...]  #: calls that get another result

    @property
    def sentences(self) -> list[str]:
        """The same for people."""
        return list(_sentences(self))

    def as_dict(self) -> dict[str, object]:
        """Everything in it, ready for JSON."""
        moved = [asdict(each) for each in self.in_the_way]
        return {**Facts.as_dict(self), "in_the_way": moved, "sentences": self.sentences}


class PlannedCalls:
    """The calls that a plan names, from the records of a run as they come: those that count, and those of later."""

    def __init__(self) -> None:
        self.calls: dict[str, _Seen] = {}
        self._passed: set[str] = set()  # of turns that do not count; such a call may go on later

    def see(self, record: Record, is_counted: bool, is_later: bool) -> None:
        """The next one."""
        if record.kind in NO_CALL or record.kind == Kind.noted or not record.key:
            return
        key = record.key
        seen = self.calls.get(key)
        if seen is None:
            seen = self.calls[key] = _Seen(record.name, record.seq)
        seen.last = record.seq
        seen.is_effect |= record.kind == Kind.intent
        seen.is_child |= record.kind == Kind.child
        if is_counted or is_later:
            self._passed.discard(key)
        elif record.kind in OUTCOMES:
            del self.calls[key]
            self._passed.discard(key)
        else:
            self._passed.add(key)

    def planned(self) -> dict[str, PlannedCall]:
        """Those that people know as such, in the order in which they began."""
        return {
            key: PlannedCall(key, seen.name, kind, seen.last)
            for key, seen in self.calls.items()
            if key not in self._passed and (kind := seen.kind) in _SHOWN_KINDS
        }


@mutable
class _Seen:
    name: str
    last: int  #: the number of its last record
    is_effect: bool = False
    is_child: bool = False

    @property
    def kind(self) -> str:
        return kind_of(self.name, is_effect=self.is_effect, is_child=self.is_child)


async def unread_of(store: Store, row: RunRow, part: ForkedPart) -> list[UnreadMail]:
    """What was sent to a run for its code, and that the copied part has not taken."""
    found: list[UnreadMail] = []
    after = 0
    while page := await store.mail(row.id, after=after, limit=_PAGE):
        after = page[-1].number
        found += [
            UnreadMail(each.number, each.kind, each.key)
            for each in page
            if each.kind in _READABLE and each.number <= row.mail and each.number not in part.consumed_mail
        ]
    return found


def plan_of(
    row: RunRow, seen: PlannedCalls, part: ForkedPart, *, unread: Sequence[UnreadMail], changed: Sequence[str]
) -> ForkPlan:
    """What a fork of this run would be."""
    ended, opened = set(part.ended), {r.key for r in part.open}
    calls = seen.planned()
    again = [call for key, call in calls.items() if key not in ended and (key in opened or call.seq > part.at)]
    return ForkPlan(
        run_id=row.id,
        agent=row.agent,
        asked=part.asked,
        at=part.at,
        turn=part.turn,
        in_the_way=part.in_the_way,
        replays=tuple(calls[key] for key in part.ended if key in calls),
        again=tuple(again),
        effects_again=tuple(call.key for call in again if call.kind in _ACTING),
        not_copied=tuple(call for call in again if call.key in opened),
        unread=tuple(unread),
        children=tuple(str(note_of(r).get("run")) for r in part.records if r.kind == Kind.child),
        changed=tuple(changed),
    )


def origin_of(created: Record) -> dict[str, Any] | None:
    """Where a fork comes from; None for other runs."""
    said = note_of(created).get(FORKED)
    if not isinstance(said, dict):
        return None
    told = {name: said.get(name) for name in ("run", "at", "by")}
    return {**told, "note": said.get("note") or "", "changed": list(said.get("changed") or ())}


def origin_text(created: Record) -> str:
    """The same: `forked from issue-7 at record 12 by ann, search#1 changed`; empty for other runs."""
    said = origin_of(created)
    if said is None:
        return ""
    changed = ", ".join(said["changed"])
    parts = [f"forked from {said['run']} at record {said['at']} by {said['by']}"]
    parts += [f"{changed} changed"] if changed else []
    parts += [str(said["note"])] if said["note"] else []
    return ", ".join(parts)


def _sentences(plan: ForkPlan) -> Iterator[str]:
    where = f"The fork begins behind record {plan.at} of {plan.run_id}{f', in turn {plan.turn}' if plan.turn else ''}"
    if plan.in_the_way:
        yield f"{where}, not {plan.asked}: {told(plan.in_the_way)}."
    else:
        yield f"{where}."
    yield f"{count(len(plan.replays), 'call')} {_answer(len(plan.replays))} from the copied part{_named(plan.replays)}."
    if plan.changed:
        yield f"Another result: {', '.join(plan.changed)}."
    if plan.effects_again:
        acting = [call for call in plan.again if call.key in plan.effects_again]
        yield f"If the code comes to them, these happen again, with other keys{_named(acting)}."
    if rest := [call for call in plan.again if call.key not in plan.effects_again and call not in plan.not_copied]:
        yield f"{count(len(rest), 'other call')} of the original came later and {_run(len(rest))} again{_named(rest)}."
    if plan.not_copied:
        yield f"Open at that point, and begun anew{_named(plan.not_copied)}."
    if plan.unread:
        names = ", ".join(dict.fromkeys(each.name or each.kind for each in plan.unread))
        yield f"{count(len(plan.unread), 'message')} of the original that the fork does not get: {names}."
    if plan.children:
        started = ", ".join(plan.children[:_SHOWN])
        yield f"{count(len(plan.children), 'run')} that it started stay the original's: {started}."


def _named(calls: Sequence[PlannedCall]) -> str:
    if not calls:
        return ""
    more = f" and {len(calls) - _SHOWN} more" if len(calls) > _SHOWN else ""
    return f": {', '.join(call.key for call in calls[:_SHOWN])}{more}"


def _answer(number: int) -> str:
    return "answers" if number == 1 else "answer"


def _run(number: int) -> str:
    return "runs" if number == 1 else "run"
