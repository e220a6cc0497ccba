"""What all tests share: no test may leave a broken promise in a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.fixtures import histories_hold, pytest_configure

__all__ = ["histories_hold", "pytest_configure"]

#: Tests of the store itself: their runs are made up, no agent ever lived them.
MADE_UP = Path(__file__).parent / "store"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(MADE_UP):
            item.add_marker("corrupts")
