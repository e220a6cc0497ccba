"""Random programs, three workers on one file, and somebody who kills the workers: every program ends as it would have.

`HOLDFAST_SEED=17 pytest -m prove tests/programs` repeats what went wrong with seed 17 (the same programs and the same
kills, as far as the machine's speed allows).
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.forkserver import ForkServer
from tests.programs.driver import Plan, run_batch
from tests.programs.trees import Node, grow

BATCHES = 20
AT_ONCE = 100


def programs(seed: int, batch: int, count: int) -> list[Node]:
    return [grow(f"{seed}/{batch}/{n}", name=f"p{batch}-{n}") for n in range(count)]


def chosen_seed() -> int:
    return int(os.environ.get("HOLDFAST_SEED") or random.randrange(1_000_000))


#: What the batches of a sweep suffer, in turn.
PLANS = (
    Plan(most_s=120),
    Plan(most_s=120, stops=0.3),
    Plan(most_s=120, pauses=0.2, cancels=0.1, retires=0.3),
    Plan(most_s=120, pauses=0.2, cancels=0.1, stops=0.3),
)
COUNTED = (
    "programs",
    "runs",
    "kills",
    "stops",
    "aimed",
    "retired",
    "signals",
    "answers",
    "pauses",
    "cancels",
    "doubts",
)


def test_programs_of_killed_workers_end_as_they_would_have(tmp_path: Path, forkserver: ForkServer) -> None:
    batch = run_batch(tmp_path, forkserver, programs(1, 0, 25), seed="1/0", plan=Plan(most_s=15))
    batch.assert_well()
    assert batch.kills >= 5
    assert batch.doubts > 0, "somebody was killed in an effect"


@pytest.mark.postgres
def test_a_worker_that_was_taken_for_dead_does_no_harm_when_it_wakes_up(tmp_path: Path, forkserver: ForkServer) -> None:
    plan = Plan(most_s=15, stops=0.5, pauses=0.2, cancels=0.1)
    batch = run_batch(tmp_path, forkserver, programs(2, 0, 12), seed="2/0", plan=plan)
    batch.assert_well()
    assert batch.stops >= 1


@pytest.mark.prove
@pytest.mark.timeout(0)
def test_thousands_of_programs_end_as_they_would_have(tmp_path: Path, forkserver: ForkServer) -> None:
    seed = chosen_seed()
    print(f"HOLDFAST_SEED={seed}")
    done: Counter[str] = Counter()
    for number in range(BATCHES):
        folder = tmp_path / str(number)
        trees, plan = programs(seed, number, AT_ONCE), PLANS[number % len(PLANS)]
        batch = run_batch(folder, forkserver, trees, seed=f"{seed}/{number}", plan=plan)
        batch.assert_well()
        done.update({name: getattr(batch, name) for name in COUNTED})
        done["late"] += len(batch.late)
        shutil.rmtree(folder)
    print(f"HOLDFAST_SEED={seed}: " + ", ".join(f"{count} {name}" for name, count in done.items()))
