"""Files that come by HTTP: received as a whole and compared with their digest before anything of them is stored."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from hashlib import sha256 as new_sha256
from typing import Any, BinaryIO, Final, cast

from holdfast.app import Holdfast
from holdfast.control.uploads import Upload, give, refuse_upload, store_file
from holdfast.errors import UsageError
from holdfast.history.lookup import row_of
from holdfast.journal.pages import record_pages
from holdfast.model import Actor, RunId
from holdfast.server.problems import Problem
from holdfast.server.reads import Reads
from holdfast.store.contract import Store
from holdfast.verbs.artifact import checked_media_type, checked_name

_IN_MEMORY: Final = 1 << 20


class Uploads:
    """Gives files to runs of an app."""

    def __init__(self, app: Holdfast, reads: Reads) -> None:
        self._app = app
        self._reads = reads

    async def upload(
        self,
        run_id: str,
        name: str,
        parts: AsyncIterator[bytes],
        *,
        sha256: str,
        media_type: str | None,
        by: Actor,
        note: str,
        own_id: str,
    ) -> dict[str, Any]:
        """Take the bytes, and have them listed; what became of it. Sent again, it changes nothing."""
        row = await self._reads.row(run_id)
        refuse_upload(row)
        try:
            what = Upload(checked_name(name), checked_media_type(name, media_type))
        except UsageError as error:
            raise Problem("does_not_fit", str(error), errors=[{"path": "name", "message": str(error)}]) from None
        if own_id:
            await self._check_key(row.id, own_id, (what.name, sha256))
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as kept:
            found = new_sha256()
            async for part in parts:
                found.update(part)
                await asyncio.to_thread(kept.write, part)
            if found.hexdigest() != sha256:
                raise Problem("wrong_digest", f"They have the sha256 {found.hexdigest()}; nothing was stored.")
            kept.seek(0)
            file = await store_file(self._store, row.id, cast(BinaryIO, kept))
        given = await give(self._store, row.id, file, what=what, by=by, note=note, own_id=own_id)
        if given is None:
            raise Problem(
                "not_now", "A worker executes the run just now. Send it again when it waits, or pause it first."
            )
        version, is_new = given
        return {"name": what.name, "version": version, "sha256": sha256, "size": file.size, "is_new": is_new}

    @property
    def _store(self) -> Store:
        return self._app._store

    async def _check_key(self, run_id: RunId, own_id: str, what: tuple[str, str]) -> None:
        """Problem if the key of the request was used for something else."""
        row = await row_of(self._store, run_id)
        used = [r.payload async for page in record_pages(self._store, row) for r in page if own_id in (r.payload or "")]
        said = [json.loads(payload or "{}") for payload in used]
        is_mail = any(mail.dedup == own_id or own_id in mail.body for mail in await self._store.mail(run_id, after=0))
        if is_mail or any((each.get("name"), each.get("sha256")) != what for each in said):
            raise Problem("key_reused", "Use another key for another request.")
