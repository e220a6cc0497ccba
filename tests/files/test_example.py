"""The coding agent among the examples, as it is, killed with `kill -9` and stopped by its budget."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing.processes import environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "coding_agent.py"


@pytest.mark.parametrize("died_after", ["commit", "clone"])
def test_a_coding_agent_that_was_killed_while_its_remote_was_made_has_one(tmp_path: Path, died_after: str) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    killing = f'case "$*" in *" {died_after} "*) kill -9 $PPID;; esac'
    git.write_text(f'#!/bin/sh\n{shutil.which("git")} "$@" || exit\n{killing}\n')
    git.chmod(0o755)
    code = f"import sys; sys.path.insert(0, {str(EXAMPLE.parent)!r}); import coding_agent as c; c.make_remote()"

    def made(path: str) -> int:
        ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment({"PATH": path}), check=False)
        return ended.returncode

    assert made(f"{git.parent}:{os.environ['PATH']}") == -9
    assert made(os.environ["PATH"]) == 0
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=tmp_path / "remote.git", check=True, capture_output=True, text=True
    )
    assert log.stdout == "Begin\n"


def test_a_coding_agent_that_is_killed_and_short_of_money_pushes_its_branch_once(tmp_path: Path) -> None:
    """With a budget for half of its plan. Killed with an edit on disk, and with the push done and not recorded."""
    text = EXAMPLE.read_text()
    program = tmp_path / "coding_agent.py"
    program.write_text(text.replace("cost=1.0", "cost=0.20"))
    assert program.read_text() != text
    env = {"HOLDFAST_WORKSPACES": str(tmp_path / "workspaces")}

    def run(*words: str, fault: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment(env | {"HOLDFAST_FAULT": fault}),
            capture_output=True,
            text=True,
            check=False,
        )

    assert run(program.name, fault="workspace.after_data:kill@2").returncode == -9
    blocked = run(program.name)
    assert blocked.returncode != 0
    assert "cost=AMOUNT" in blocked.stderr
    raised = run(
        *("-m", "holdfast", "resume", "fix-1", program.name, "--budget", "cost=1"), fault="effect.after_body:kill"
    )
    assert raised.returncode == -9, raised.stderr
    ended = run(program.name)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "draft pull request of agent/fix-1, 2 items done"

    def git(*words: str) -> list[str]:
        folder = tmp_path / "remote.git"
        answer = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
        return answer.stdout.splitlines()

    assert git("log", "--format=%s", "agent/fix-1") == ["Two tides a day", "Begin"]
    assert git("show", "agent/fix-1:CHANGES.md") == ["- There are two tides a day."]
    assert git("show", "agent/fix-1:tides.py")[-1].strip() == "return hour % 12 == 0"

    async def look() -> None:
        async with hf.connect(str(tmp_path / ".holdfast" / "holdfast.db")) as app:
            work = app.get("fix-1")
            put_out = [(each.kind, each.version, each.ref) for each in await work.artifacts() if each.kind != "record"]
            assert [each for each in put_out if each[0] == "draft-pr"] == [
                ("draft-pr", 1, f"{tmp_path.resolve()}/remote.git#agent/fix-1")
            ]
            assert [version for kind, version, _ in put_out if kind == "workspace"] == [1, 2, 3, 4]
            assert sum(kind == "plan" for kind, *_ in put_out) == 1
            assert (await work.info()).cost == 0.25, "no answer was paid twice"

    asyncio.run(look())
