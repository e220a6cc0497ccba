"""`worker` when the files of its store are taken away under it: it says so and ends."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.cli.test_worker import notes as noted
from tests.cli.test_worker import several, working, write
from tests.eventually import eventually_now

pytestmark = pytest.mark.corrupts


def deleted(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)


def log_deleted(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def log_emptied(path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


LOSSES = [deleted, replaced, log_deleted, log_emptied]


def store(hf: Commands) -> Path:
    return hf.folder / ".holdfast" / "holdfast.db"


@pytest.mark.parametrize("lose", LOSSES)
def test_an_idle_worker_says_what_happened_and_ends(hf: Commands, lose: Callable[[Path], None]) -> None:
    write(hf)
    with working(hf, "work.py") as worker:
        worker.told("executes")
        lose(store(hf))
        assert worker.wait() == 6
        (error,) = [line for line in worker.err if line.startswith("error: ")]
        assert "holdfast.db" in error
        assert "put the right files back" in error


@pytest.mark.parametrize("lose", [deleted, log_emptied])
def test_a_worker_in_the_middle_of_a_run_does_not_go_on_with_it(hf: Commands, lose: Callable[[Path], None]) -> None:
    write(hf, 'slow("go")')
    with working(hf, "work.py", "--json") as worker:
        eventually_now(lambda: len(noted(hf)) == 1)
        lose(store(hf))
        (hf.folder / "go").touch()
        assert worker.wait() == 6
        error = json.loads([line for line in worker.err if line.startswith("{")][-1])["error"]
        assert (error["code"], error["type"]) == (6, "StoreReplaced")


@pytest.mark.parametrize("lose", [deleted, log_deleted])
def test_children_are_not_replaced_by_ones_that_would_open_what_lies_there_now(
    hf: Commands, lose: Callable[[Path], None]
) -> None:
    write(hf)
    with several(hf, 2) as (worker, _):
        lose(store(hf))
        assert worker.wait() == 6
    assert lose is log_deleted or not store(hf).exists(), "a new store was made in its place"
