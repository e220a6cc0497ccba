"""Files that people give to a run: recorded among its artifacts, in a commit that also has who did it.

Only the owner of a run writes its journal, so a run that somebody executes is given none. One that waits is; it goes on
waiting as it did.
"""

from __future__ import annotations

import asyncio
from typing import Any, BinaryIO, Final, NamedTuple

from holdfast.base import faults
from holdfast.base.clock import monotonic_us
from holdfast.control.acting import act_of, existing
from holdfast.control.amendments import amend
from holdfast.errors import CorruptJournal, RunFinished
from holdfast.journal.files import Filing, chunks_of, identity_of, name_digest, versions_of
from holdfast.journal.tombstones import refuse_elsewhere, refuse_empty
from holdfast.journal.verification import quarantine_reason
from holdfast.model import Kind, NoteKind, RunId, RunRow, Status
from holdfast.model.files import FileRef
from holdfast.store.contract import Store

_SOON_S: Final = 2.0
_LOOK_S: Final = 0.02


class Upload(NamedTuple):
    """A file for a run; its name is checked."""

    name: str
    media_type: str
    kind: str = "file"


def refuse_upload(row: RunRow) -> None:
    """Raise unless the run may be given a file, now or soon."""
    refuse_empty(row)
    refuse_elsewhere(row)
    if row.status is Status.quarantined:
        raise CorruptJournal(quarantine_reason(row), run_id=row.id)
    if row.status.is_final:
        raise RunFinished(f"Run {row.id} is {row.status}; it is given no files any more.", status=row.status)


async def store_file(store: Store, run_id: RunId, stream: BinaryIO) -> FileRef:
    """Store the bytes for a run, a little at a time; nothing names them yet."""

    async def once(ask: Any) -> Any:
        return await ask()

    found: list[FileRef] = []
    await Filing(store, run_id, fence=lambda: None, patiently=once).put(chunks_of(stream, found.append))
    faults.point("upload.after_data")
    return found[0]


async def give(
    store: Store, run_id: RunId, file: FileRef, *, what: Upload, by: str | None, note: str, own_id: str = ""
) -> tuple[int, bool] | None:
    """Have a stored file listed: its version, and whether it is new; None: somebody executes the run, and goes on.

    The same bytes under the same name are the same version, and are listed once.
    """
    give_up = monotonic_us() + int(_SOON_S * 1e6)
    said = {"name": what.name, "kind": what.kind, "media_type": what.media_type, **file.plain()}
    while True:
        row = await existing(store, run_id)
        refuse_upload(row)
        versions = await versions_of(store, run_id, what.name)
        if (known := versions.get(identity_of(said))) is not None:
            return known, False
        if row.owner is not None:
            if monotonic_us() >= give_up:
                return None
            await asyncio.sleep(_LOOK_S)
            continue
        version = max(versions.values(), default=0) + 1
        noted: dict[str, Any] = {**said, "version": version, **act_of(by, note, own_id)}
        if await amend(
            store,
            row,
            [(Kind.noted, NoteKind.artifact, noted)],
            status=row.status,
            reason=row.reason,
            wake_at=row.wake_at,
            digest=name_digest(what.name),
        ):
            return version, True
