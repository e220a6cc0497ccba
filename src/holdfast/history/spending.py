"""What calls took and used: sums of a part of a run, and the models that they used last."""

from __future__ import annotations

from holdfast.base.data import brisk
from holdfast.history.facts import note_of
from holdfast.model import OUTCOMES, Kind, NoteKind, Record


@brisk
class Sums:
    """Of some calls."""

    calls: int = 0
    took_us: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.calls + other.calls,
            self.took_us + other.took_us,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
        )


def used_in(note: Record) -> Sums:
    """What a note says that was used."""
    said = note_of(note)
    asked, answered = int(said.get("input_tokens", 0)), int(said.get("output_tokens", 0))
    return Sums(0, 0, asked, answered, float(said.get("cost", 0.0)))


class Spent:
    """On the calls of the prologue, or of one turn, that the agent has an answer of."""

    def __init__(self) -> None:
        self.kept = Sums()  #: of those whose outcome counts
        self._answers: dict[str, tuple[int, Sums]] = {}  # the record, and what it took, by key
        self._gone: set[str] = set()  # those whose outcome counts no longer
        self._used: dict[str, Sums] = {}

    def answer(self, record: Record) -> None:
        """The outcome of a call."""
        key = record.key
        is_new = key not in self._answers
        self._answers[key] = record.seq, Sums(1, record.took)
        self._gone.discard(key)
        if is_new:
            self.kept += self._of(key)
        else:
            self._count()

    def use(self, note: Record) -> None:
        """What a call says that it has used, before it ends."""
        self._used[note.key] = self._used.get(note.key, Sums()) + used_in(note)
        if note.key in self._answers:
            self._count()

    def supersede(self, seqs: set[int]) -> None:
        """These outcomes count no longer: the run was opened again."""
        gone = {key for key, (seq, _) in self._answers.items() if seq in seqs}
        if gone:
            self._gone |= gone
            self._count()

    def all(self) -> Sums:
        """Also what does not count any more."""
        return sum(map(self._of, self._answers), Sums()) if self._gone else self.kept

    def _count(self) -> None:
        self.kept = sum((self._of(key) for key in self._answers if key not in self._gone), Sums())

    def _of(self, key: str) -> Sums:
        took = self._answers[key][1]
        return took + self._used[key] if key in self._used else took


class Models:
    """The model that calls of each name used last, as they said; of what the agent used itself, under its name."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[int, int, str]] = {}  # the first note, the last one, and its model, by name
        self._names: dict[str, str] = {}  # of calls that have not ended
        self._unnamed: dict[str, tuple[int, int, str]] = {}  # of calls that have no record yet, by key

    def take(self, record: Record) -> None:
        """The next record; what a call used is said before it ends."""
        key = record.key
        if record.kind == Kind.noted:
            if record.name == NoteKind.usage and (model := note_of(record).get("model")):
                used, name = (record.seq, record.seq, str(model)), self._names.get(key)
                _put(self._unnamed if name is None else self._used, key if name is None else name, used)
        elif key:
            if (said := self._unnamed.pop(key, None)) is not None:
                _put(self._used, record.name, said)
            if record.kind in OUTCOMES:
                self._names.pop(key, None)
            else:
                self._names[key] = record.name

    def used(self) -> dict[str, str]:
        """By name, in the order in which they first said so; also of calls that were cut off."""
        found = dict(self._used)
        for key, used in self._unnamed.items():
            _put(found, _name_in(key), used)
        return {name: model for name, (_, _, model) in sorted(found.items(), key=lambda each: each[1])}


def _put(found: dict[str, tuple[int, int, str]], name: str, used: tuple[int, int, str]) -> None:
    known = found.get(name, used)
    found[name] = min(known[0], used[0]), *max(known[1:], used[1:])


def _name_in(key: str) -> str:
    """Of a call whose records are not there: a note may be, of one that was cut off."""
    return key.rpartition("/")[2].partition("#")[0] or "agent"
