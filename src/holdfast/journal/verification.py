"""Checking every stored byte of a run against its hashes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from holdfast.base.data import data
from holdfast.errors import CorruptJournal, RunNotFound, StoreCorrupt
from holdfast.journal.blobs import blob_in
from holdfast.journal.integrity import check_blob, check_mail, check_records, check_row
from holdfast.journal.tombstones import is_empty
from holdfast.model import RunId, RunRow, Status
from holdfast.store.contract import Store

_BLOBS_AT_ONCE = 20


@data
class Verification:
    """What checking every stored byte of a run found."""

    run_id: str
    is_ok: bool
    records: int
    blobs: int
    problem: str | None = None
    seq: int | None = None
    is_empty: bool = False  #: it was pruned, or moved to another store: its row is all there is

    def as_dict(self) -> dict[str, Any]:
        """Everything in it, ready for JSON."""
        return asdict(self)


def quarantine_reason(row: RunRow) -> str:
    """Why a run is out of service."""
    reason = row.reason or {}
    return str(reason.get("detail") or reason.get("message") or "its stored data failed verification")


async def verify(store: Store, run_id: str) -> Verification:
    """Check every stored byte of a run against its hashes; changes nothing, and reports damage instead of raising."""
    wanted = RunId(run_id)
    records = blobs = 0
    seq: int | None = None
    try:
        loaded = await store.load(wanted)
        if loaded is None:
            raise RunNotFound(f"There is no run {run_id} in {store.url}.")
        row, stored = loaded
        if is_empty(row) and row.status is not Status.quarantined:
            check_row(row)
            return Verification(run_id, True, 0, 0, is_empty=True)
        records = len(stored)
        check_records(row, stored)
        if row.status is not Status.quarantined:
            check_row(row)
        texts = ((r.seq, text) for r in stored for text in (r.payload, r.args))
        named = {digest: seq for seq, text in texts if (digest := blob_in(text)) is not None}
        digests = sorted(named)
        for start in range(0, len(digests), _BLOBS_AT_ONCE):
            some = digests[start : start + _BLOBS_AT_ONCE]
            seq = named[some[0]]
            found = await store.blobs(wanted, some)
            for digest in some:
                seq = named[digest]
                check_blob(wanted, digest, found.get(digest))
                blobs += 1
        seq = None
        for mail in await store.mail(wanted, after=0):
            check_mail(mail)
    except CorruptJournal as error:
        return Verification(run_id, False, records, blobs, str(error), error.seq if error.seq is not None else seq)
    except StoreCorrupt as error:
        return Verification(run_id, False, records, blobs, str(error), seq)
    if row.status is Status.quarantined:
        return Verification(run_id, False, records, blobs, quarantine_reason(row))
    return Verification(run_id, True, records, blobs)
