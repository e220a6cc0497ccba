"""Places with workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nursery import Nursery
from tests.stores import nursery
from tests.waiting.place import Place

__all__ = ["nursery", "place"]


@pytest.fixture
def place(tmp_path: Path, nursery: Nursery) -> Iterator[Place]:
    with Place(tmp_path, nursery) as place:
        yield place
