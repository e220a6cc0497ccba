"""The PostgreSQL store does what every store must do when its tables are partitioned by the run's id."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import conformance
from holdfast.testing.samples import Case

SCRIPT = Path(__file__).parents[2] / "deploy" / "partition.sql"


async def partition(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(SCRIPT.read_text())
    finally:
        await connection.close()


#: Some of each sort; `make prove` takes all of them.
FEW = conformance.CASES[::9]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.prove] * (case not in FEW)) for case in conformance.CASES],
    ids=lambda case: case.__name__,
)
def test_conformance_of_partitions(case: Case, postgres_url: str) -> None:
    asyncio.run(partition(postgres_url))
    asyncio.run(case(lambda: PostgresStore(postgres_url)))  # type: ignore[arg-type]
