"""A pytest plugin: no test may leave a broken promise in a store.

After every test that used `tmp_path`, each Holdfast store below it is checked with `check_history`. Enable it in the
`conftest.py` at the top of the tests:

    from holdfast.testing.fixtures import *

A test that damages a store on purpose is marked `@pytest.mark.corrupts`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.sqlite.files import APPLICATION_ID, read_header
from holdfast.testing.invariants import check_history

__all__ = ["histories_hold", "pytest_configure"]

_HEADER = b"SQLite format 3\x00"
_ID_AT = 68


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "corrupts: damages a store on purpose, so its history is not checked")


@pytest.fixture(autouse=True)
def histories_hold(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if a store below its `tmp_path` breaks an invariant when the test is over.

    Example: `from holdfast.testing.fixtures import *` in conftest.py
    """
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is None or request.node.get_closest_marker("corrupts") is not None:
        return
    found = [f"{path.name}: {each}" for path in stores_below(folder) for each in check_history(path)]
    assert not found, "broken promises in the stores of this test:\n" + "\n".join(found)


def stores_below(folder: Path) -> list[Path]:
    """The Holdfast stores in a folder and below it."""
    return [path for path in sorted(folder.rglob("*.db")) if path.is_file() and _is_ours(path)]


def _is_ours(path: Path) -> bool:
    head = read_header(str(path)) if path.stat().st_size >= 100 else b""
    return head.startswith(_HEADER) and struct.unpack_from(">I", head, _ID_AT)[0] == APPLICATION_ID
