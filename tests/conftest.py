"""What all tests share: worker processes, a database for who asks for one, and that no promise may be broken."""

from __future__ import annotations

import compileall
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import holdfast as hf
from holdfast.store import open_store
from holdfast.testing import check_history, fixtures
from holdfast.testing.fixtures import histories_hold
from holdfast.testing.postgres import Databases
from holdfast.testing.reading import in_own_loop
from tests.forkserver import ForkServer, shared_forkserver
from tests.stores import pytest_generate_tests

__all__ = ["histories_hold", "pytest_generate_tests"]

MEMORY = Path("/dev/shm")


def keep_files_in_memory() -> None:
    """Thousands of stores are made and removed, and no test cuts the power: a disk is half of the time they take.

    Only where there is room for much more than they need, and nobody chose a place.
    """
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


keep_files_in_memory()

#: Tests of the store itself: their runs are made up, no agent ever lived them.
MADE_UP = Path(__file__).parent / "store"


#: They begin first, so that no process is left alone with them when the others have nothing to do any more.
LONGEST = (
    "test_docs.py",
    "crash/test_every_crash_point.py",
    "cli/test_hostile.py",
    "crash/test_waiting_points.py",
    "crash/test_driven_lives.py",
    "cli/test_liveness.py",
    "retention/test_moving_on.py",
    "store/test_sqlite_lost_log.py",
    "crash/test_syscalls.py",
    "postgres/test_search_path.py",
    "store/test_postgres_conformance.py",
    "concurrency/test_random_programs.py",
    "store/test_postgres_writer.py",
    "code_change/test_cancelled_calls.py",
    "worker/test_clock_ahead.py",
    "test_jobs.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """What a change must pass is the same for each change: generated cases are others only where we look for news."""
    fixtures.pytest_configure(config)
    hypothesis.settings.register_profile("same", derandomize=True)
    hypothesis.settings.load_profile("default" if config.option.markexpr == "prove" else "same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))
    for item in items:
        if item.path.is_relative_to(MADE_UP):
            item.add_marker("corrupts")


def pytest_collection_finish() -> None:
    """From now on no bytecode is kept: a test may write a file twice within a second, and mean the second one."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def migrate(url: str) -> None:
    async def opened() -> None:
        store = open_store(url, settings=hf.Settings())
        await store.open()
        await store.close()

    in_own_loop(opened)  # the test may have a loop running


@pytest.fixture(scope="session")
def postgres_databases() -> Iterator[Databases]:
    """One PostgreSQL server for the tests of this process, started when the first of them asks for a database."""
    with Databases(migrate) as databases:
        yield databases


@pytest.fixture
def postgres_url(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own, with Holdfast's tables; its histories are checked when the test is over."""
    url = postgres_databases.fresh()
    yield url
    try:
        if request.node.get_closest_marker("corrupts") is None:
            assert check_history(url) == []
    finally:
        postgres_databases.drop(url)


def pytest_sessionstart() -> None:
    """Thousands of processes are started: none of them compiles Holdfast, even where Python is told to keep nothing.

    A shell has what it starts in the background ignore Ctrl-C; tests send it, and whoever they start must hear it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    compileall.compile_dir(Path(hf.__file__).parent, quiet=1)
    gc.set_threshold(20_000, 20, 20)  # these processes live long, and are full of what is never garbage


@pytest.fixture(scope="session")
def forkserver() -> ForkServer:
    return shared_forkserver()
