"""A store of each sort."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.base import clock
from tests.cli.commands import Commands
from tests.forkserver import ForkServer
from tests.retention.agents import AGENTS


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The url of a store that is checked when the test is over."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def commands(tmp_path: Path, forkserver: ForkServer) -> Commands:
    """Commands in the folder of the test, with the agents there as `kept.py`."""
    made = Commands(tmp_path, forkserver)
    (tmp_path / "kept.py").write_text(Path(AGENTS).read_text())
    return made


@pytest.fixture(autouse=True)
def real_time() -> Iterator[None]:
    yield
    clock.reset()
