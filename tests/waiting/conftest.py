"""Places with workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting.workers import Nursery, Place


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def place(tmp_path: Path, nursery: Nursery) -> Iterator[Place]:
    with Place(tmp_path, nursery) as place:
        yield place
