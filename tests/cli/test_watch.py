"""`watch`: live on a terminal, lines in a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import pytest

from tests.cli.commands import Commands
from tests.cli.waiting import park, prepare


@pytest.fixture
def hf(hf: Commands) -> Commands:
    return prepare(hf)


class Screen:
    """A terminal that a command has to itself."""

    def __init__(self, hf: Commands, *arguments: str, columns: int = 100) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(hf.folder)
            environment = {k: v for k, v in hf.environment.items() if k != "COLUMNS"} | {"TERM": "xterm"}
            os.execve(sys.executable, [sys.executable, "-m", "holdfast", *arguments], environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.shown = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.shown += os.read(self.fd, 65536).decode(errors="replace")

    def end(self) -> int:
        while True:
            try:
                part = os.read(self.fd, 65536)
            except OSError:
                break
            if not part:
                break
            self.shown += part.decode(errors="replace")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_once_shows_a_frame_as_a_table_lines_or_json(hf: Commands) -> None:
    park(hf, "sure", "one")
    hf("run", "agents.py:echo", "--id", "two")
    shown = hf.on_terminal("watch", "--once", columns=100).out
    for each in ("✋ 1 waiting", "1 question (holdfast questions)", "STATUS", "asks: Sure?", "✔ done", "no worker"):
        assert each in shown
    assert max(map(len, shown.splitlines())) <= 100
    lines = [line.split("\t")[1:4] for line in hf("watch", "--once").out.splitlines()]
    assert sorted(lines) == [["one", "waiting", "sure"], ["two", "done", "echo"]]
    found = [json.loads(line) for line in hf("watch", "--once", "--json").out.splitlines()]
    assert {each["id"] for each in found} == {"one", "two"}


def test_a_live_table_follows_the_runs_until_q(hf: Commands) -> None:
    park(hf, "sure", "one")
    screen = Screen(hf, "watch", columns=120)
    screen.wait_for("asks: Sure?")
    assert hf("answer", "one", "yes").code == 0
    screen.wait_for("queued")
    assert hf("resume", "one", "waiting.py").out == "sure: True\n"
    screen.wait_for("done")
    os.write(screen.fd, b"q")
    assert screen.end() == 0
    assert "Traceback" not in screen.shown
    assert "\x1b[?1049l" in screen.shown, "the terminal is given back"
    assert "one" in screen.shown.rpartition("\x1b[?1049l")[2], "the last frame stays"


def test_ctrl_c_leaves_without_a_traceback(hf: Commands) -> None:
    park(hf, "sure", "one")
    screen = Screen(hf, "watch", "one")
    screen.wait_for("holdfast answer q_")
    os.write(screen.fd, b"\x03")
    assert screen.end() == 130
    assert "Traceback" not in screen.shown
    assert "\x1b[?1049l" in screen.shown


def test_one_run_is_watched_until_it_ends(hf: Commands) -> None:
    process = hf.start("run", "waiting.py:patient", "go", "--id", "one")
    assert process.stderr is not None
    assert "Run one" in process.stderr.readline()
    screen = Screen(hf, "watch", "one")
    screen.wait_for("wait_for_file#1")
    screen.wait_for("25%")
    (hf.folder / "go").touch()
    assert screen.end() == 0
    assert "finished" in screen.shown
    process.communicate(timeout=60)


def test_piped_there_is_a_line_for_each_change(hf: Commands) -> None:
    park(hf, "sure", "one")
    process = hf.start("watch", "--json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["id"], first["status"]) == ("one", "waiting")
    hf("cancel", "one")
    second = json.loads(process.stdout.readline())
    assert (second["id"], second["status"]) == ("one", "cancelled")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""


def test_piped_one_run_gives_its_history_and_its_exit_code(hf: Commands) -> None:
    hf("run", "waiting.py:failing", "--id", "one")
    ended = hf("watch", "one")
    assert ended.code == 1
    assert [line.split("\t")[2] for line in ended.out.splitlines()] == ["started", "step", "finished"]
    assert ended.out == hf("show", "one").out
    assert hf("watch", "one", "--once").code == 0
    assert hf("watch", "nobody").code == 3
