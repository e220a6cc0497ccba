"""A `holdfast` command in a folder of its own, with a few agents in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.forkserver import ForkServer


@pytest.fixture
def hf(tmp_path: Path, forkserver: ForkServer) -> Commands:
    return Commands(tmp_path, forkserver)
