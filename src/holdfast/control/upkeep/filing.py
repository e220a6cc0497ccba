"""The files of a run under another id, or in another store: all of them, a few chunks at a time."""

from __future__ import annotations

from typing import Final

from holdfast.base.clock import now_us
from holdfast.control.upkeep.transfers import NotTaken, Outcome
from holdfast.model import Definition, RunId
from holdfast.store.contract import Store
from holdfast.store.files import FileStore

#: What a run that is not there yet is known by while its files are copied.
_KIND: Final = "filing"
_PATIENCE_US: Final = 86_400_000_000  # after this nobody copies them any more
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


async def fork_files(store: Store, run_id: RunId, new_id: RunId) -> bool:
    """Copy the files of a run for one that is about to be made of it; whether there are any.

    Whoever is killed before it is made leaves files of a run that does not exist: `drop_left_files` finds them.
    """
    if not await store.chunk_page(run_id, after="", limit=1):
        return False
    begun = Definition(_KIND, new_id, "{}", 1, due_at=now_us() + _PATIENCE_US)
    if not all(await store.define([begun])):  # somebody was killed who did the same
        await store.forget(_KIND, [new_id])
        await store.define([begun])
    await copy_files(store, run_id, store, as_id=new_id)
    return True


async def files_are_forked(store: Store, new_id: RunId) -> None:
    """The run has been made: its files are its own."""
    await store.forget(_KIND, [new_id])


async def drop_left_files(store: Store) -> None:
    """Remove files that were copied for runs which nobody made, and nobody will any more."""
    for left in await store.definitions(_KIND, due=now_us()):
        await store.drop_chunks(RunId(left.name))
        await store.forget(_KIND, [left.name])


async def check_files(source: FileStore, run_id: RunId, target: FileStore) -> None:
    """Raise NotTaken unless the target has all chunks of a run."""
    after = ""
    while page := await source.chunk_page(run_id, after=after, limit=_LISTED):
        after = page[-1]
        if len(await target.known_chunks(run_id, page)) < len(page):
            raise NotTaken(Outcome.damaged, "its files are not all there")
