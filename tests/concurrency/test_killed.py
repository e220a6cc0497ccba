"""Random programs in processes that are really killed, several times, with another hash seed each time."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.concurrency import programs

ROOT = Path(__file__).parents[2]
POINTS = ["append.after_commit", "append.before_commit", "effect.after_body", "effect.after_intent", "step.after_body"]


def process(folder: Path, agent: str, seed: int, latency: str, fault: str) -> dict[str, Any] | None:
    """Go on with the run in a process of its own; None if that was killed."""
    chance = random.Random(latency)
    environment = {**os.environ, "PYTHONHASHSEED": str(chance.randint(1, 10000)), "HOLDFAST_FAULT": fault}
    arguments = [str(folder / "holdfast.db"), agent, str(seed), latency, str(folder / "world")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.concurrency.killed", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == -9:
        return None
    assert done.returncode == 0, done.stderr
    ended: dict[str, Any] = json.loads(done.stdout)
    return ended


def kill_until_done(folder: Path, agent: str, seed: int, *, kills: int) -> dict[str, Any]:
    chance = random.Random(f"kills {seed}")
    for n in range(kills):
        fault = f"{chance.choice(POINTS)}:kill@{chance.randint(1, 8)}"
        ended = process(folder, agent, seed, f"latency {seed} {n}", fault)
        if ended is not None:
            return ended
    ended = process(folder, agent, seed, f"latency {seed} last", "")
    assert ended is not None
    return ended


def check_killed(seed: int, folder: Path) -> None:
    ended = kill_until_done(folder, "program", seed, kills=4)
    tree = programs.grow(seed, plain=seed % 2 == 0)
    assert ended["result"]["total"] == tree.total()
    assert "unstable" not in ended["noted"]
    assert ended["repeated"] == []
    happened = [json.loads(line)[1] for line in (folder / "world").read_text().splitlines() if line.startswith("[")]
    acts = [node for node in tree.walk() if node.kind == "act"]
    assert {n.place for n in acts if not n.is_optional} <= set(happened) <= {n.place for n in acts}
    assert set(Counter(happened).values()) <= {1}
    places = Counter(ended["calls"].values())
    assert set(places.values()) <= {1}, "no two calls have the same place"


@pytest.mark.parametrize("seed", range(700, 706))
def test_a_killed_program_ends_as_if_it_had_not_been_killed(seed: int, tmp_path: Path) -> None:
    check_killed(seed, tmp_path)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(706, 760))
def test_many_killed_programs_end_as_if_they_had_not_been_killed(seed: int, tmp_path: Path) -> None:
    check_killed(seed, tmp_path)


def test_sets_as_arguments_are_the_same_arguments_under_another_hash_seed(tmp_path: Path) -> None:
    assert process(tmp_path, "spelling", 1, "first", "step.before_body:kill@9") is None
    assert process(tmp_path, "spelling", 1, "second", "step.before_body:kill@5") is None
    ended = process(tmp_path, "spelling", 1, "last", "")
    assert ended is not None
    assert "unstable" not in ended["noted"]
    values = ended["result"]["values"]
    assert [len(v) for v in values if len(v) != 3] == [n for n in range(5, 15) for _ in range(2)]
    bodies = Counter((tmp_path / "world").read_text().splitlines())
    assert bodies["spell 5"] == 2, "what was on disk did not run again"
