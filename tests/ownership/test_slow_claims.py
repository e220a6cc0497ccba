"""A process that sleeps between claiming a run and reading it does not take itself for the one that took it over."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.journal.chain import seal_row
from holdfast.model import Loaded, RunId, WorkerId
from tests.eventually import eventually

ENDED: list[int] = []


@hf.step
async def look(n: int) -> int:
    ENDED.append(n)
    return n


@hf.agent
async def looks(n: int) -> int:
    return await look(n)


def test_a_run_that_was_taken_over_meanwhile_is_left_alone(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")

    async def main() -> None:
        async with hf.connect(url) as client, hf.connect(url, agents=[looks]) as app:
            store = app._store
            load_many = store.load_many

            async def after_a_sleep(run_ids: Sequence[RunId]) -> list[Loaded]:
                """Somebody else takes the first run over, just before it is read."""
                row = await store.run(RunId("taken"))
                if row is not None and "taken" in run_ids:
                    assert row.owner == app._here.lease.worker_id
                    other: Any = seal_row(dataclasses.replace(row, epoch=row.epoch + 1, owner=WorkerId("w_other")))
                    assert await store.claim(
                        other, owner=WorkerId("w_other"), expected_epoch=row.epoch, expected_owner=row.owner
                    )
                return await load_many(run_ids)

            store.load_many = after_a_sleep  # type: ignore[method-assign]
            await client.start(looks(1), id="taken")
            kept = await client.start(looks(2), id="kept")
            assert await kept.result(timeout=60) == 2
            await eventually(lambda: app._here.local(RunId("taken")) is None)
            later = await client.start(looks(3))
            assert await later.result(timeout=60) == 3
            assert ENDED == [2, 3]
            assert app._here.local(RunId("taken")) is None
            row = await store.run(RunId("taken"))
            assert row is not None
            assert (row.owner, row.head_seq) == ("w_other", 1)
            await client.get("taken").cancel(kill=True)

    asyncio.run(main())
