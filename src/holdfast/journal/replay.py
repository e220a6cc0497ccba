"""The read side of one run's journal: which recorded call answers which call of the code.

A call is matched by branch, name and the digest of its arguments first; so a step that was inserted, removed or moved
costs nothing but itself. Effects are stricter: one without a record may run only if no recorded effect is left over
that it might be, under another name or with other arguments.

Of a run with turns the prologue and the last turn are here. What the code makes no more in the prologue is passed by
when the loop is reached; but an effect with the name and arguments of one of those has moved into the loop.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.base.numbers import Numbers
from holdfast.journal.checkpoints import Past, turn_path, without_turn
from holdfast.journal.claims import claim_in, without_origin
from holdfast.journal.evidence import KEPT
from holdfast.journal.left import WorkspaceVersions
from holdfast.journal.leftovers import Leftovers, is_unasked, last_unclaimed, may_be
from holdfast.journal.outside import Outside
from holdfast.journal.patches import Patches
from holdfast.model import OUTCOMES, Kind, NoteKind, Record
from holdfast.model.plans import PLAN

#: Records that the tick engine does not deliver: the code learns them in another way.
_INLINE_PREFIX = "hf."
_UNDO = ".undo"
#: The start of an interrupt's handler; its digest is the number of the mail.
_INTERRUPT = "hf:interrupt"
#: When a parent went on that had waited for the undoing of a child that it gave up.
CHILD_ENDED = "hf:ended"
#: What the code may take longer than it did, until it cancels a call that it had cancelled.
PATIENCE_S = 10.0
#: Notes that a resume needs to know.
_ACTS = frozenset(
    {
        *(NoteKind.paused, NoteKind.cancel, NoteKind.unheeded, NoteKind.requeued),
        *(NoteKind.blocked, NoteKind.moved, NoteKind.repaired),
    }
)
_FLAGS = _ACTS | {
    *(NoteKind.usage, NoteKind.refused, NoteKind.held, NoteKind.budget, NoteKind.guarded, NoteKind.workspace),
}
#: Notes that are made once.
_ONCE = frozenset({NoteKind.own_timer, NoteKind.outside})
#: Records that say nothing about a call.
_NO_CALL = frozenset({Kind.patched, Kind.noted, Kind.finished, Kind.reopened, Kind.checkpoint})


def branch_of(key: str) -> str:
    """The branch that a call's key names; explicit keys belong to the main line."""
    if without_turn(key).startswith("key:"):
        return key.partition("/")[0] if key[0] == "@" else ""
    return key.rpartition("/")[0]


def undo_key(key: str) -> str:
    """The key of the undo that settles a call in doubt; the code does not make that call, the call's rule does."""
    return key + _UNDO


class Entry:
    """A call as the journal knows it."""

    __slots__ = (
        "args",
        "attempt",
        "child",
        "claimed",
        "code",
        "decided",
        "delivered",
        "digest",
        "doubted",
        "ended_in_doubt",
        "first",
        "given",
        "held",
        "intended",
        "intent",
        "is_effect",
        "is_unsure",
        "key",
        "name",
        "outcome",
        "postponed",
        "ready_at",
        "started",
    )

    def __init__(self, record: Record, code: str) -> None:
        self.first = record
        self.key = record.key
        self.name = record.name
        self.digest = record.args_digest  #: of what it was begun with last, as `args`
        self.args = record.args
        self.code = code
        self.attempt = 0
        self.is_effect = False
        self.child: str | None = None
        self.intent: Record | None = None  #: an intent whose outcome is not known
        self.intended: Record | None = None  #: its first intent, whatever became of it
        self.doubted: Record | None = None  #: an intent of which it was ruled to fail, whatever became of it
        self.is_unsure = False  #: it was tried again, and may have happened before
        self.ended_in_doubt = False  #: that was its end, and the run was opened again: it is to be settled again
        self.started: Record | None = None
        self.decided: dict[str, Any] | None = None  #: how a wait ends, if that was decided
        self.outcome: Record | None = None
        self.held: Record | None = None  #: a person was asked what became of the intent that is open
        self.given: dict[str, Any] | None = None  #: what a person said, if nothing followed from it yet
        self.postponed = 0  #: attempts that asked to be tried later, and do not count as failures
        self.ready_at = 0  #: when the next attempt may start, µs
        self.claimed = False
        self.delivered = False

    @property
    def seq(self) -> int:
        return self.first.seq

    @property
    def branch(self) -> str:
        return branch_of(self.key)

    @property
    def occurrence(self) -> int:
        """Which of its name it was in its branch; the order of calls whose keys were not given by counting."""
        tail = self.key.rpartition("#")[2]
        return int(tail) if tail.isdecimal() else self.seq

    @property
    def was_cancelled(self) -> bool:
        """Did the code cancel it? Then there is no answer, and it is not made again before it is known why."""
        return self.outcome is not None and self.outcome.kind == Kind.cancelled

    @property
    def has_tick(self) -> bool:
        """Was its outcome delivered to the code? That of a cancelled call was not, nor what is learned otherwise."""
        outcome = self.outcome
        return outcome is not None and bool(outcome.tick) and outcome.kind != Kind.cancelled

    @property
    def is_open_effect(self) -> bool:
        return self.is_effect and self.outcome is None

    @property
    def is_in_doubt(self) -> bool:
        """Was a person asked what became of it, and has not said so? Then nobody works at it, and nobody will."""
        return self.intent is not None and self.held is not None and self.outcome is None and self.given is None

    @property
    def idempotency_key(self) -> str | None:
        """Of an effect, as its intent has it: that of a copied call is not this run's own."""
        said = self.intended
        return None if said is None else str(json.loads(said.payload or "{}")["idempotency_key"])

    @property
    def evidence(self) -> dict[str, Any]:
        """What is known of the attempt that a person was asked about: taking the run up again does not change it."""
        note = json.loads(self.held.payload or "{}") if self.held is not None else {}
        return {name: note[name] for name in KEPT if name in note}


class Replay:
    """What the journal can answer, and what of it was asked for so far."""

    def __init__(self, records: Sequence[Record], *, turn: int, code: str) -> None:
        self.code = code
        self.entries: dict[str, Entry] = {}
        self.turn = turn  #: that the journal ends in; from the loop on, the one that the run is in
        self.checkpoint: Record | None = None  #: at its head
        self._read_up_to = 0  # mail that is not in the journal any more
        self._unread = Numbers()
        self._moved: dict[tuple[str, str], Entry] = {}  # effects of the prologue that the code does not make any more
        self.mistaken: dict[tuple[str, str], Entry] = {}  #: effects that a call with other arguments was taken for
        self.patches = Patches()
        self.patches.is_closed = turn > 0
        self.consumed_mail: set[int] = set()  #: mail that a record acted on
        self.claims: list[tuple[int, int, str]] = []  #: (epoch, when, proof that the former owner is gone)
        self.plan: dict[str, Any] | None = None  #: as it was at the head of the turn
        self.outside = Outside()  #: what guards found
        self.usage: dict[str, list[dict[str, Any]]] = {}  #: what calls used, by key
        self.workspaces = WorkspaceVersions()  #: what calls left in them
        self.paused = False
        self.cancel: dict[str, Any] | None = None  #: who asked for the run to be cancelled, and why
        self.refusals: dict[str, int] = {}  #: answers that did not fit, by the call's key
        self.reopened = 0  #: the number of the last outcome before the run was opened again
        self.told: set[str] = set()  #: notes that are not made again
        self.last_tick = 0
        self.reappeared: set[str] = {"", turn_path(turn)}
        self.attempted: dict[str, list[str]] = {}
        superseded = {
            seq for r in records if r.kind == Kind.reopened for seq in json.loads(r.payload or "{}")["superseded"]
        }
        codes: dict[int, str] = {}
        entries = self.entries
        parts = {0, turn}
        for record in without_origin(records):
            is_new = record.key not in entries and record.turn in parts
            if record.kind == Kind.done and is_new and record.seq not in superseded:
                # By far the most are calls with one record: here without a detour.
                entry = entries[record.key] = Entry(record, codes.get(record.epoch, ""))
                entry.outcome = record
                entry.attempt = record.attempt
                self.last_tick = max(self.last_tick, record.tick)
            elif record.kind in (Kind.created, Kind.claimed):
                codes[record.epoch], proof, accepts = claim_in(record.payload or "{}")
                if accepts:
                    self.outside.accept(json.loads(record.payload or "{}"))
                if record.kind == Kind.claimed:
                    self.claims.append((record.epoch, record.at, proof))
            elif record.turn in parts and record.kind not in _NO_CALL:
                self._take(record, superseded=record.seq in superseded, code=codes.get(record.epoch, ""))
            elif record.kind == Kind.patched and record.turn in parts:
                self.patches.take([record.name], in_loop=record.turn > 0)
            elif record.kind == Kind.checkpoint and record.turn == turn:
                codes[record.epoch] = self._take_checkpoint(record)
            elif record.kind == Kind.reopened:
                self.cancel, self.paused = None, False
                self.reopened = max((e.outcome.seq for e in entries.values() if e.outcome is not None), default=0)
            elif record.kind == Kind.noted and record.name in _FLAGS:
                self._take_flag(record, is_current=record.turn in parts)
            elif record.kind == Kind.noted and record.name in _ONCE:
                self.told.add(record.name)
        self.delivered_count = 0  #: how many outcomes were delivered in a tick
        self.has_answers = False  #: to calls that the code makes
        self.unclaimed = len(entries) + (turn > 0)  #: calls that the code has not made again, and its loop
        for key, entry in entries.items():
            self.delivered_count += entry.has_tick
            if entry.outcome is not None and not entry.name.startswith(_INLINE_PREFIX):
                self.has_answers = True
            if entry.name == PLAN and entry.outcome is not None and entry.outcome.args:
                self.consumed_mail.update(json.loads(entry.outcome.args)["mail"])
            if entry.name == _INTERRUPT:
                self.consumed_mail.add(int(entry.digest))
            # A wait that the code gave up leaves what it was given for the next one.
            is_given = entry.outcome is None or entry.outcome.kind != Kind.cancelled
            if entry.decided is not None and is_given and (number := entry.decided.get("mail")):
                self.consumed_mail.add(number)
            if key.endswith(_UNDO) and key.removesuffix(_UNDO) in entries:
                entry.claimed = entry.delivered = True  # it is part of settling that call; no call of the code
                self.unclaimed -= 1

    @functools.cached_property
    def _by_digest(self) -> dict[tuple[str, str, str], list[Entry]]:
        """Calls by branch, name and arguments, the last one first: they are claimed from the end.

        Made when a call is not found under the key it is expected to have, which unchanged code never needs.
        """
        found: dict[tuple[str, str, str], list[Entry]] = {}
        for entry in sorted(self.entries.values(), key=lambda e: -e.occurrence):
            if not entry.claimed and not entry.key.startswith("key:"):
                found.setdefault((entry.branch, entry.name, entry.digest), []).append(entry)
        return found

    def _take_checkpoint(self, record: Record) -> str:
        past = Past.read(record)
        self.checkpoint = record
        self.patches.take(past.patches, in_loop=True)
        self.told |= set(past.told)
        self.last_tick = max(self.last_tick, past.tick)
        self.cancel = past.cancel
        self._unread = past.unread
        self.plan = past.plan
        self.workspaces.begin(past.workspaces or {})
        self.outside.see(record.seq, past.outside or {})
        return past.code

    def _take_flag(self, record: Record, *, is_current: bool) -> None:
        """What is noted and not only told to people."""
        note = json.loads(record.payload or "{}")
        if note.get("mail"):
            self.consumed_mail.add(note["mail"])
        if "seized" in note:  # it was taken from its owner: that proves no more than what was known of the owner
            self.claims.append((record.epoch, record.at, note["seized"]))
        match record.name:
            case NoteKind.usage:
                self.usage.setdefault(record.key, []).append(note)
            case NoteKind.paused:
                self.paused = note["on"]
            case NoteKind.cancel:
                self.cancel, self.paused = note, False
            case NoteKind.held:
                if is_current and (entry := self.entries.get(record.key)) is not None:
                    entry.held = record
            case NoteKind.unheeded | NoteKind.blocked | NoteKind.moved | NoteKind.repaired | NoteKind.budget:
                pass
            case NoteKind.workspace if is_current:
                self.workspaces.take(record.key, note)
            case NoteKind.requeued | NoteKind.guarded:
                self.outside.take(record.seq, record.name, note)
            case NoteKind.refused:
                self.refusals[record.key] = self.refusals.get(record.key, 0) + 1

    def _take(self, record: Record, *, superseded: bool, code: str) -> None:
        entry = self.entries.get(record.key)
        if entry is None:
            entry = self.entries[record.key] = Entry(record, code)
        entry.code = code
        entry.attempt = max(entry.attempt, record.attempt)
        if record.tick > self.last_tick:
            self.last_tick = record.tick
        if record.kind in OUTCOMES:
            entry.intent = None
            if superseded:
                # The run was opened again: attempts go on counting, and there are as many as at first.
                entry.ready_at, entry.postponed = record.at, record.attempt
                entry.intent, entry.ended_in_doubt = entry.doubted, entry.doubted is not None
            else:
                entry.outcome = record
            return
        if entry.was_cancelled:  # it was made again, and not cancelled
            entry.outcome = entry.decided = None
        match record.kind:
            case Kind.started:
                entry.started = record
            case Kind.decided:
                entry.decided = json.loads(record.payload or "{}")
            case Kind.attempt:
                entry.intent = None
                payload = json.loads(record.payload or "{}")
                entry.ready_at, entry.postponed = payload["retry_at"], payload["postponed"]
            case Kind.intent:
                entry.is_effect = True
                entry.intent = record
                entry.intended = entry.intended or record
                if record.args is not None:
                    entry.args, entry.digest = record.args, record.args_digest
                entry.given = entry.doubted = entry.held = None
                entry.ended_in_doubt = False
            case Kind.child:
                entry.is_effect = True
                entry.child = json.loads(record.payload or "{}")["run"]
            case Kind.settled:
                payload = json.loads(record.payload or "{}")
                entry.given = payload["given"]
                if payload["verdict"] in ("not_landed", "retry"):
                    entry.intent = entry.given = None
                    entry.is_unsure = payload["verdict"] == "retry"
                elif payload["verdict"] == "refused":
                    entry.given = None
                elif payload["verdict"] == "fail":
                    entry.doubted = entry.intent
                if payload["given"]:
                    self.consumed_mail.add(payload["given"]["mail"])
            case _:
                raise AssertionError(f"unknown kind {record.kind}")

    def ask_cancel(self, note: dict[str, Any]) -> None:
        """Somebody asked for the run to be cancelled, just now."""
        self.cancel = note

    def read_mail_up_to(self, number: int) -> None:
        """So much mail was read before the turn, and is not in the journal that was loaded."""
        self._read_up_to = number

    def is_consumed(self, mail: int) -> bool:
        """Was a piece of mail acted on, by a record?"""
        return mail in self.consumed_mail or (mail <= self._read_up_to and mail not in self._unread)

    # turns

    @property
    def is_closed(self) -> bool:
        """Had the loop begun, and has this execution not come to it? Then nothing new can be before it."""
        return self.patches.is_closed

    def enter_loop(self) -> None:
        """The code has come to its loop, which had begun: what it makes no more of the prologue is passed by."""
        self.unclaimed -= 1
        self._leave_prologue(e for e in self.entries.values() if not e.first.turn)

    def begin_turn(self, turn: int) -> None:
        """The next turn begins: what was recorded before it does not answer any more."""
        if not self.turn:
            self._leave_prologue(self.entries.values())
        self.mistaken = {call: entry for call, entry in self.mistaken.items() if not entry.first.turn}
        self.turn = turn
        self.unclaimed = 0
        self._drop_indices()
        self.patches.begin_part()
        self.entries, self.usage, self.refusals, self.attempted = {}, {}, {}, {}
        self.consumed_mail = set()
        self.reappeared = {"", turn_path(turn)}

    def _leave_prologue(self, entries: Iterable[Entry]) -> None:
        for entry in list(entries):
            if not entry.claimed:
                if is_unasked(entry):
                    self._moved[entry.name, entry.digest] = entry
                self._claimed(entry)
        self._drop_indices()
        self.patches.begin_part()

    def _drop_indices(self) -> None:
        for index in ("_by_digest", "_leftovers"):
            self.__dict__.pop(index, None)

    # claiming

    def claim(self, branch: str, name: str, digest: str, *, key: str) -> tuple[Entry | None, bool]:
        """The entry that answers this call, and whether its arguments fit. None: the journal does not know the call.

        `key` is what the call would be named if it were new. The same code counts its calls in the same way; so a call
        whose arguments are not stable is found there, and nowhere else: its neighbour may be somebody else's.
        """
        expected = self.entries.get(key)
        if expected is not None and (expected.claimed or expected.name != name):
            expected = None
        if expected is not None and expected.digest == digest:
            return self._claimed(expected), True
        entry = last_unclaimed(self._by_digest.get((branch, name, digest)))
        if entry is not None:
            return self._claimed(entry), True
        if expected is not None and expected.code == self.code:
            if expected.is_effect:
                self.mistaken[name, expected.digest] = expected
            return self._claimed(expected), False
        return None, True

    def claim_explicit(self, key: str, digest: str) -> tuple[Entry | None, bool]:
        """As `claim`, for a call that the code names itself."""
        entry = self.entries.get(key)
        if entry is None or entry.claimed:
            return None, True
        return self._claimed(entry), entry.digest == digest

    def _claimed(self, entry: Entry) -> Entry:
        entry.claimed = True
        self.unclaimed -= 1
        return entry

    def pass_by(self, entry: Entry) -> None:
        """The journal itself acts on this one; the code does not ask for it."""
        if not entry.claimed:
            self._claimed(entry)

    @functools.cached_property
    def _leftovers(self) -> Leftovers:
        return Leftovers(self.entries.values(), self.reappeared)

    def has_left_over(self, branch: str, name: str, digest: str) -> bool:
        """Is a recorded effect left over that a new effect of this branch might be?"""
        is_elsewhere = (name, digest) in self._moved or (name, digest) in self.mistaken
        return is_elsewhere or (self.unclaimed > 0 and self._leftovers.has_any(branch, name, digest))

    @property
    def has_elsewhere(self) -> bool:
        """Are there effects that a new one would be, although it is not found among what is left over?"""
        return bool(self._moved or self.mistaken)

    def left_over_effects(self, branch: str, name: str, digest: str) -> list[Entry]:
        """Recorded effects that a new effect of this branch might be, under another name or with other arguments."""
        if not self.has_left_over(branch, name, digest):
            return []
        return [found[name, digest] for found in (self._moved, self.mistaken) if (name, digest) in found] + [
            e
            for e in self.entries.values()
            if is_unasked(e) and may_be(e, branch, name, digest, reappeared=self.reappeared)
        ]

    def forsaken(self, branch: str, name: str) -> list[Entry]:
        """Calls of a branch that began, never ended, and were not made again."""
        return [
            e
            for e in self.entries.values()
            if not e.claimed and e.outcome is None and (e.branch, e.name) == (branch, name)
        ]

    def open_intents(self) -> list[Entry]:
        """Effects that may have happened and that the code never asked for again."""
        return [
            e
            for e in self.entries.values()
            if e.is_open_effect and not e.claimed and e.given is None and (e.intent or e.child)
        ]

    @property
    def has_left_calls(self) -> bool:
        """Does the journal have calls of the agent that were not asked for yet, in any branch?"""
        return self.unclaimed > 0 and any(
            not e.claimed and not e.name.startswith(_INLINE_PREFIX) for e in self.entries.values()
        )

    # ticks

    def groups(self) -> list[tuple[int, list[Entry]]]:
        """What was delivered together, in the order of delivery; calls that the code cancelled are not among it."""
        by_tick: dict[int, list[Entry]] = {}
        for entry in self.entries.values():
            if entry.has_tick and entry.outcome is not None:
                by_tick.setdefault(entry.outcome.tick, []).append(entry)
        for group in by_tick.values():
            group.sort(key=lambda e: e.outcome.seq if e.outcome is not None else 0)
        return sorted(by_tick.items())
