"""Values too large for a record: the record names a blob (`@digest:size`), and the blob holds the JSON text.

JSON text never begins with `@`, so a reference cannot be mistaken for a value.
"""

from __future__ import annotations

from holdfast.codec import blob_digest
from holdfast.errors import Unserialisable
from holdfast.journal.integrity import check_blob
from holdfast.model import LARGEST_BLOB, RunId
from holdfast.store.contract import Store


def spilled(text: str) -> tuple[str, tuple[str, bytes]]:
    """What the record says instead of the text, and the blob."""
    data = text.encode()
    if len(data) > LARGEST_BLOB:
        raise Unserialisable(
            f"A value of {len(data):,} bytes of JSON is too large to store. Store it outside (a file, a bucket) and "
            "pass a reference to it."
        )
    digest = blob_digest(data)
    return f"@{digest}:{len(data)}", (digest, data)


def blob_in(stored: str | None) -> str | None:
    """The digest of the blob that a stored value names; None if the value is in the record itself."""
    return stored[1:].partition(":")[0] if stored and stored[0] == "@" else None


async def stored_text(store: Store, run_id: RunId, stored: str | None) -> str:
    """The JSON text of a stored value, wherever it lies; CorruptJournal if its blob is not what it was."""
    digest = blob_in(stored)
    if digest is None:
        return stored or "null"
    return check_blob(run_id, digest, (await store.blobs(run_id, [digest])).get(digest)).decode()
