"""`make soak` tells red from green, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import soak
from tests.eventually import eventually_now
from tests.stopped import STILL, is_stopped, state

#: Says what pytest says at its end; the third time that it runs, a test fails.
FAKE = """
import os, pathlib, sys
runs = pathlib.Path(sys.argv[1])
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
if len(runs.read_text()) == 3:
    print("FAILED tests/test_some.py::test_thing")
    print("=== 1 failed, 11 passed, 2 deselected in 3.21s ===")
    sys.exit(1)
print("=== 12 passed, 2 deselected in 3.21s (0:00:03) ===")
"""


def fake(folder: Path, code: str = FAKE) -> list[str]:
    (folder / "fake.py").write_text(code)
    return [sys.executable, str(folder / "fake.py"), str(folder / "runs")]


def is_alive(pid: int) -> bool:
    return state(pid) not in "XZ"


def test_one_red_run_of_four_is_counted_and_its_log_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / "logs"
    assert soak.soak(fake(tmp_path), times=4, loaded=2, processes=1, logs=logs) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [("RED" in line, "loaded" in line) for line in lines] == [
        (False, False),
        (False, False),
        (True, True),
        (False, True),
    ]
    assert "11 passed, 1 failed, exit code 1" in lines[2]
    assert "12 passed, 0 failed" in lines[3]
    [kept] = logs.iterdir()
    assert str(kept) in lines[2]
    assert "FAILED tests/test_some.py::test_thing" in kept.read_text()


@pytest.mark.parametrize(
    "code",
    [
        "print('=== 3 passed in 1.00s ===')\nraise SystemExit(3)",
        "print('nothing was said of any test')",
        "print('=== 2 passed, 1 error in 1.00s ===')",
        "print('1 passed in 0.10s')\nprint('=== no tests ran in 1.00s ===')",
    ],
)
def test_a_run_is_green_only_if_it_ended_well_and_something_passed(tmp_path: Path, code: str) -> None:
    assert soak.soak(fake(tmp_path, code), times=1, loaded=0, logs=tmp_path / "logs") == 1


def test_the_busy_processes_are_busy_and_end(tmp_path: Path) -> None:
    with soak.busy(2) as pids:
        assert all(is_alive(pid) for pid in pids)
        eventually_now(lambda: all(spent(pid) > 0 for pid in pids))
    assert not any(is_alive(pid) for pid in pids)


def test_processes_of_the_tests_stand_still_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are not taken for processes that a test has stopped."""
    monkeypatch.setenv(STILL, str(tmp_path / "still"))
    sleeps = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    with subprocess.Popen([sys.executable, "-c", sleeps]) as tests:
        try:
            with soak.stuttering(tests.pid, tmp_path / "still") as stopped:
                eventually_now(lambda: len(stopped) >= 2)
                assert set(stopped) == set(soak.below(tests.pid))
                eventually_now(lambda: state(stopped[0]) == "T")
                assert not is_stopped(stopped[0])
            eventually_now(lambda: [state(pid) for pid in soak.below(tests.pid)] == ["S"])
            os.kill(stopped[0], signal.SIGSTOP)
            eventually_now(lambda: is_stopped(stopped[0]))
        finally:
            for pid in [*soak.below(tests.pid), tests.pid]:
                os.kill(pid, signal.SIGKILL)


def spent(pid: int) -> int:
    """The processor time that a process has used."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_running_however_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    waits = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "tests.soak", "--times", "2", "--loaded", "2", "--", *fake(tmp_path, waits)]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root)}, stderr=subprocess.DEVNULL
    )
    try:
        runs = tmp_path / "runs"
        eventually_now(lambda: runs.exists() and runs.read_text().endswith("\n"))
        children = eventually_now(lambda: has_four(process.pid))
        process.send_signal(number)
        assert process.wait(60) != 0
        tests = int(runs.read_text())
        if number == signal.SIGKILL:  # nobody is there to end the tests; make and the terminal do it
            os.kill(tests, signal.SIGKILL)
        eventually_now(lambda: not any(is_alive(pid) for pid in children))
    finally:
        process.kill()
        process.wait()


def has_four(pid: int) -> list[int]:
    """The three busy processes and the tests."""
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children if len(children) == 4 else []
