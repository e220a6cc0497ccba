"""Tests that are run in lanes come to the ends that they come to one after the other, whatever becomes of a lane."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.processes import environment
from tests.eventually import eventually_now

ROOT = Path(__file__).parent.parent

SHARED = """
import os, pathlib, pytest

@pytest.fixture(scope="session")
def server():
    with open("servers", "a") as file:
        file.write(f"begins {os.getpid()}\\n")
    yield
    with open("servers", "a") as file:
        file.write(f"ends {os.getpid()}\\n")
"""
FIRST = """
import os, sys, pytest
STDERR = sys.stderr

def test_passes(server, tmp_path):
    assert tmp_path.is_dir()

def test_fails(server):
    print("said before", file=STDERR)
    raise ValueError("as it must")

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass
"""
SECOND = """
def test_needs_what_is_not_there(nothing):
    pass

def test_passes_too(server):
    pass
"""
DYING = """
import os, signal

def test_before():
    pass

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_behind():
    pass
"""
STANDING = """
import os, time

def test_stands():
    with open("standing", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(120)
"""


def command(*options: str) -> list[str]:
    plugins = ["--disable-plugin-autoload", "-p", "tests.lanes", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", "-ra", *plugins, *options]


def outcome_of(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return subprocess.run(
        command(*options), cwd=folder, env=environment() | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )


def ends(said: str) -> list[str]:
    """The lines of the summary, and its counts."""
    return sorted(re.findall(r"^(?:FAILED|ERROR|SKIPPED) \S+", said, re.M)) + re.findall(r"\d+ \w+(?=,| in )", said)


def test_what_lanes_find_is_what_one_process_finds(tmp_path: Path) -> None:
    files = {"conftest": SHARED, "test_first": FIRST, "test_second": SECOND}
    alone, lanes = outcome_of(tmp_path, **files), outcome_of(tmp_path, "--lanes", "2", **files)
    assert alone.returncode == lanes.returncode == 1
    assert ends(lanes.stdout) == ends(alone.stdout)
    for told in ("1 failed, 2 passed, 1 skipped, 1 error", "said before", "ValueError: as it must", "not today"):
        assert told in lanes.stdout


def test_what_lives_for_a_session_lives_as_long_as_its_lane(tmp_path: Path) -> None:
    files = {f"test_{number}": "def test_it(server): pass" for number in range(6)}
    assert outcome_of(tmp_path, "--lanes", "2", conftest=SHARED, **files).returncode == 0
    told = (tmp_path / "servers").read_text().split("\n")[:-1]
    lanes = {line.split()[1] for line in told}
    assert 1 <= len(lanes) <= 2
    assert sorted(told) == sorted(f"{what} {lane}" for lane in lanes for what in ("begins", "ends"))


def test_a_lane_that_dies_is_a_failure_of_the_test_it_was_at_and_the_others_are_run(tmp_path: Path) -> None:
    found = outcome_of(tmp_path, "--lanes", "2", test_dying=DYING, test_other="def test_it(): pass")
    assert found.returncode == 1
    assert "FAILED test_dying.py::test_dies - the process that ran it ended with signal 9" in found.stdout
    assert "1 failed, 3 passed" in found.stdout


def test_the_first_failure_ends_all_lanes_where_that_is_asked_for(tmp_path: Path) -> None:
    found = outcome_of(tmp_path, "--lanes", "2", "-x", test_a=STANDING, test_b="def test_it(): assert not 1")
    assert found.returncode == 1
    assert "stopping after 1 failures" in found.stdout
    assert "1 failed in" in found.stdout


def test_who_interrupts_the_tests_leaves_no_lane_behind(tmp_path: Path) -> None:
    (tmp_path / "test_standing.py").write_text(STANDING)
    (tmp_path / "test_too.py").write_text(STANDING)
    process = subprocess.Popen(
        command("--lanes", "2"),
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),  # also where a shell had it ignored
    )
    standing = tmp_path / "standing"
    eventually_now(lambda: standing.exists() and len(standing.read_text().split()) == 2)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    for pid in standing.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
