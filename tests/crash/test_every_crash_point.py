"""Each agent is killed at every crash point that it passes, resumed, and must come to the same end."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.base import faults
from holdfast.testing import Ledger, Life, assert_survives, check_history, resolve
from holdfast.testing.processes import Lane, Order
from tests.crash import agents, deaths, resolver, tangled
from tests.crash.agents import World
from tests.forkserver import ForkServer

Check = Callable[[Life], object]


def settle_by_looking(url: str, run_id: str) -> None:
    """What a person does who can see the outside world."""
    world = World(Path(url.removeprefix("sqlite:///")).parent)
    resolve(
        url,
        run_id,
        lambda doubt: hf.landed("asked-1") if world.has("asked", doubt.idempotency_key) else hf.not_landed(),
    )


def world_of(life: Life) -> World:
    return World(life.folder)


def once(what: str, *values: object) -> Check:
    def check(life: Life) -> None:
        found = world_of(life).values(what)
        assert sorted(map(str, found)) == sorted(map(str, values)), f"{what}: {found}"

    return check


def repeated_under_one_key(life: Life) -> None:
    keys = {key for what, _, key in world_of(life).deeds() if what == "retried"}
    assert len(keys) == 1


def done_or_taken_back(life: Life) -> None:
    did, took_back = (world_of(life).values(what) for what in ("undone", "undo-undone"))
    assert len(did) <= 1
    if life.result[1] == "taken back":
        assert took_back
    else:
        assert (len(did), len(took_back)) == (1, 0)
    assert world_of(life).values("post") == [1]


def done_or_reported(life: Life) -> None:
    assert len(world_of(life).values("failing")) <= 1
    if life.status is hf.Status.failed:
        assert isinstance(life.error, hf.EffectInDoubt)


def all_taken_back(life: Life) -> None:
    assert life.status is hf.Status.failed
    booked, cancelled = (world_of(life).values(what) for what in ("book", "cancel"))
    assert booked == ["flight to Rome", "car in Rome"]
    assert list(dict.fromkeys(cancelled)) == ["car in Rome", "flight to Rome"]


def reported_once_each(life: Life) -> None:
    reports = world_of(life).deeds()
    assert len(reports) == len({key for _, _, key in reports}) == 3, reports


def not_cut_short(life: Life) -> None:
    for what, values in (("slow", [1, 2]), ("post", [1])):
        once(what, *values)(life)


def kept_or_released(life: Life) -> None:
    assert life.result == ["kept", "released", "kept", "released"]
    reserved, released = (world_of(life).values(what) for what in ("reserve", "release"))
    assert sorted(map(int, map(str, reserved))) == [0, 1, 2, 3, 100, 101, 102, 103]
    assert {int(str(each)) for each in released} == {1, 3, 101, 103}


def the_same_values(life: Life) -> None:
    first, second = world_of(life).values("report")
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert first[:2] == second[:2]
    for what in ("did", "post"):
        once(what, 1)(life)


def both_happened(life: Life) -> None:
    once("post", 1, 300)(life)


CASES: dict[str, tuple[hf.Call[Any], Check]] = {
    "steps and effects": (agents.sequence(1), once("post", 0)),
    "on_doubt ask": (agents.asks(1), once("asked", 1)),
    "on_doubt retry": (agents.retries(1), repeated_under_one_key),
    "on_doubt undo": (agents.undoes(1), done_or_taken_back),
    "on_doubt fail": (agents.fails(1), done_or_reported),
    "saga": (agents.trip("Rome"), all_taken_back),
    "branches": (agents.fan(3), once("post", 0, 1, 2)),
    "child run": (agents.parent(1), once("post", 1, 100, 200)),
    "started run": (agents.starts(1), both_happened),
    "race": (agents.racer(1), once("post", 1)),
    "timeout": (agents.timed(1), once("post", 1)),
    "repeated attempts": (agents.stubborn(1), once("flaky", 1)),
    "order of branches": (tangled.crowd(3), reported_once_each),
    "effects raced and timed out": (tangled.impatient(1), not_cut_short),
    "sagas in branches": (tangled.journeys(4), kept_or_released),
    "values, keys and postponed attempts": (tangled.mixed(1), the_same_values),
    "large values": (agents.large("x" * 20_000), once("publish", 120_000)),
}

#: Their points are many and much alike; `make prove` takes all of them, of all agents.
LONG = [["effect.after_body@2", "append.before_commit@3", "undo.after@1"], ["append.after_commit@5", "undo.after@2"]]
#: What every agent passes: every third one is killed at a third of it, by turns.
COMMON = """
    start.before_commit@1 step.before_body@1 append.before_commit@1 append.after_commit@1
    start.after_commit@1 step.after_body@1 append.before_commit@3 append.after_commit@4
    step.before_body@2 append.before_commit@2 append.after_commit@2 finish.*
""".strip().splitlines()
#: Of effects, each is killed at a third of them, by turns.
EFFECTS = [
    ["effect.before_intent@1", "effect.after_body@2"],
    ["effect.after_intent@1", "effect.after_outcome@1"],
    ["effect.after_body@1"],
]
OWN = ["settle.*@1", "undo.*@1", "child.*@1"]


def points_of(name: str) -> list[str] | None:
    turn = list(CASES).index(name)
    if turn == 0:
        return None
    if CASES[name][0].agent in vars(tangled).values():
        return LONG[turn % 2]
    return OWN + EFFECTS[turn % 3] + ([] if turn % 3 else COMMON[turn // 3 % len(COMMON)].split())


killed_at: dict[str, frozenset[str]] = {}


@pytest.mark.parametrize("name", CASES)
def test_a_killed_agent_comes_to_the_same_end(name: str) -> None:
    call, check = CASES[name]
    survival = assert_survives(call, drive=settle_by_looking, check=check, points=points_of(name))
    print(survival)
    killed_at[name] = survival.killed_at


@pytest.mark.prove
@pytest.mark.parametrize("name", CASES)
def test_an_agent_killed_again_and_again_comes_to_the_same_end(name: str) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print(f"SEED={seed} python -m pytest -m prove {Path(__file__).name} -k '{name}'")
    call, check = CASES[name]
    print(assert_survives(call, drive=settle_by_looking, check=check, rounds=150, seed=seed))


def test_a_run_in_a_store_with_others_survives_as_well(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    survival = assert_survives(agents.sequence(1), url=url, points=["effect.*"], check=once("post", 0))
    assert survival.kills >= 4
    survival = assert_survives(agents.sequence(1), url=url, points=["effect.after_body"], check=once("post", 0))
    assert survival.kills >= 1, "the runs of another sweep are not taken for its own"


def test_an_agent_killed_on_postgresql_comes_to_the_same_end(postgres_url: str) -> None:
    points = ["effect.after_body"]
    survival = assert_survives(agents.sequence(1), url=postgres_url, points=points, check=once("post", 0))
    print(survival)
    assert survival.kills >= 1


#: Where lives share a store, a process cares for one run: nobody executes children, and people see all doubts.
NOT_SHARED = {"on_doubt ask", "child run", "started run"}


@pytest.mark.prove
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_SHARED])
def test_every_agent_killed_on_postgresql_comes_to_the_same_end(name: str, postgres_url: str) -> None:
    call, check = CASES[name]
    survival = assert_survives(
        call, url=postgres_url, drive=settle_by_looking, check=check, points=points_of(name) or OWN + EFFECTS[0]
    )
    print(survival)


def test_a_verdict_is_stored_or_not_when_its_process_is_killed(tmp_path: Path, forkserver: ForkServer) -> None:
    """The process of the person who resolves is killed at each of its points; the effect is settled once."""
    url, log = str(tmp_path / "store.db"), tmp_path / "log.txt"
    environ = {"HOLDFAST_LEDGER": str(tmp_path / "ledger.jsonl"), "HOLDFAST_TEST_FOLDER": str(tmp_path)}

    def go_on(fault: str = "") -> int:
        env = environ | {"HOLDFAST_FAULT": fault}
        return lane.run(Order(agents.__file__, "asks", f"r{runs}", url, agents.asks(1).input.text, env, log), 30)

    def person(fault: str = "") -> int:
        return forkserver.start(resolver.look_and_resolve, log=log, fault=fault, url=url, run_id=f"r{runs}").wait(30)

    runs = 0
    with Lane() as lane:
        for name in ("send.before_commit", "send.after_commit"):
            died, n = True, 0
            while died:
                runs, n = runs + 1, n + 1
                assert go_on("effect.after_body:kill@1") == -9
                assert go_on() == 0
                died = person(f"{name}:kill@{n}") == -9
                assert person() == 0
                assert go_on() == 0
            assert n > 1, name
    assert len(World(tmp_path).values("asked")) == runs
    assert check_history(url, Ledger(environ["HOLDFAST_LEDGER"])) == []
    killed_at["resolve"] = frozenset({"send.before_commit", "send.after_commit"})


def test_every_crash_point_there_is_was_one_where_a_process_died() -> None:
    if killed_at.keys() < {*CASES, "resolve"}:
        pytest.skip(f"only {len(killed_at)} of {len(CASES) + 1} sweeps ran in this session")
    here = frozenset().union(*killed_at.values())
    assert faults.POINTS.keys() - here - deaths.WAITING - deaths.ELSEWHERE.keys() == set()


def test_points_that_are_left_to_other_files_are_named_there() -> None:
    assert deaths.WAITING | deaths.ELSEWHERE.keys() <= faults.POINTS.keys()
    for point, file in deaths.ELSEWHERE.items():
        assert point in (Path(__file__).parents[1] / file).read_text(), f"{point} is not in {file}"
