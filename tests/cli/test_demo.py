"""`holdfast demo`, as a user runs it: real processes, really killed."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.demo import research
from holdfast.demo.findings import Evidence, examine, gather_evidence
from holdfast.demo.story import ACTS, Performance, Places

COMMAND = [sys.executable, "-m", "holdfast", "demo", "--fast"]
SOURCES = str(Path(holdfast.__file__).parent.parent)


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_") and k not in ("NO_COLOR", "FORCE_COLOR")
    }
    return kept | {"PYTHONPATH": SOURCES, "TMPDIR": str(folder), "TERM": "xterm-256color", **more}


def processes_in(folder: Path) -> list[int]:
    """Processes whose working directory is in the folder: the demo starts all of its there."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink().is_relative_to(folder):
                found.append(int(link.parent.name))
        except OSError:
            continue
    return found


def demo(folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options], env=environment(folder, **more), cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts of one demo whose directory is there to be looked at."""
    done = demo(tmp_path_factory.mktemp("kept"), "--json", "--keep")
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.fixture(scope="module")
def evidence(kept: dict[str, Any]) -> Evidence:
    codes = (-signal.SIGKILL, -signal.SIGKILL, -signal.SIGKILL, 0)
    ended = [Performance(*each) for each in zip(ACTS, kept["pids"], codes, strict=True)]
    return asyncio.run(gather_evidence(Places(Path(kept["directory"])), ended))


def test_three_kills_four_processes_and_nothing_lost_or_done_twice(tmp_path: Path) -> None:
    """By two demos at once, which do not meet."""
    both = [
        subprocess.Popen([*COMMAND, "--json"], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE)
        for _ in "ab"
    ]
    said = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0]
    pids: set[int] = set()
    for text in said:
        facts = json.loads(text)
        assert facts["ok"] is True
        assert [kill["signal"] for kill in facts["kills"]] == [signal.SIGKILL] * 3
        assert [kill["cut_off"] for kill in facts["kills"]] == [
            ["investigate~2/digest#1"],
            ["write#1"],
            ["send_email#1"],
        ]
        pids |= set(facts["pids"])
        assert [(mail["to"], mail["seen"]) for mail in facts["mails"]] == [([reader], 1) for reader in research.READERS]
        assert facts["bodies"]["ran_again"] == []
        assert [(d["key"], d["verdict"], d["by"], d["found"]) for d in facts["in_doubt"]] == [
            ("send_email#1", "landed", "verify", [1])
        ]
        assert facts["in_doubt"][0]["evidence"] == {"cause": "crash", "verify": "landed"}
        assert facts["chain"]["is_ok"] is True
        assert facts["chain"]["verified"] == facts["chain"]["records"] > 20
        assert facts["saved"]["input_tokens"] > 0
        assert facts["saved"]["output_tokens"] > 0
        assert facts["saved"]["cost"] > 0
        assert facts["saved"]["seconds"] > 0
    assert len(pids) == 8
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_gets_plain_lines(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert len(re.findall(r"^✖ SIGKILL pid \d+ ", done.stdout, flags=re.MULTILINE)) == 3
    assert len(re.findall(r"^↺ process \d resumes ", done.stdout, flags=re.MULTILINE)) == 3
    assert "✔ ada@example.org" in done.stdout
    assert "◈ send_email#1" in done.stdout


def test_a_terminal_shows_kills_in_red_and_resumes_in_green(tmp_path: Path) -> None:
    shown = on_terminal(tmp_path, 80)
    assert len(re.findall(r"\x1b\[31m✖ SIGKILL pid \d+ ", shown)) == 3
    assert len(re.findall(r"\x1b\[32m↺ process \d resumes ", shown)) == 3
    assert_fits(shown, 80)
    assert shown.rstrip().count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor is visible again"


def test_no_color_means_none(tmp_path: Path) -> None:
    shown = on_terminal(tmp_path, 140, NO_COLOR="1")
    assert not re.search(r"\x1b\[3[0-9]m", shown)
    assert_fits(shown, 140)


def assert_fits(shown: str, columns: int) -> None:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "11 of 11 checks hold" in plain
    assert "write#1" in plain
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= columns


def on_terminal(folder: Path, columns: int, **more: str) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(COMMAND, env=environment(folder, **more), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux: everybody has closed the other end
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return b"".join(parts).decode()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        COMMAND, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "resumes" in line:
            break
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_kept_directory_has_the_agent_its_report_and_its_store(kept: dict[str, Any]) -> None:
    places = Places(Path(kept["directory"]))
    assert (places.folder / "research.py").read_text() == Path(research.__file__).read_text()
    assert "Bay of Fundy" in places.report.read_text()
    assert places.db.exists()


def test_the_agent_is_short_enough_to_be_read() -> None:
    assert len(Path(research.__file__).read_text().splitlines()) <= 90


def test_all_is_found_well_where_all_is_well(evidence: Evidence) -> None:
    assert examine(evidence).wrong == []


def _mail_twice(e: Evidence) -> Evidence:
    return replace(e, mails=[*e.mails, e.mails[0]])


def _mail_lost(e: Evidence) -> Evidence:
    return replace(e, mails=e.mails[:1])


def _other_text(e: Evidence) -> Evidence:
    return replace(e, report="something else")


def _step_again(e: Evidence) -> Evidence:
    return replace(e, begun=[*e.begun, (e.ended[3].pid, "plan#1")])


def _effect_again(e: Evidence) -> Evidence:
    return replace(e, begun=[*e.begun, (e.ended[3].pid, "send_email#1")])


def _not_killed(e: Evidence) -> Evidence:
    return replace(e, ended=[replace(e.ended[0], returncode=0), *e.ended[1:]])


def _other_process(e: Evidence) -> Evidence:
    return replace(e, ended=[*e.ended[:3], replace(e.ended[3], pid=1)])


def _nobody_asked(e: Evidence) -> Evidence:
    return replace(e, lookups=[])


def _no_doubt(e: Evidence) -> Evidence:
    return replace(e, records=[r for r in e.records if r.kind != "settled"])


def _broken_chain(e: Evidence) -> Evidence:
    return replace(e, chain=replace(e.chain, is_ok=False, problem="the record does not fit its hash", seq=4))


def _no_usage(e: Evidence) -> Evidence:
    return replace(e, records=[r for r in e.records if r.name not in ("usage", "resumed")])


@pytest.mark.parametrize(
    ("spoil", "section"),
    [
        (_mail_twice, "What the mail server saw"),
        (_mail_lost, "What the mail server saw"),
        (_other_text, "What the mail server saw"),
        (_step_again, "What ran, and how often"),
        (_effect_again, "What ran, and how often"),
        (_not_killed, "Four processes, one run"),
        (_other_process, "Four processes, one run"),
        (_nobody_asked, "What was in doubt"),
        (_no_doubt, "What was in doubt"),
        (_broken_chain, "The journal"),
        (_no_usage, "What three resumes saved"),
    ],
)
def test_whatever_is_wrong_is_found(evidence: Evidence, spoil: Callable[[Evidence], Evidence], section: str) -> None:
    assert section in {finding.section for finding in examine(spoil(evidence)).wrong}
