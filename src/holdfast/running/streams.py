"""What the bodies of one execution write for others to read meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from holdfast.journal.journal import Journal
from holdfast.journal.streams import CutPart, StreamLog, StreamPart, cuts_in
from holdfast.model import STREAMS, Partial, Record


class Streams:
    """Of one execution; made on its loop's thread. Most have none, and no log."""

    __slots__ = ("_journal", "_log", "_loop", "_making", "_thread")

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop, records: Sequence[Record]) -> None:
        self._journal = journal
        self._loop = loop
        self._thread = threading.get_ident()
        self._making = threading.Lock()
        self._log: StreamLog | None = None
        if STREAMS in journal.row.summary:
            self._listen(cuts_in(records))

    def part(self, name: str, key: str, attempt: int) -> StreamPart:
        """Where an attempt of a call writes. Asked on the loop's thread, or on that of a body."""
        log = self._log if self._log is not None else self._listen({})
        return log.part(name, key, attempt)

    def _listen(self, cuts: dict[str, dict[str, CutPart]]) -> StreamLog:
        log = StreamLog(self._journal, cuts, loop=self._loop, thread=self._thread)
        with self._making:
            if self._log is None:
                self._log = self._journal.streams = log
        return self._log

    def partial(self, key: str, name: str | None = None) -> Partial | None:
        """What a former attempt of a call had written to its stream."""
        return self._log.partial(key, name) if self._log is not None else None
