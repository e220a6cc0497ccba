"""The PostgreSQL store does what every store must do."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import conformance
from holdfast.testing.samples import Case


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.__name__)
def test_conformance(case: Case, postgres_url: str) -> None:
    asyncio.run(case(lambda: PostgresStore(postgres_url)))  # type: ignore[arg-type]
