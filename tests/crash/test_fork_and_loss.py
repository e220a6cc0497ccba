"""Who owns a run when processes fork, die, or start the same run at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast as hf
from holdfast.testing import Ledger, check_history
from holdfast.testing.processes import environment
from tests.crash import forking, plain
from tests.eventually import eventually_now

COMMAND = [sys.executable, plain.__file__]


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = str(folder / "store.db")
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.env = {"HOLDFAST_LEDGER": str(self.ledger.path), "HOLDFAST_TEST_FOLDER": str(folder)}
        self._processes: list[subprocess.Popen[str]] = []

    def begin(self, agent: str, *arguments: str, run_id: str = "r", fault: str = "") -> subprocess.Popen[str]:
        env = environment(self.env | ({"HOLDFAST_FAULT": fault} if fault else {}))
        process = subprocess.Popen(
            [*COMMAND, agent, run_id, self.url, *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=60)
        return process.returncode, out.strip(), err

    def run(self, agent: str, *arguments: str, run_id: str = "r", fault: str = "") -> tuple[int, str, str]:
        return self.end(self.begin(agent, *arguments, run_id=run_id, fault=fault))

    def wait_for(self, name: str) -> None:
        eventually_now(lambda: (self.folder / name).exists())

    def workers(self) -> set[int]:
        """The processes that execute runs here, alive or not."""

        async def pids() -> set[int]:
            async with hf.connect(self.url) as app:
                return {each.pid for each in await app.workers()}

        return asyncio.run(pids())

    def proof(self) -> str:
        """How whoever took the run over knew that its owner was dead."""
        with apsw.Connection(self.url) as connection:
            query = "SELECT payload FROM records WHERE kind = 'claimed' ORDER BY seq DESC LIMIT 1"
            found = connection.execute(query).get
        return str(json.loads(found)["proof"])

    def begun(self) -> Counter[str]:
        return Counter(line.key for line in self.ledger.lines() if line.what == "begin")

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, forking.__file__, str(tmp_path / "store.db")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "6"], f"all three uses refused, then the parent's own run: {done.stderr}"
    assert check_history(str(tmp_path / "store.db"), acks=[("before", "finished"), ("after", "finished")]) == []


def killed_in_its_sleep(scene: Scene) -> None:
    process = scene.begin("sleeper")
    scene.wait_for("sleeping")
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    (scene.folder / "awake").touch()


def test_a_run_left_by_a_killed_process_is_taken_up_before_its_lease_is_over(scene: Scene) -> None:
    killed_in_its_sleep(scene)
    code, result, errors = scene.run("sleeper")
    assert (code, result) == (0, "3"), errors
    assert scene.proof() == "lock"
    assert scene.begun() == {"slow_change#1": 1, "sleeps#1": 2}


def test_of_two_processes_that_recover_the_same_run_one_executes_it(scene: Scene) -> None:
    killed_in_its_sleep(scene)
    both = [scene.begin("sleeper") for _ in range(2)]
    ended = [scene.end(process) for process in both]
    assert [(code, result) for code, result, _ in ended] == [(0, "3"), (0, "3")], ended
    assert scene.begun() == {"slow_change#1": 1, "sleeps#1": 2}
    assert check_history(scene.url, scene.ledger) == []


def test_two_processes_that_run_the_same_id_execute_it_once(scene: Scene) -> None:
    both = [scene.begin("changes") for _ in range(2)]
    ended = [scene.end(process) for process in both]
    assert [(code, result) for code, result, _ in ended] == [(0, "3"), (0, "3")], ended
    assert scene.begun() == {"look#1": 1, "slow_change#1": 1}
    assert check_history(scene.url, scene.ledger) == []


def test_a_live_run_is_not_taken_from_its_process(scene: Scene) -> None:
    owner = scene.begin("sleeper")
    scene.wait_for("sleeping")
    other = scene.begin("sleeper")
    eventually_now(lambda: {owner.pid, other.pid} <= scene.workers())
    assert owner.poll() is None
    assert other.poll() is None, scene.end(other)
    assert scene.begun() == {"slow_change#1": 1, "sleeps#1": 1}
    os.kill(owner.pid, signal.SIGKILL)
    (scene.folder / "awake").touch()
    assert scene.end(other)[:2] == (0, "3")
    assert scene.proof() == "lock"
    assert scene.begun() == {"slow_change#1": 1, "sleeps#1": 2}


def test_twenty_starts_of_one_id_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    for name, value in scene.env.items():
        monkeypatch.setenv(name, value)

    async def start() -> list[hf.Run[int] | BaseException]:
        one, other = (hf.connect(scene.url, agents=[plain.changes]) for _ in range(2))
        async with one, other:
            calls = [(app, plain.changes(n)) for n in (1, 2) for app in (one, other) for _ in range(5)]
            started = await asyncio.gather(*(app.start(call, id="r") for app, call in calls), return_exceptions=True)
            results = [await run.result() for run in started if isinstance(run, hf.Run)]
            assert len(set(results)) == 1
            return list(started)

    started = asyncio.run(start())
    kinds = Counter(type(each).__name__ for each in started)
    assert kinds == {"Run": 10, "ConflictingStart": 10}, "those with the arguments of the first, and the others"
    assert scene.begun() == {"look#1": 1, "slow_change#1": 1}
    assert check_history(scene.url, scene.ledger) == []


def test_processes_that_start_one_id_with_other_arguments_are_refused(scene: Scene) -> None:
    several = [scene.begin("changes", str(n)) for n in (1, 2, 1, 2)]
    ended = [scene.end(process) for process in several]
    assert sorted(code for code, _, _ in ended) == [0, 0, 4, 4], ended
    assert all(re.match("ConflictingStart: ", out) for code, out, _ in ended if code == 4), ended
    assert scene.begun() == {"look#1": 1, "slow_change#1": 1}


def test_a_failed_run_is_opened_again_by_running_it_again(scene: Scene) -> None:
    code, said, _ = scene.run("repairable")
    assert (code, said) == (4, "RunFailed: Run r failed: ConnectionError: broken")
    (scene.folder / "repaired").touch()
    assert scene.run("repairable")[:2] == (0, "3")
    assert scene.begun() == {"slow_change#1": 1, "repaired#1": 2}


@pytest.mark.parametrize(
    "point", ["claim.after_commit:kill@1", "append.before_commit:kill@1", "append.after_commit:kill@1"]
)
def test_a_retry_that_is_killed_is_still_a_retry(scene: Scene, point: str) -> None:
    assert scene.run("repairable")[0] == 4
    (scene.folder / "repaired").touch()
    assert scene.run("repairable", fault=point)[0] == -signal.SIGKILL
    code, said, errors = scene.run("repairable")
    assert (code, said) == (0, "3"), errors
    assert scene.begun()["slow_change#1"] == 1
    assert check_history(scene.url, scene.ledger) == []
