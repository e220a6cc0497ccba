"""A gigabyte in and out: little memory, others hardly notice, and a kill in the middle costs half of it."""

from __future__ import annotations

import filecmp
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.journal.files import CHUNK
from tests.files import large

ROOT = Path(__file__).parent.parent.parent
MEGABYTES = 1024
CHUNKS = MEGABYTES * (1 << 20) // CHUNK


def program(folder: Path, url: str, *what: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, large.__file__, url, str(folder / "source"), str(folder / "copy"), *what],
        env={**os.environ, "HOLDFAST_FAULT": fault, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


def said_by(ended: subprocess.CompletedProcess[str]) -> dict[str, float]:
    assert ended.returncode == 0, ended.stderr
    print(ended.stdout)
    said: dict[str, float] = json.loads(ended.stdout)
    return said


@pytest.mark.prove
@pytest.mark.parametrize("sort", ["sqlite", "postgres"])
def test_a_gigabyte_that_is_cut_off_in_the_middle(sort: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if sort == "postgres" else str(tmp_path / "store.db")
    with (tmp_path / "source").open("wb") as source:
        for _ in range(MEGABYTES):
            source.write(os.urandom(1 << 20))
    killed = program(tmp_path, url, "cut-off", "large", fault=f"files.after_commit:kill@{CHUNKS // 2}")
    assert killed.returncode == -9, killed.stderr
    said = said_by(program(tmp_path, url, "cut-off", "large"))
    assert filecmp.cmp(tmp_path / "source", tmp_path / "copy", shallow=False)
    assert CHUNKS // 2 <= said["stored"] <= CHUNKS // 2 + 2, "the other half, and the list"
    said = said_by(program(tmp_path, url, "beside", "large", "ticking"))
    assert said["stored"] == CHUNKS + 1
    assert said["grown"] < 64 * 1024 * 1024
    assert said["meanwhile_ms"] < 3 * said["usual_ms"]
