"""What no history may say of effects: of what was in doubt, of who settled it, of what a saga took back.

- no run ends while it is not known what became of an effect, unless it was cancelled and says which it leaves;
- a person settles what a person was asked about, and nothing else;
- a call is tried again with what it was begun with, or says with what else after a person said that it did not happen;
- a call that ended in doubt is settled again before it is tried again;
- a call that ended as taken back was, after it was begun;
- a saga that was left by an exception takes back everything that happened in it, last first, or says what it could not;
- every saga in which something happened has an end, if its run has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.history.facts import note_of
from holdfast.model import OUTCOMES, Kind, NoteKind, Record, Status

_SAGA = "hf.saga"
_UNDO = ".undo"


@dataclass(slots=True)
class _Effect:
    """An effect as its records tell of it."""

    key: str
    name: str
    intents: list[Record] = field(default_factory=list)
    is_open: bool = False  #: the last intent has no end
    held: Record | None = None  #: a person was asked about the last intent
    settled: Record | None = None  #: since the last intent
    is_unsure: bool = False  #: it was tried again, and may have happened before
    ended_in_doubt: Record | None = None
    outcome: Record | None = None

    @property
    def idempotency_key(self) -> str:
        return str(note_of(self.intents[0]).get("idempotency_key", "")) if self.intents else ""

    @property
    def saga(self) -> str | None:
        """The block that it is in, "" for none; None if its intent does not say."""
        said = note_of(self.intents[0]).get("saga") if self.intents else None
        return None if said is None else str(said)

    @property
    def undoes(self) -> str | None:
        """The idempotency key of what it takes back."""
        return note_of(self.intents[0]).get("undoes") if self.intents else None

    @property
    def happened(self) -> bool:
        """Did it happen, or may it have?"""
        is_proof = self.ended_in_doubt is None and not self.is_unsure
        if self.outcome is None:
            return False
        return self.outcome.kind not in (Kind.failed, Kind.cancelled) or not is_proof


def effect_violations(records: Sequence[Record]) -> Iterator[str]:
    """The broken promises about effects in one run."""
    effects: dict[str, _Effect] = {}
    for record in records:
        if record.kind == Kind.finished:
            yield from _left_open(record, records, effects)
        elif record.kind == Kind.reopened:
            gone = set(note_of(record).get("superseded", []))
            for effect in effects.values():
                if effect.outcome is not None and effect.outcome.seq in gone:
                    effect.outcome = None
        elif record.key:
            yield from _take(record, effects)
    yield from _sagas(records, {effect.key: effect for effect in effects.values()})


def _take(record: Record, effects: dict[str, _Effect]) -> Iterator[str]:
    call = record.key
    if record.kind != Kind.intent and call not in effects:
        return
    effect = effects.setdefault(call, _Effect(record.key, record.name))
    match record.kind:
        case Kind.intent:
            yield from _begun(record, effect)
            effect.intents.append(record)
            effect.is_open = True
            effect.held = effect.settled = effect.ended_in_doubt = None
        case Kind.noted if record.name == NoteKind.held:
            effect.held = record
        case Kind.settled:
            note = note_of(record)
            given = note.get("given") or {}
            is_unasked_for = note["evidence"].get("cause") == "code change"  # the code does not make the call
            is_asked = effect.held is not None or is_unasked_for
            is_heard = note["by"] == "person" and note["verdict"] != "refused"  # what was refused counts for nothing
            if is_heard and not is_asked and not given.get("left_over"):
                yield f"{record.key}: a person settled it at seq {record.seq}, and nobody had been asked"
            effect.settled = record
            if note["verdict"] in ("not_landed", "retry"):
                effect.is_unsure = note["verdict"] == "retry"
            if note["verdict"] in ("not_landed", "retry") or is_unasked_for:
                effect.is_open = False
            elif note["verdict"] == "fail":
                effect.ended_in_doubt = record
        case Kind.attempt:
            effect.is_open = False
        case kind if kind in OUTCOMES:
            if effect.settled is not None and note_of(effect.settled)["verdict"] == "undo":
                yield from _undone(record, effect, effects.get(record.key + _UNDO))
            effect.is_open = False
            effect.outcome = record
        case _:
            pass


def _begun(record: Record, effect: _Effect) -> Iterator[str]:
    if not effect.intents:
        return
    last = effect.intents[-1]
    by_person = effect.settled is not None and note_of(effect.settled)["by"] == "person"
    if record.args_digest != last.args_digest and not (by_person and record.args is not None):
        yield f"{record.key}: begun at seq {last.seq}, tried again at seq {record.seq} with other arguments"
    doubt = effect.ended_in_doubt
    if doubt is not None and (effect.settled is None or effect.settled.seq <= doubt.seq):
        yield f"{record.key}: it ended in doubt at seq {doubt.seq}, and was done again at seq {record.seq} unsettled"


def _undone(record: Record, effect: _Effect, undo: _Effect | None) -> Iterator[str]:
    outcome = undo.outcome if undo is not None else None
    if outcome is None or outcome.kind == Kind.failed or outcome.seq < effect.intents[-1].seq:
        yield f"{record.key}: it ended at seq {record.seq} as taken back, and was not"


def _left_open(end: Record, records: Sequence[Record], effects: Mapping[Any, _Effect]) -> Iterator[str]:
    told = {
        key
        for record in records
        if record.kind == Kind.noted and record.name == NoteKind.left_in_doubt and record.seq < end.seq
        for key in note_of(record).get("effects", [])
    }
    for effect in effects.values():
        if effect.is_open and not (end.name == Status.cancelled and effect.key in told):
            yield f"{effect.key}: the run ended at seq {end.seq}, and what became of it is not known"


def _is_by_hand(end: Record, records: Sequence[Record]) -> bool:
    """Was the run ended without its code, by somebody who cancelled what nobody executed, or killed it?"""
    return all(record.kind not in (Kind.claimed, Kind.created) for record in records if record.epoch == end.epoch)


def _sagas(records: Sequence[Record], effects: Mapping[str, _Effect]) -> Iterator[str]:
    blocks = {record.key: record for record in records if record.name == _SAGA}  # the last that was said of each
    undos = {effect.undoes: effect for effect in effects.values() if effect.undoes is not None}
    last = next((record for record in reversed(records) if record.kind == Kind.finished), None)
    is_over = last is not None and last is records[-1] and not _is_by_hand(last, records)
    for block in blocks.values():
        if block.kind == Kind.done or is_over:
            yield from _taken_back(block, effects, undos)
    for effect in effects.values():
        if effect.happened and effect.saga:
            yield from _belongs(effect, effect.saga, blocks, is_over=is_over)
    if is_over:
        yield from _unnamed(effects)


def _taken_back(block: Record, effects: Mapping[str, _Effect], undos: Mapping[str, _Effect]) -> Iterator[str]:
    keys: list[str] = note_of(block).get("undo", [])
    begun = []
    for key in keys:
        effect = effects.get(key)
        undo = undos.get(effect.idempotency_key) if effect is not None else None
        if undo is None or undo.outcome is None:
            yield f"{key}: it happened in {block.key}, which was to be taken back, and it was not"
        else:
            begun.append(undo.intents[0].seq)
    if begun != sorted(begun, reverse=True):
        yield f"{block.key}: what it did was not taken back in reverse order"


def _belongs(effect: _Effect, saga: str, blocks: Mapping[str, Record], *, is_over: bool) -> Iterator[str]:
    """What happened in a block is kept by it, and then by the one around it, or taken back."""
    while saga:
        block = blocks.get(saga)
        if block is None:
            if is_over:
                yield f"{effect.key}: it happened in {saga}, which never ended"
            return
        note = note_of(block)
        if "undo" in note:
            if effect.key not in note["undo"]:
                yield f"{effect.key}: it happened in {saga}, which was taken back without it"
            return
        saga = str(note.get("outer", ""))


def _unnamed(effects: Mapping[str, _Effect]) -> Iterator[str]:
    """Where intents do not name their saga: if some effects of a name were taken back, all that happened were."""
    silent = [e for e in effects.values() if e.saga is None and e.undoes is None]
    for name in sorted({e.name for e in silent if e.name.endswith(_UNDO) and not e.key.endswith(_UNDO)}):
        undone = [e for e in silent if e.name == name and e.outcome is not None]
        done = [e for e in silent if e.name == name.removesuffix(_UNDO) and e.happened]
        if len(undone) < len(done):
            yield f"{name}: {len(done)} happened and {len(undone)} were taken back"
