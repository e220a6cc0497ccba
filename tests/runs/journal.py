"""What tests look up in a store that is closed."""

from __future__ import annotations

import asyncio

from holdfast.base.config import Settings
from holdfast.model import Record, RunId, RunRow
from holdfast.store import open_store


def load(url: str, run_id: str) -> tuple[RunRow, list[Record]]:
    async def go() -> tuple[RunRow, list[Record]]:
        store = open_store(url, settings=Settings())
        await store.open(read_only=True)
        try:
            loaded = await store.load(RunId(run_id))
        finally:
            await store.close()
        assert loaded is not None
        return loaded

    return asyncio.run(go())


def records_of(url: str, run_id: str) -> list[Record]:
    return load(url, run_id)[1]
