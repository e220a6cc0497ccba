"""The part of a store's contract that is about the files of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model import Fence, Record, RunId


class FileStore(Protocol):
    """The files of runs, in chunks under the sha256 of their bytes, and what journals note of them."""

    async def put_chunks(self, run_id: RunId, chunks: Mapping[str, bytes], *, fence: Fence | None) -> None:
        """Store chunks, by digest, in one commit. Nobody checks the digests here; the run need not exist.

        `fence`: for which run it is done; raises Fenced if that one is somebody else's.
        """
        ...

    async def known_chunks(self, run_id: RunId, digests: Sequence[str]) -> set[str]:
        """Those that the run has."""
        ...

    async def chunks(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        """Those that exist, as they are stored: whoever reads them compares them with their digests."""
        ...

    async def chunk_page(self, run_id: RunId, *, after: str, limit: int) -> list[str]:
        """The digests of the run's chunks, in order, from behind `after` on."""
        ...

    async def drop_chunks(self, run_id: RunId) -> None:
        """Remove what was stored for a run that does not exist, in one commit; one that exists keeps its own."""
        ...

    async def notes(self, run_id: RunId, name: str, *, digest: str | None = None) -> list[Record]:
        """The records of kind `noted` with this name (and `args_digest`), in order; no other record is loaded."""
        ...
