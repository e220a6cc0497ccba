"""What the handlers of interrupts reply, as the journal of the interrupted run has it."""

from __future__ import annotations

import json
from typing import Any

from holdfast.codec import Coder, coder_for, decode_error
from holdfast.errors import RunFinished
from holdfast.journal.blobs import stored_text
from holdfast.model import Kind, RunId, RunRow
from holdfast.store.contract import Store

_NAME = "hf:interrupt.end"
_FINISHED = "finished"
REPLY: Coder[tuple[str, str]] = coder_for(tuple[str, str])  # done, failed or finished; what was replied


class Replies:
    """The reply to one interrupt, looked for in what has come since the last look."""

    def __init__(self, store: Store, run_id: RunId, number: int) -> None:
        self._store = store
        self._run_id = run_id
        self._number = number  # of the mail
        self._seen = 0

    async def look(self, row: RunRow) -> tuple[str, str] | None:
        """The reply, or that the run ended before it; None: not yet."""
        records = await self._store.records(self._run_id, after=self._seen) if row.head_seq > self._seen else []
        for record in records:
            self._seen = record.seq
            if record.name == _NAME:
                note = json.loads(await stored_text(self._store, self._run_id, record.payload))
                if note.get("mail") == self._number:
                    return str(record.kind), note["reply"]
        return (_FINISHED, str(row.status)) if row.status.is_final else None

    def read(self, reply: tuple[str, str]) -> Any:
        """What the handler returned; raises what it raised."""
        how, text = reply
        if how == _FINISHED:
            raise RunFinished(f"Run {self._run_id} was {text} before it replied to the interrupt.", status=text)
        if how == Kind.failed:
            raise decode_error(text, None)
        return coder_for(Any).loads(text, what="the reply")
