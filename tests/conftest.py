"""What all tests share: worker processes, and that no test may leave a broken promise in a store."""

from __future__ import annotations

import compileall
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.fixtures import histories_hold, pytest_configure
from tests.nursery import Nursery

__all__ = ["histories_hold", "pytest_configure"]

#: Tests of the store itself: their runs are made up, no agent ever lived them.
MADE_UP = Path(__file__).parent / "store"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(MADE_UP):
            item.add_marker("corrupts")


def pytest_sessionstart() -> None:
    """Thousands of processes are started: none of them compiles Holdfast, even where Python is told to keep nothing."""
    compileall.compile_dir(Path(holdfast.__file__).parent, quiet=1)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()
