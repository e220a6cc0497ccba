"""Random programs that are cancelled while they undo, whose bodies raise what is no Exception, and people who meddle.

`HOLDFAST_SEED=17 HOLDFAST_ONLY=3 pytest -m prove tests/programs/test_hazards.py` repeats batch 3 of what went wrong
with seed 17 (the same programs, people and kills, as far as the machine's speed allows); HOLDFAST_ONLY=3/41 has program
41 of that batch alone. HOLDFAST_WITHOUT=Exit,gather leaves these out, by their names in `hazards.py`.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model import Status
from holdfast.testing.ledger import VARIABLE as LEDGER
from tests.forkserver import ForkServer
from tests.programs import hazardous
from tests.programs.checks import Findings
from tests.programs.driver import Batch, Over, Plan, Sort, run_batch
from tests.programs.hazard_checks import Facts, check_hazards, hits
from tests.programs.hazards import BREAKS, CUTS, PLAIN, grow_hazards
from tests.programs.marks import marks_in
from tests.programs.meddlers import Meddlers
from tests.programs.trees import Node

log = logging.getLogger("holdfast.tests.programs")

AT_ONCE = 100
BATCHES = {"sqlite": 20, "postgres": 5}
#: Every other batch, nobody is killed: then all that happens is the doing of programs and people.
CALM = Plan(kills=False, lease_s=10.0, most_s=30, pauses=0.15, cancels=0.2)
KILLED = Plan(most_s=60, pauses=0.1, cancels=0.15, retires=0.2)

#: Hazards that some programs of a sweep must have met, or the sweep has proved nothing about them: how they begin.
COARSE = (
    "cancelled while undoing: a child run",
    "cancelled while undoing: a nested saga",
    *(f"cancelled while undoing: {cut}" for cut in (*CUTS, "people")),
    "a finally while cancelled",
    *(f"{what} raises" for what in ("effect", "step", "verify", "undo", "agent")),
    *(f"plain {word}" for word in PLAIN),
    "people: pause and resume",
    "people: cancel",
    "people: cancel pause before",
    "people: cancel pause after",
    "people: a verdict on what is under way refused",
    "people: a verdict on what has ended refused",
    "people: a second verdict refused",
    "people: settled as landed",
    "people: settled as not landed",
)
#: The same for a long sweep.
FINE = (
    *(f"{what} raises: {word}" for what in ("effect", "step", "verify", "undo", "agent") for word in BREAKS),
    *(f"agent raises: {word} in a branch" for word in BREAKS),
    *(f"plain {word} around {wait}" for word in PLAIN for wait in ("sleep", "receive", "ask", "child")),
)


def programs(seed: int, batch: int, count: int, only: str = "") -> list[Node]:
    without = frozenset(os.environ.get("HOLDFAST_WITHOUT", "").split(","))
    trees = [grow_hazards(f"{seed}/{batch}/{n}", without=without, name=f"h{batch}-{n}") for n in range(count)]
    return [tree for tree in trees if not only or tree.at == f"h{batch}-{only}"]


def facts_of(over: Over) -> Facts:
    people = over.people
    assert isinstance(people, Meddlers)
    return Facts(
        over.left,
        over.scene.url,
        over.trees,
        marks_in(over.scene.folder),
        over.ledger,
        cancelled=frozenset(people.cancelled),
        paused=frozenset(people.paused),
        is_calm=people.is_calm,
    )


def batch_of(
    folder: Path,
    forkserver: ForkServer,
    trees: list[Node],
    seed: str,
    plan: Plan,
    *,
    see: Callable[[Facts], object] = id,
) -> Batch:
    def check(over: Over, batch: Batch) -> Findings:
        facts = facts_of(over)
        assert isinstance(over.people, Meddlers)
        batch.met = {**over.people.met, **hits(facts)}
        see(facts)
        return check_hazards(facts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LEDGER, str(folder / "ledger.jsonl"))  # people read it too
        return run_batch(
            folder, forkserver, trees, seed=seed, plan=plan, sort=Sort(hazardous.__name__, Meddlers, check)
        )


def test_a_seed_always_grows_the_same_hazards() -> None:
    assert [grow_hazards(seed) for seed in range(50)] == [grow_hazards(seed) for seed in range(50)]
    for seed in range(200):
        tree = grow_hazards(seed)
        assert len({node.at for node in tree.walk()}) == len(list(tree.walk())), "places are unique"


@pytest.mark.postgres
def test_cancelled_and_broken_programs_end_as_they_must(tmp_path: Path, forkserver: ForkServer) -> None:
    seen: list[Facts] = []
    batch = batch_of(tmp_path, forkserver, programs(1, 0, 25), "1/0", replace(CALM, most_s=10), see=seen.append)
    batch.assert_well()
    assert batch.met["cancelled while undoing"]
    notices_what_is_wrong(seen[0])


@pytest.mark.prove
def test_cancelled_and_broken_programs_of_killed_workers_end_as_they_must(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    batch = batch_of(tmp_path, forkserver, programs(2, 0, 15), "2/0", replace(KILLED, most_s=10))
    batch.assert_well()
    assert batch.kills >= 3


def notices_what_is_wrong(facts: Facts) -> None:
    """The checks see it if something is undone not at all, twice or too early, or is done twice, or does not end."""
    runs = facts.left.runs

    def wrong(run_id: str, said: str) -> bool:
        return any(said in each for each in check_hazards(facts).wrong.get(run_id, ()))

    undone = [(id, deed) for id, told in runs.items() for deed in told.deeds if deed.what == "undo"]
    assert undone, "something was undone"
    for run_id, deed in undone:  # of some it is not known whether they had to be undone
        deeds = runs[run_id].deeds
        runs[run_id].deeds = [each for each in deeds if each != deed]
        if wrong(run_id, "was not undone"):
            break
        runs[run_id].deeds = deeds
    else:
        raise AssertionError("nobody sees that something is not undone")
    runs[run_id].deeds = [*deeds, deed]
    assert wrong(run_id, "was undone 2 times")
    acted = next(each for each in deeds if each.what == "act" and each.key == deed.key)
    runs[run_id].deeds = [*deeds, acted, acted, acted]
    assert wrong(run_id, "happened")
    runs[run_id].deeds = [*deeds, replace(acted, key="another")]
    assert wrong(run_id, "under 2 keys")
    runs[run_id].deeds = deeds
    row = runs[run_id].row
    runs[run_id].row = replace(row, status=Status.paused)
    assert wrong(run_id, "is not over")
    runs[run_id].row = row
    backwards = [(id, told) for id, told in runs.items() if sum(each.what == "undo" for each in told.deeds) > 2]
    for id, told in backwards:
        last = max(each.done for each in told.deeds)
        told.deeds = [replace(d, done=2 * last - d.done) if d.what == "undo" else d for d in told.deeds]
        if wrong(id, "was undone before it"):
            break
    else:
        raise AssertionError("nobody sees that something is undone in the wrong order")


def never_met(met: Iterable[str], wanted: Iterable[str]) -> list[str]:
    known = list(met)
    return [each for each in wanted if not any(hazard.startswith(each) for hazard in known)]


def test_a_hazard_that_was_never_met_is_noticed() -> None:
    assert never_met(["plain timeout around ask"], ["plain timeout", "plain wait_for"]) == ["plain wait_for"]


@pytest.mark.prove
@pytest.mark.timeout(0)
def test_thousands_of_cancelled_and_broken_programs_end_as_they_must(
    tmp_path: Path, forkserver: ForkServer, sort_of_store: str
) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.randrange(1_000_000))
    only_batch, _, only = os.environ.get("HOLDFAST_ONLY", "").partition("/")
    met: dict[str, set[str]] = defaultdict(set)
    done: Counter[str] = Counter()
    numbers = [int(only_batch)] if only_batch else range(BATCHES[sort_of_store])
    for number in numbers:
        folder = tmp_path / str(number)
        plan = KILLED if number % 2 else CALM
        batch = batch_of(folder, forkserver, programs(seed, number, AT_ONCE, only), f"{seed}/{number}", plan)
        log.info("%s", ", ".join(f"{hazard}: {len(ids)}" for hazard, ids in sorted(batch.met.items())))
        batch.command = (
            f"HOLDFAST_SEED={seed} HOLDFAST_ONLY={number} .venv/bin/python -m pytest -m prove -n 0 --timeout=0 "
            f"tests/programs/test_hazards.py -k {sort_of_store}"
        )
        batch.assert_well()
        done.update(programs=batch.programs, runs=batch.runs, kills=batch.kills)
        for hazard, ids in batch.met.items():
            met[hazard] |= ids
        shutil.rmtree(folder)
    print(f"HOLDFAST_SEED={seed}: " + ", ".join(f"{count} {name}" for name, count in done.items()))
    print(*(f"{hazard}: {len(ids)} programs" for hazard, ids in sorted(met.items())), sep="\n")
    if not only_batch:
        wanted = (*COARSE, *FINE) if done["programs"] >= 2000 else COARSE
        assert never_met(met, wanted) == [], "nothing was proved about these"
