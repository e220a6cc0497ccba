"""The read side of one run's journal: which recorded call answers which call of the code.

A call is matched by branch, name and the digest of its arguments first; so a step that was inserted, removed or moved
costs nothing but itself. Effects are stricter: one without a record may run only if no recorded effect is left over
that it might be, under another name or with other arguments.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from holdfast.journal.evidence import KEPT
from holdfast.journal.leftovers import Leftovers, is_unasked, may_be
from holdfast.model import OUTCOMES, Kind, Record, RunRow, Status

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
_FLAGS = frozenset({"usage", "paused", "cancel", "refused", "unheeded", "held", "blocked", "moved"})
#: Notes that are made once.
_ONCE = frozenset({"own timer", "outside"})
#: Records that say nothing about a call.
_NO_CALL = frozenset({Kind.patched, Kind.noted, Kind.finished, Kind.reopened})


def branch_of(key: str) -> str:
    """The branch that a call's key names; explicit keys belong to the root."""
    if key.startswith("key:"):
        return ""
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
    def evidence(self) -> dict[str, Any]:
        """What is known of the attempt that a person was asked about: taking the run up again does not change it."""
        note = json.loads(self.held.payload or "{}") if self.held is not None else {}
        return {name: note[name] for name in KEPT if name in note}


class Replay:
    """What the journal can answer, and what of it was asked for so far."""

    def __init__(self, records: Sequence[Record], *, generation: int, code: str) -> None:
        self.code = code
        self.entries: dict[str, Entry] = {}
        self.patches: set[str] = set()
        self.consumed_mail: set[int] = set()  #: mail that a record acted on
        self.claims: list[tuple[int, int, str]] = []  #: (epoch, when, proof that the former owner is gone)
        self.usage: dict[str, list[dict[str, Any]]] = {}  #: what calls used, by key
        self.paused = False
        self.cancel: dict[str, Any] | None = None  #: who asked for the run to be cancelled, and why
        self.refusals: dict[str, int] = {}  #: answers that did not fit, by the call's key
        self.reopened = 0  #: the number of the last outcome before the run was opened again
        self.told: set[str] = set()  #: notes that are not made again
        self.last_tick = 0
        self.reappeared: set[str] = {""}
        self.attempted: dict[str, list[str]] = {}
        superseded = {
            seq for r in records if r.kind == Kind.reopened for seq in json.loads(r.payload or "{}")["superseded"]
        }
        codes: dict[int, str] = {}
        entries = self.entries
        for record in records:
            is_new = record.key not in entries and record.generation == generation
            if record.kind == Kind.done and is_new and record.seq not in superseded:
                # By far the most are calls with one record: here without a detour.
                entry = entries[record.key] = Entry(record, codes.get(record.epoch, ""))
                entry.outcome = record
                entry.attempt = record.attempt
                self.last_tick = max(self.last_tick, record.tick)
            elif record.kind in (Kind.created, Kind.claimed):
                codes[record.epoch], proof = _claim(record.payload or "{}")
                if record.kind == Kind.claimed:
                    self.claims.append((record.epoch, record.at, proof))
            elif record.generation == generation and record.kind not in _NO_CALL:
                self._take(record, superseded=record.seq in superseded, code=codes.get(record.epoch, ""))
            elif record.kind == Kind.patched:
                self.patches.add(record.name)
            elif record.kind == Kind.reopened:
                self.cancel, self.paused = None, False
                self.reopened = max((e.outcome.seq for e in entries.values() if e.outcome is not None), default=0)
            elif record.kind == Kind.noted and record.name in _FLAGS:
                self._take_flag(record, is_current=record.generation == generation)
            elif record.kind == Kind.noted and record.name in _ONCE:
                self.told.add(record.name)
        self.delivered_count = 0  #: how many outcomes were delivered in a tick
        self.has_answers = False  #: to calls that the code makes
        self._unclaimed = len(entries)
        for key, entry in entries.items():
            self.delivered_count += entry.has_tick
            if entry.outcome is not None and not entry.name.startswith(_INLINE_PREFIX):
                self.has_answers = True
            if entry.name == _INTERRUPT:
                self.consumed_mail.add(int(entry.digest))
            # A wait that the code gave up leaves what it was given for the next one.
            is_given = entry.outcome is None or entry.outcome.kind != Kind.cancelled
            if entry.decided is not None and is_given and (number := entry.decided.get("mail")):
                self.consumed_mail.add(number)
            if key.endswith(_UNDO) and key.removesuffix(_UNDO) in entries:
                entry.claimed = entry.delivered = True  # it is part of settling that call; no call of the code
                self._unclaimed -= 1

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

    def _take_flag(self, record: Record, *, is_current: bool) -> None:
        """What is noted and not only told to people."""
        note = json.loads(record.payload or "{}")
        if note.get("mail"):
            self.consumed_mail.add(note["mail"])
        if "seized" in note:  # it was taken from its owner: that proves no more than what was known of the owner
            self.claims.append((record.epoch, record.at, note["seized"]))
        match record.name:
            case "usage":
                self.usage.setdefault(record.key, []).append(note)
            case "paused":
                self.paused = note["on"]
            case "cancel":
                self.cancel, self.paused = note, False
            case "held":
                if is_current and (entry := self.entries.get(record.key)) is not None:
                    entry.held = record
            case "unheeded" | "blocked" | "moved":
                pass
            case _:
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
        entry = _last_unclaimed(self._by_digest.get((branch, name, digest)))
        if entry is not None:
            return self._claimed(entry), True
        if expected is not None and expected.code == self.code:
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
        self._unclaimed -= 1
        return entry

    def pass_by(self, entry: Entry) -> None:
        """The journal itself acts on this one; the code does not ask for it."""
        if not entry.claimed:
            self._claimed(entry)

    @property
    def has_unclaimed(self) -> bool:
        return self._unclaimed > 0

    @functools.cached_property
    def _leftovers(self) -> Leftovers:
        return Leftovers(self.entries.values(), self.reappeared)

    def has_left_over(self, branch: str, name: str, digest: str) -> bool:
        """Is a recorded effect left over that a new effect of this branch might be?"""
        return self._unclaimed > 0 and self._leftovers.has_any(branch, name, digest)

    def left_over_effects(self, branch: str, name: str, digest: str) -> list[Entry]:
        """Recorded effects that a new effect of this branch might be, under another name or with other arguments."""
        if not self.has_left_over(branch, name, digest):
            return []
        return [
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
        return self._unclaimed > 0 and any(
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


@functools.lru_cache(1024)
def _claim(payload: str) -> tuple[str, str]:
    """Code and proof of a claim; a worker writes the same text into all runs that it takes from the store."""
    note = json.loads(payload)
    return note.get("code", ""), note.get("proof", "")


def _last_unclaimed(entries: list[Entry] | None) -> Entry | None:
    while entries:
        if not entries[-1].claimed:
            return entries[-1]
        entries.pop()
    return None


def is_left_over(row: RunRow, entry: Entry) -> bool:
    """Is the run blocked because its code no longer makes this call, of which it is not known whether it happened?"""
    if row.status is not Status.blocked or entry.intent is None or entry.outcome is not None or entry.given is not None:
        return False
    return any(each.get("key") == entry.key for each in (row.reason or {}).get("recorded", ()))
