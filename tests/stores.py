"""The stores that tests with worker processes run on.

A test that takes its store from the forkserver runs on SQLite, and under `-m prove` on PostgreSQL as well: each of its
folders has a database of its own then. Two markers change that:

    @pytest.mark.postgres               on PostgreSQL by default too: what would hurt most if it broke there
    @pytest.mark.sqlite_alone("why")    never on PostgreSQL
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing import check_history
from holdfast.testing.postgres import Databases
from tests.forkserver import ForkServer

__all__ = ["forkserver", "pytest_generate_tests"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sort_of_store" not in metafunc.fixturenames:
        return
    sorts: list[object] = ["sqlite"]
    marked = metafunc.definition.get_closest_marker
    if (alone := marked("sqlite_alone")) is not None:
        assert alone.args, f"{metafunc.definition.nodeid}: say why it is about SQLite alone"
    else:
        sorts.append(pytest.param("postgres", marks=() if marked("postgres") else pytest.mark.prove))
    metafunc.parametrize("sort_of_store", sorts)


@pytest.fixture
def forkserver(forkserver: ForkServer, sort_of_store: str, request: pytest.FixtureRequest) -> Iterator[ForkServer]:
    """Processes whose folders have stores of this sort; the histories in them are checked when the test is over."""
    if sort_of_store == "sqlite":
        yield forkserver  # `histories_hold` finds the files
        return
    databases: Databases = request.getfixturevalue("postgres_databases")
    urls: dict[Path, str] = {}

    def url_in(folder: Path) -> str:
        if folder not in urls:
            urls[folder] = databases.fresh()
        return urls[folder]

    before, forkserver.store_url = forkserver.store_url, url_in
    try:
        yield forkserver
        if request.node.get_closest_marker("corrupts") is None:
            found = [f"{folder}: {each}" for folder, url in urls.items() for each in check_history(url)]
            assert not found, "broken promises in the stores of this test:\n" + "\n".join(found)
    finally:
        forkserver.store_url = before
        for url in urls.values():
            databases.drop(url)
