"""Receipts: what each resume took from the journal, what it executed, and what that saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.history.calls import OWN_PREFIX, WAIT_PREFIX
from holdfast.history.facts import Facts, note_of, superseded_in
from holdfast.history.spending import Models, Spent, Sums, used_in
from holdfast.history.words import amount, count, duration
from holdfast.model import OUTCOMES, Kind, NoteKind, Record, RunRow
from holdfast.model.diagnoses import change_text, read_change
from holdfast.model.notes import OWN_USAGE


@data
class Receipt(Facts):
    """What one resume did: taken from the journal, answered by it, and saved by that.

    Example: `for receipt in await run.receipts(): print(receipt.replayed, receipt.saved_cost)`
    """

    at: datetime
    worker: str
    lost: str | None  #: the worker that died, or None if the run had been given back
    proof: str  #: how that is known
    unrecorded: int  #: how many took it up in between and died before they had recorded anything
    down_s: float
    replayed: int
    executed: int
    in_doubt: list[dict[str, Any]]  #: {"key", "verdict", "by"}, and "actor" if a person settled it: in this execution
    saved_s: float
    saved_input_tokens: int
    saved_output_tokens: int
    saved_cost: float
    code_changed: bool
    versions: list[dict[str, Any]]  #: {"what", "was", "now"}: of the code, Python, Holdfast, and models that differ
    gap: list[dict[str, Any]]  #: {"name", "was", "now", "failure", "text"}: what changed outside, as guards found
    blocked: bool  #: it did not go on by itself, because of that
    accepted_by: str | None  #: who had it go on with what had changed
    woken: bool  #: nothing was cut off: what it waited for had come
    unknown_fields: list[str]  #: that the stored state had (`hf.turns`), and the code's type has not


def receipts_of(row: RunRow, records: Sequence[Record]) -> list[Receipt]:
    """One for each time the run was taken up again.

    That it woke up from a wait is no such time, unless guards found that something had changed meanwhile.
    """
    counting = Counting()  # whatever its row says: records tell all
    counting.take(records)
    return counting.receipts()


class Counting:
    """Makes receipts of a journal that comes in pages: of turns that are over the sums are kept, and no calls.

    `counts_answers`: whether what answered is counted here, call by call. It need not be where each execution has
    recorded how much that was, and then nothing is kept of the calls of a run without turns.
    """

    def __init__(self, *, counts_answers: bool = True) -> None:
        self._counts = counts_answers
        self._found: list[Receipt] = []
        self._claim: Record | None = None
        self._before: Record | None = None
        self._taken_up: _TakenUp | None = None
        self._turn = 0
        self._prologue, self._current = Spent(), Spent()
        self._passed = Sums()  # of the turns before
        self._own = Sums()  # what the agent used itself
        self._models = Models()

    def take(self, records: Sequence[Record]) -> None:
        """The next records."""
        for record in records:
            self._take(record)

    def receipts(self) -> list[Receipt]:
        """There are no more records."""
        self._close()
        return self._found

    def _take(self, record: Record) -> None:
        if record.turn > self._turn:
            self._passed += self._current.all()
            self._turn, self._current = record.turn, Spent()
        if record.kind == Kind.claimed:
            self._close()
            self._begin(record)
        elif self._taken_up is not None and record.epoch == self._taken_up.claim.epoch:
            self._taken_up.take(record)
        part = self._current if record.turn else self._prologue
        if record.kind == Kind.reopened:
            for each in (self._prologue, self._current):
                each.supersede(superseded_in([record]))
            if self._taken_up is not None and record.epoch == self._taken_up.claim.epoch:
                self._taken_up.spared = self._spared()
        elif record.kind == Kind.noted and record.name == NoteKind.usage:
            if not record.key or OWN_USAGE in record.key:
                self._own += used_in(record)
            elif self._counts or record.turn:
                part.use(record)
        elif _is_answer(record) and (self._counts or record.turn):
            part.answer(record)
        self._models.take(record)
        self._before = record

    def _begin(self, claim: Record) -> None:
        former, self._claim = self._claim, claim
        if former is not None and self._before is not None:
            models = self._models.used()
            self._taken_up = _TakenUp(
                self._before, former, claim, spared=self._spared(), passed=self._passed, models=models
            )

    def _spared(self) -> Sums:
        """What an execution that goes on now has answers of."""
        return self._prologue.kept + self._current.kept + self._own

    def _close(self) -> None:
        taken_up, self._taken_up = self._taken_up, None
        if taken_up is not None and taken_up.counts:
            self._found.append(taken_up.receipt())


class _TakenUp:
    """One execution: what was there when it began, and what of its own records a receipt tells."""

    def __init__(
        self, before: Record, former: Record, claim: Record, *, spared: Sums, passed: Sums, models: Mapping[str, str]
    ) -> None:
        self.claim = claim
        self._before, self._former = before, former
        self.spared = spared
        self._passed = passed
        self._was, self._now = models, Models()
        self._counted: dict[str, Any] | None = None  # what it said itself
        self._settled: list[tuple[str, dict[str, Any]]] = []
        self._landed: set[str] = set()
        self._acted: set[str] = set()  # effects that were begun
        self._guarded: list[dict[str, Any]] = []
        self._unknown: list[str] = []
        self._executed = 0

    @property
    def counts(self) -> bool:
        """Was it more than waking up?"""
        return bool(self._guarded) or not note_of(self.claim).get("woken")

    def take(self, record: Record) -> None:
        """The next of its own records."""
        self._now.take(record)
        if record.kind == Kind.settled:
            said = note_of(record)
            self._settled.append((record.key, said))
            if said.get("verdict") == "landed":
                self._landed.add(record.key)
        elif record.kind == Kind.noted:
            match record.name:
                case NoteKind.resumed if self._counted is None:
                    self._counted = note_of(record)
                case NoteKind.guarded:
                    self._guarded.append(note_of(record))
                case NoteKind.state:
                    self._unknown += note_of(record).get("unknown", [])
                case _:
                    pass
        elif record.kind == Kind.intent:
            self._acted.add(record.key)
        elif _is_answer(record) and record.key not in self._landed and self._has_body(record):
            self._executed += 1

    def _has_body(self, record: Record) -> bool:
        """Is it that of a step or an effect? What is said in a thread is one."""
        return record.key in self._acted or not record.name.startswith((WAIT_PREFIX, OWN_PREFIX))

    def receipt(self) -> Receipt:
        """All of it. What it had no answers to give for, or died before it could sum up, it can have been spared."""
        claim, note, former = self.claim, note_of(self.claim), note_of(self._former)
        spared, passed = self.spared, self._passed
        counted = self._counted or {
            "replayed": spared.calls,
            "executed": self._executed,
            "saved_us": spared.took_us,
            "input_tokens": spared.input_tokens,
            "output_tokens": spared.output_tokens,
            "cost": spared.cost,
        }
        accepted = next((each["accepted"] for each in self._guarded if each.get("accepted")), None)
        return Receipt(
            at=as_time(claim.at),
            worker=claim.name,
            lost=note.get("lost"),
            proof=str(note.get("proof", "")),
            unrecorded=unrecorded(self._before, claim),
            down_s=downtime_s(self._before, claim),
            replayed=int(counted["replayed"]),
            executed=int(counted["executed"]),
            in_doubt=[_ruling(key, said) for key, said in self._settled],
            code_changed=note.get("code") != former.get("code"),
            versions=[*_versions(former, note), *_models(self._was, self._now.used())],
            gap=[_gap(change) for each in self._guarded for change in each.get("changes", [])],
            blocked=any(each.get("asks") for each in self._guarded),
            accepted_by=None if accepted is None else str(accepted.get("by")),
            woken=bool(note.get("woken")),
            saved_s=(counted["saved_us"] + passed.took_us) / 1e6,
            saved_input_tokens=int(counted["input_tokens"]) + passed.input_tokens,
            saved_output_tokens=int(counted["output_tokens"]) + passed.output_tokens,
            saved_cost=float(counted["cost"]) + passed.cost,
            unknown_fields=self._unknown,
        )


def _ruling(key: str, said: Mapping[str, Any]) -> dict[str, Any]:
    actor = (said.get("given") or {}).get("actor")
    return {"key": key, "verdict": said.get("verdict"), "by": said.get("by")} | ({"actor": actor} if actor else {})


def _gap(said: Mapping[str, Any]) -> dict[str, Any]:
    change = read_change(said)
    return {
        "name": change.name,
        "was": change.was,
        "now": change.now,
        "failure": change.failure or None,
        "text": change_text(change),
    }


#: Values and blocks: they have a place among the calls, and nothing is answered or executed of them.
_NO_CALLS = frozenset({"hf.now", "hf.race", "hf.timeout", "hf.saga", "hf.workspace"})
_VERSIONS = {"code": "code", "python": "Python", "holdfast": "Holdfast"}


def _versions(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": shown, "was": was.get(name), "now": now.get(name)}
        for name, shown in _VERSIONS.items()
        if was.get(name) != now.get(name)
    ]


def _models(was: Mapping[str, str], now: Mapping[str, str]) -> list[dict[str, Any]]:
    """Calls of a name that used another model than the last one of that name before."""
    return [
        {"what": f"model of {name}", "was": was[name], "now": model}
        for name, model in now.items()
        if name in was and was[name] != model
    ]


def _is_answer(record: Record) -> bool:
    """Is it the outcome of a call, and did the agent get to see it?"""
    return record.kind in OUTCOMES and record.kind != Kind.cancelled and record.name not in _NO_CALLS


def downtime_s(before: Record, claim: Record) -> float:
    """For how long nobody worked at the run: since its worker was last heard of, or else since the last record."""
    renewed = note_of(claim).get("renewed")
    since = max(before.at, renewed) if isinstance(renewed, int) else before.at
    return max(0.0, (claim.at - since) / 1e6)


def unrecorded(before: Record, claim: Record) -> int:
    """Every claim raises the epoch: one that no record has was that of a process which died before its first one."""
    return max(0, claim.epoch - before.epoch - 1) if note_of(claim).get("lost") else 0


def saved_text(receipt: Receipt) -> str:
    """`4.2s · 1 200 tokens · $0.42`: what did not have to be spent again; empty if nothing."""
    tokens = receipt.saved_input_tokens + receipt.saved_output_tokens
    parts = (
        duration(receipt.saved_s) if receipt.saved_s >= 0.001 else "",
        count(tokens, "token") if tokens else "",
        amount(receipt.saved_cost),
    )
    return " · ".join(part for part in parts if part)


def gap_texts(receipt: Receipt) -> list[str]:
    """What changed outside, a line each, and what became of that; empty if nothing did."""
    if not receipt.gap:
        return []
    if receipt.accepted_by is not None:
        end = [f"accepted by {receipt.accepted_by}"]
    else:
        end = ["the run was blocked for it"] if receipt.blocked else []
    return [*(str(each["text"]) for each in receipt.gap), *end]


def unrecorded_text(lives: int) -> str:
    """Empty if there were none."""
    if not lives:
        return ""
    return f"{lives} process{'es' if lives > 1 else ''} died before recording anything"
