"""What no history may say of streams.

- the events of a stream are numbered without gaps, and the run's row has the last number;
- what a call writes in another execution, or as another attempt, comes after a reset of what it wrote before;
- after the end of its part a call says nothing but its outcome, which is that it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.history.facts import note_of
from holdfast.model import OUTCOMES, STREAMS, Kind, NoteKind, Record, RunRow


def stream_violations(row: RunRow, records: Sequence[Record]) -> Iterator[str]:
    last: dict[str, int] = {}
    parts: dict[tuple[str, str], tuple[int, int]] = {}  # call and stream: the execution and attempt that wrote last
    ended: dict[str, Record] = {}
    for record in records:
        if record.key in ended and record.name != NoteKind.usage:
            is_end = record.kind == Kind.noted and record.name == NoteKind.stream and "end" in note_of(record)
            if record.kind in OUTCOMES:
                if record.kind not in (Kind.done, Kind.unstored) or record.epoch != ended[record.key].epoch:
                    yield f"{record.key}: its stream ended at seq {ended[record.key].seq}, it is {record.kind}"
                del ended[record.key]
            elif not is_end:
                yield f"{record.key}: {record.kind} at seq {record.seq}, after the end of its stream"
        if record.kind != Kind.noted or record.name != NoteKind.stream:
            continue
        said = note_of(record)
        name, part = said["stream"], (record.key, said["stream"])
        count = len(said["text"]) if "text" in said else 1
        if said["last"] != last.get(name, 0) + count:
            yield f"stream {name}: seq {record.seq} says {said['last']}, after {last.get(name, 0)} came {count}"
        last[name] = said["last"]
        if "text" in said:
            if parts.setdefault(part, (record.epoch, record.attempt)) != (record.epoch, record.attempt):
                yield f"{record.key}: writes to {name} at seq {record.seq}, and what it wrote before was not reset"
        else:
            parts.pop(part, None)
            if "end" in said:
                ended[record.key] = record
    for key, end in ended.items():
        yield f"{key}: its stream ended at seq {end.seq}, and it has no outcome"
    if last and dict(row.summary.get(STREAMS, {})) != last:
        yield f"its row says {dict(row.summary.get(STREAMS, {}))} of its streams, its journal {last}"
