"""What runs have said while they worked: the events of a stream, live and later, and what is left of cut-off ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from holdfast.base.clock import as_time
from holdfast.errors import UsageError
from holdfast.history.facts import note_of
from holdfast.history.lookup import row_of
from holdfast.journal.pages import record_pages
from holdfast.journal.streams import cuts_in
from holdfast.journal.tombstones import refuse_empty
from holdfast.model import (
    STREAMS,
    CutReason,
    Kind,
    NoteKind,
    Partial,
    Record,
    RunId,
    RunRow,
    StreamEvent,
    StreamEventKind,
)
from holdfast.store.contract import Store

_SOON_S, _LONGEST_S = 0.02, 0.25  # between two looks: as long as something comes, and after a while without


def streams_of(row: RunRow) -> Mapping[str, int]:
    """The streams of a run by name, with the number of the last event of each."""
    found: Mapping[str, int] = row.summary.get(STREAMS, {})
    return found


def events_of(records: Iterable[Record], name: str) -> Iterator[StreamEvent]:
    """The events of a stream that these records have, in order."""
    for record in records:
        if record.kind != Kind.noted or record.name != NoteKind.stream:
            continue
        said = note_of(record)
        if said.get("stream") != name:
            continue
        at, last = as_time(record.at), int(said["last"])
        if "text" in said:
            first = last - len(said["text"]) + 1
            for number, chunk in enumerate(said["text"], first):
                yield StreamEvent(number, StreamEventKind.text, chunk, record.key, record.attempt, at)
        elif "reset" in said:
            reason = CutReason(said["reset"])
            yield StreamEvent(last, StreamEventKind.reset, "", record.key, record.attempt, at, reason)
        elif "end" in said:
            yield StreamEvent(last, StreamEventKind.end, "", record.key, record.attempt, at)


def partials_of(row: RunRow, records: Sequence[Record]) -> list[tuple[str, Partial]]:
    """What was cut off and never tried again, with the key of its call: of calls that have ended, or of all if the run
    has.

    Example: `for key, partial in partials_of(row, records): print(key, partial.reason, partial.text)`
    """
    if STREAMS not in row.summary:
        return []
    return [
        (cut.key, cut.partial())
        for own in cuts_in(records).values()
        for cut in own.values()
        if cut.chunks and not cut.is_followed and (cut.is_over or row.status.is_final)
    ]


async def events(
    store: Store, run_id: RunId, name: str, *, offset: int | None, live: bool = True
) -> AsyncIterator[StreamEvent]:
    """Every event behind `offset` once, in order, until the run has ended; not `live`: those that there are.

    Without an offset from the last reset on, or from the beginning if there is none.
    """
    if offset is not None and (not isinstance(offset, int) or isinstance(offset, bool) or offset < 0):
        raise UsageError(f"The offset of a stream is the number of the last event that you have, or 0; got {offset!r}.")
    following, wait_s = Following(store, run_id, name, offset=offset), _SOON_S
    while True:
        for event in (found := await following.more()):
            yield event
        if not live or following.is_over:
            return
        wait_s = _SOON_S if found else min(wait_s * 1.3, _LONGEST_S)
        await asyncio.sleep(wait_s)


class Following:
    """Reads a stream as it grows: each event once, and of the journal only what is new."""

    def __init__(self, store: Store, run_id: RunId, name: str, *, offset: int | None) -> None:
        self._store, self._run_id, self._name = store, run_id, name
        self._offset = offset  #: the last event that was read; None: it begins at the last reset
        self._seq = 0
        self.is_over = False  #: the run has ended, and all of it was read

    async def more(self) -> list[StreamEvent]:
        """The events that came since the last time."""
        row = await row_of(self._store, self._run_id)
        refuse_empty(row)
        events: list[StreamEvent] = []
        async for page in record_pages(self._store, row, after=self._seq):
            events += events_of(page, self._name)
            self._seq = page[-1].seq
        if self._offset is None:
            self._offset = max((each.number for each in events if each.kind is StreamEventKind.reset), default=1) - 1
        found = [each for each in events if each.number > self._offset]
        self._offset = found[-1].number if found else self._offset
        self.is_over = row.status.is_final and self._seq >= row.head_seq
        return found
