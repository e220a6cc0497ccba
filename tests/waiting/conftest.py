"""Places with workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing.postgres import Databases, run_client
from tests.forkserver import ForkServer
from tests.stores import forkserver
from tests.waiting.scene import Scene

__all__ = ["forkserver", "postgres_databases", "scene"]


@pytest.fixture(scope="session")
def postgres_databases(postgres_databases: Databases) -> Databases:
    """On a server that is older than a lease: a younger one takes no missing session for the death of a worker."""
    sleep = f"SELECT pg_sleep_until(pg_postmaster_start_time() + interval '{hf.Settings().lease_s:g} s')"
    run_client("psql", "--no-psqlrc", f"--command={sleep}", postgres_databases.admin_url)
    return postgres_databases


@pytest.fixture
def scene(tmp_path: Path, forkserver: ForkServer) -> Iterator[Scene]:
    with Scene(tmp_path, forkserver) as scene:
        yield scene
