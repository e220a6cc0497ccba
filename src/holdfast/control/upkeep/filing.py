"""The files of a run under another id, or in another store: all of them, a few chunks at a time."""

from __future__ import annotations

from holdfast.control.upkeep.transfers import NotTaken, Outcome
from holdfast.model import RunId
from holdfast.store.files import FileStore

_AT_ONCE = 4  # chunks in memory
_LISTED = 500


async def copy_files(source: FileStore, run_id: RunId, target: FileStore, *, as_id: RunId | None = None) -> int:
    """Copy all chunks of a run that the target does not have, before anything names them there; how many.

    `as_id`: for a run with another id, as a fork is. Cut off, it can be done again. What is damaged stays so: its
    digest tells.
    """
    wanted, copied, after = as_id or run_id, 0, ""
    while page := await source.chunk_page(run_id, after=after, limit=_LISTED):
        after = page[-1]
        known = await target.known_chunks(wanted, page)
        missing = [digest for digest in page if digest not in known]
        for start in range(0, len(missing), _AT_ONCE):
            found = await source.chunks(run_id, missing[start : start + _AT_ONCE])
            await target.put_chunks(wanted, found, fence=None)
            copied += len(found)
    return copied


async def check_files(source: FileStore, run_id: RunId, target: FileStore) -> None:
    """Raise NotTaken unless the target has all chunks of a run."""
    after = ""
    while page := await source.chunk_page(run_id, after=after, limit=_LISTED):
        after = page[-1]
        if len(await target.known_chunks(run_id, page)) < len(page):
            raise NotTaken(Outcome.damaged, "its files are not all there")
