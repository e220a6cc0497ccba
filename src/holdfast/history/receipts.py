"""Receipts: what each resume took from the journal, what it executed, and what that saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.history.calls import OWN_PREFIX
from holdfast.history.facts import Facts, note_of, superseded_in
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
    in_doubt: list[dict[str, Any]]  #: {"key", "verdict", "by"}, settled by this execution
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
    claims = [r for r in records if r.kind == Kind.claimed]
    guarded = {r.epoch for r in records if r.kind == Kind.noted and r.name == NoteKind.guarded}
    return [
        _receipt(records, former, claim)
        for former, claim in pairwise(claims)
        if not note_of(claim).get("woken") or claim.epoch in guarded
    ]


def _receipt(records: Sequence[Record], former: Record, claim: Record) -> Receipt:
    note = note_of(claim)
    superseded = superseded_in(r for r in records if r.epoch <= claim.epoch)
    before = [r for r in records if r.seq < claim.seq]
    answered: dict[str, Record] = {
        r.key: r for r in before if _is_answer(r) and r.seq not in superseded and r.turn in (0, claim.turn)
    }
    passed = {r.key: r for r in before if _is_answer(r) and 0 < r.turn < claim.turn}  # turns that are not looked at
    here = [r for r in records if r.epoch == claim.epoch and r.seq > claim.seq]
    said = [r for r in before if r.kind == Kind.noted and r.name == NoteKind.usage]
    used = [note_of(r) for r in said if not r.key or OWN_USAGE in r.key or r.key in answered]
    spent = [note_of(r) for r in said if r.key in passed]
    settled = [(r.key, note_of(r)) for r in here if r.kind == Kind.settled]
    counted = next((note_of(r) for r in here if r.kind == Kind.noted and r.name == NoteKind.resumed), None)
    if counted is None:  # it had no answers to give, or died before it could sum up: what it can have been spared
        told = {key for key, said in settled if said.get("verdict") == "landed"}
        counted = {
            "replayed": len(answered),
            "executed": sum(_is_answer(r) and r.key not in told and not r.name.startswith("hf:") for r in here),
            "saved_us": sum(r.took for r in answered.values()),
            "input_tokens": sum(int(u.get("input_tokens", 0)) for u in used),
            "output_tokens": sum(int(u.get("output_tokens", 0)) for u in used),
            "cost": sum(float(u.get("cost", 0.0)) for u in used),
        }
    found = [note_of(r) for r in here if r.kind == Kind.noted and r.name == NoteKind.guarded]
    accepted = next((each["accepted"] for each in found if each.get("accepted")), None)
    return Receipt(
        at=as_time(claim.at),
        worker=claim.name,
        lost=note.get("lost"),
        proof=str(note.get("proof", "")),
        unrecorded=unrecorded(before, claim),
        down_s=downtime_s(before[-1], claim) if before else 0.0,
        replayed=int(counted["replayed"]),
        executed=int(counted["executed"]),
        in_doubt=[{"key": key, "verdict": said.get("verdict"), "by": said.get("by")} for key, said in settled],
        code_changed=note.get("code") != note_of(former).get("code"),
        versions=[*_versions(note_of(former), note), *_models(before, here)],
        gap=[_gap(change) for each in found for change in each.get("changes", [])],
        blocked=any(each.get("asks") for each in found),
        accepted_by=None if accepted is None else str(accepted.get("by")),
        woken=bool(note.get("woken")),
        saved_s=(counted["saved_us"] + sum(r.took for r in passed.values())) / 1e6,
        saved_input_tokens=int(counted["input_tokens"]) + sum(int(u.get("input_tokens", 0)) for u in spent),
        saved_output_tokens=int(counted["output_tokens"]) + sum(int(u.get("output_tokens", 0)) for u in spent),
        saved_cost=float(counted["cost"]) + sum(float(u.get("cost", 0.0)) for u in spent),
        unknown_fields=[name for r in here if r.name == NoteKind.state for name in note_of(r).get("unknown", [])],
    )


def _gap(said: Mapping[str, Any]) -> dict[str, Any]:
    change = read_change(said)
    return {
        "name": change.name,
        "was": change.was,
        "now": change.now,
        "failure": change.failure or None,
        "text": change_text(change),
    }


_VERSIONS = {"code": "code", "python": "Python", "holdfast": "Holdfast"}


def _versions(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": shown, "was": was.get(name), "now": now.get(name)}
        for name, shown in _VERSIONS.items()
        if was.get(name) != now.get(name)
    ]


def _models(before: Sequence[Record], here: Sequence[Record]) -> list[dict[str, Any]]:
    """Calls of a name that used another model than the last one of that name before."""
    was, now = _models_used(before), _models_used(here)
    return [
        {"what": f"model of {name}", "was": was[name], "now": model}
        for name, model in now.items()
        if name in was and was[name] != model
    ]


def _models_used(records: Sequence[Record]) -> dict[str, str]:
    """The model that calls of each name used last, as they said; of what the agent used itself, under its name."""
    names = {r.key: r.name for r in records if r.key and r.kind != Kind.noted}
    used: dict[str, str] = {}
    for record in records:
        if record.kind == Kind.noted and record.name == NoteKind.usage and (model := note_of(record).get("model")):
            used[names.get(record.key) or _name_in(record.key)] = str(model)
    return used


def _name_in(key: str) -> str:
    """Of a call whose records are not there: a note may be, of one that was cut off."""
    return key.rpartition("/")[2].partition("#")[0] or "agent"


def _is_answer(record: Record) -> bool:
    """Is it the outcome of a call that the agent's author wrote, and did the agent get to see it?"""
    return record.kind in OUTCOMES and record.kind != Kind.cancelled and not record.name.startswith(OWN_PREFIX)


def downtime_s(before: Record, claim: Record) -> float:
    """For how long nobody worked at the run: since its worker was last heard of, or else since the last record."""
    renewed = note_of(claim).get("renewed")
    since = max(before.at, renewed) if isinstance(renewed, int) else before.at
    return max(0.0, (claim.at - since) / 1e6)


def unrecorded(before: Sequence[Record], claim: Record) -> int:
    """Every claim raises the epoch: one that no record has was that of a process which died before its first one."""
    if not note_of(claim).get("lost") or not before:
        return 0
    return max(0, claim.epoch - before[-1].epoch - 1)


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
