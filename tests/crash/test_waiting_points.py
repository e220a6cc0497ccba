"""Runs that wait come to the same end, whoever dies at whichever crash point: their worker, or the person's process."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast as hf
from tests.crash import deaths, waiting
from tests.crash.agents import World
from tests.crash.driving import (
    Act,
    Case,
    ClientCase,
    Driver,
    Forks,
    Sweep,
    few_of_each,
    live_with_clients,
    live_with_workers,
    sweep_all,
)
from tests.crash.person import (
    answer,
    at_once,
    cancel,
    interrupt,
    pause,
    resume,
    send,
    wait_done,
    wait_for,
    wait_until_due,
    wait_world,
)
from tests.crash.waiting import go, number
from tests.forkserver import ForkServer


@pytest.fixture
def forks(forkserver: ForkServer) -> Forks:
    return Forks(forkserver)


def posts(*values: object) -> Callable[[World], None]:
    def check(world: World) -> None:
        found = world.values("post")
        assert sorted(map(str, found)) == sorted(map(str, values)), f"post: {found}"

    return check


def taken_back(*posted: object) -> Callable[[World], None]:
    """Everything that was booked was cancelled, the last one first; an undo may be repeated."""

    def check(world: World) -> None:
        assert world.values("book") == ["flight to Rome", "car in Rome"]
        assert list(dict.fromkeys(world.values("cancel"))) == ["car in Rome", "flight to Rome"]
        posts(*posted)(world)

    return check


def has_posted(n: int) -> Act:
    return wait_world(lambda world: n in world.values("post"))


async def listen(driver: Driver) -> None:
    await driver.app.on("crash.reported", waiting.reports, name="reports")


HELP = [send(number, 7, to="helper"), answer("Help?", True)]

CASES: dict[str, Case] = {
    "sleep": Case(waiting.sleeper(1), [], posts(1, 2)),
    "timeouts around receive": Case(waiting.impatient(1), [send(number, 5)], posts(1, 2)),
    "receive and sleep raced": Case(waiting.racer(1), [send(number, 5), send(number, 6)], posts(1)),
    "signals waited for": Case(waiting.collector(2), [send(number, 5), send(number, 6), send(go, True)], posts(1, 3)),
    "signals sent early": Case(
        waiting.collector(2), [send(s, v, late=False) for s, v in ((go, True), (number, 5), (number, 6))], posts(1, 3)
    ),
    "branches with questions": Case(
        waiting.gatherer(2),
        [answer("Branch 1?", True, late=True), answer("Branch 0?", False), send(number, 5)],
        posts(0, 1),
    ),
    "questions": Case(
        waiting.asker(1),
        [
            answer("Which colour?", "blue", late=True),
            answer("Post it?", True, by="grace", note="fine"),
            answer("Really?", None, late=True),
            answer("What to write?", "Dear Ada", late=True),
        ],
        posts(1),
    ),
    "questions that nobody answers": Case(waiting.hesitant(1), [send(go, True)], posts(1, 2)),
    "a child that waits": Case(waiting.boss(1), HELP, posts(1, 7, 2)),
    "a saga cancelled while it waits": Case(waiting.traveller("Rome"), [wait_for("never"), cancel()], taken_back()),
    "a saga cancelled while it works": Case(
        waiting.busy_traveller("Rome"),
        [wait_world(lambda world: len(world.values("book")) == 2), cancel()],
        taken_back(9),
    ),
    "a saga cancelled while it is paused": Case(
        waiting.traveller("Rome"), [wait_for("never"), pause, cancel()], taken_back()
    ),
    "a family cancelled": Case(waiting.household(1), [wait_for("question", agent="household"), cancel()], posts(1)),
    "interrupts": Case(
        waiting.attentive(1), [wait_for("go"), interrupt(100), interrupt(101), send(go, True)], posts(1, 100, 101, 2)
    ),
    "interrupts that wait themselves": Case(
        waiting.talkative(5),
        [at_once(interrupt(100), answer("About 100?", True, late=True)), send(number, 5, late=False)],
        posts(100, 101, 5),
    ),
    "paused over the time it sleeps": Case(
        waiting.sleeper(1), [has_posted(1), pause, wait_until_due, resume], posts(1, 2)
    ),
    "paused while its child ends": Case(
        waiting.boss(1), [wait_for("child"), pause, *HELP, wait_done("helper"), resume], posts(1, 7, 2)
    ),
    "paused while it waits": Case(
        waiting.pausable(1), [wait_for("number"), pause, send(number, 5, late=False), resume], posts(1, 2, 3, 4)
    ),
    "paused while it works": Case(
        waiting.pausable(1, 0.15), [send(number, 5, late=False), has_posted(2), pause, resume], posts(1, 2, 3, 4)
    ),
    "a run that sends, cancels and emits": Case(waiting.sender(1), [has_posted(2)], posts(1, 2), prepare=listen),
    "a run that interrupts, pauses, resumes, answers and settles": Case(waiting.meddler(1), [], posts(1, 101, 2)),
    "a reducer": Case(waiting.counter(0), [send("event", 1), send("event", 2, late=False), send("event", 0)], posts()),
}

#: Passed by nearly every run: each case dies at a tenth of them, by turns. `make prove` takes all.
COMMON = (
    "define.before_commit",
    "claim.before_commit",
    "effect.before_intent",
    "effect.after_intent",
    "effect.after_body",
    "effect.after_outcome",
    "append.before_commit",
    "append.after_commit",
    "claim.after_commit",
    "define.after_commit",
    "step.before_body",
    "step.after_body",
    "finish.before",
    "finish.after",
)

killed_at: dict[str, frozenset[str]] = {}


def a_few(turn: int) -> Callable[[list[str]], list[tuple[str, ...]]]:
    """One occurrence of each point, by turns the first and the last."""

    def choose(points: list[str]) -> list[tuple[str, ...]]:
        common = {name for n, name in enumerate(COMMON) if n % 10 == turn % 10}
        some = [p for p in points if p.endswith("@1")] if turn % 2 else few_of_each(points, 1)
        return [(p,) for p in some if (name := p.partition("@")[0]) in common or name not in COMMON]

    return choose


def sweep_workers(
    folder: Path, forks: Forks, case: Case, choose: Callable[[list[str]], list[tuple[str, ...]]]
) -> Sweep:
    sweep = asyncio.run(sweep_all(folder, lambda attempt, plan: live_with_workers(forks, case, attempt, plan), choose))
    print(f"{len(sweep.points)} points, {len(sweep.deaths)} lives, {sweep.kills} kills at {sorted(sweep.killed_at)}")
    sweep.raise_problems()
    return sweep


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_waits_comes_to_the_same_end_wherever_its_worker_dies(
    tmp_path: Path, forks: Forks, name: str
) -> None:
    sweep = sweep_workers(tmp_path, forks, CASES[name], a_few(list(CASES).index(name)))
    killed_at[name] = sweep.killed_at


@pytest.mark.prove
@pytest.mark.parametrize("name", CASES)
def test_a_run_that_waits_comes_to_the_same_end_at_every_single_point(tmp_path: Path, forks: Forks, name: str) -> None:
    sweep_workers(tmp_path, forks, CASES[name], lambda points: [(p,) for p in points])


@pytest.mark.prove
@pytest.mark.parametrize("name", CASES)
def test_a_run_that_waits_survives_one_death_after_the_other(tmp_path: Path, forks: Forks, name: str) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print(f"SEED={seed} python -m pytest -m prove {Path(__file__).name} -k '{name}'")
    chance = random.Random(seed)

    def choose(points: list[str]) -> list[tuple[str, ...]]:
        # A replacement passes fewer points than the first one did: the first occurrences are met again.
        early = [p for p in points if int(p.partition("@")[2]) <= 2]
        return [(chance.choice(points), *chance.choices(early, k=chance.randint(1, 4))) for _ in range(60)]

    sweep_workers(tmp_path, forks, CASES[name], choose)


# the process of the person dies


def several(count: int) -> Act:
    """Other runs of the same agent."""

    async def act(driver: Driver) -> None:
        for n in range(count):
            await driver.app.start(waiting.collector(1), id=f"other-{n}")

    return act


async def all_wait(driver: Driver) -> None:
    async def wait() -> bool:
        return all(run.status is hf.Status.waiting for run in await driver.app.runs(limit=100))

    await driver.until(wait, "all of them wait")


async def send_to_all(driver: Driver) -> None:
    for run in await driver.app.runs(limit=100):
        await driver.app.get(run.id).send(number, 5)
        await driver.app.get(run.id).send(go, True)


def has_runs(count: int) -> Act:
    async def act(driver: Driver) -> None:
        async def look() -> bool:
            return len(await driver.app.runs(limit=100)) == count

        await driver.until(look, f"there are {count} runs")

    return act


async def tell_definitions(driver: Driver) -> None:
    queues = [(each.name, each.concurrency, each.rate, each.paused) for each in await driver.app.queues()]
    schedules = [(each.name, each.cron) for each in await driver.app.schedules()]
    triggers = [(each.name, each.agent) for each in await driver.app.triggers()]
    driver.seen += [[each for each in queues if each[0] == "crash"], schedules, triggers]


def at_least_once(world: World) -> None:
    """An interrupt that is sent again is another one, and it is sent three times at most."""
    found = [int(str(n)) for n in world.values("post")]
    assert [n for n in found if n != 100] == [1, 2], found
    assert 1 <= found.count(100) <= 3, found


def booked(world: World) -> None:
    """What was done stays: nobody asked the code."""
    assert world.values("book") == ["flight to Rome", "car in Rome"]
    assert world.values("cancel") == []


BOOKED = wait_world(lambda world: len(world.values("book")) == 2)
FINISH = [send(number, 5, late=False), send(go, True, late=False)]
REST = [
    answer("Post it?", True),
    answer("Really?", True),
    answer("What to write?", "Dear Ada"),
]

CLIENT_CASES: dict[str, ClientCase] = {
    "start": ClientCase("start", None, [], [send(number, 5, to="collector"), send(go, True, to="collector")], posts(1)),
    "start paused, then resume": ClientCase(
        "start_paused", None, [], [send(number, 5, to="collector"), send(go, True, to="collector")], posts(1)
    ),
    "send": ClientCase("send", waiting.collector(2), [wait_for("number")], [], posts(1, 3)),
    "answer": ClientCase("answer", waiting.asker(1), [wait_for("question")], REST, posts(1)),
    "decline": ClientCase("decline", waiting.asker(1), [wait_for("question")], [], posts()),
    "pause and resume what waits": ClientCase(
        "pause_and_resume", waiting.collector(1), [wait_for("number")], FINISH, posts(1)
    ),
    "pause and resume what works": ClientCase(
        "pause_and_resume",
        waiting.pausable(1, 0.4),
        [send(number, 5, late=False), has_posted(1)],
        [],
        posts(1, 2, 3, 4),
    ),
    "pause and cancel": ClientCase(
        "pause_and_cancel", waiting.traveller("Rome"), [wait_for("never")], [], taken_back()
    ),
    "cancel a family": ClientCase(
        "cancel", waiting.household(1), [wait_for("question", agent="household")], [], posts(1)
    ),
    "cancel a saga that waits": ClientCase("cancel", waiting.traveller("Rome"), [wait_for("never")], [], taken_back()),
    "cancel a saga that works": ClientCase("cancel", waiting.busy_traveller("Rome"), [BOOKED], [], taken_back(9)),
    "kill a family": ClientCase("kill", waiting.household(1), [wait_for("question", agent="household")], [], posts(1)),
    "kill a saga that works": ClientCase("kill", waiting.busy_traveller("Rome"), [BOOKED], [], booked),
    "interrupt": ClientCase(
        "interrupt", waiting.attentive(1), [wait_for("go")], [send(go, True)], at_least_once, is_same=False
    ),
    "pause and resume many": ClientCase(
        "pause_all", waiting.collector(1), [all_wait], [send_to_all], posts(1, 1, 1), prepare=several(2)
    ),
    "cancel many": ClientCase("cancel_all", waiting.collector(1), [all_wait], [], posts(), prepare=several(2)),
    "emit": ClientCase("emit", None, [], [has_posted(7)], posts(7), prepare=listen),
    "declare": ClientCase("declare", None, [], [tell_definitions], posts()),
    "declare and remove": ClientCase("undeclare", None, [], [tell_definitions], posts()),
    "backfill": ClientCase("backfill", None, [], [has_runs(3)], posts()),
}


def sweep_clients(
    folder: Path, forks: Forks, case: ClientCase, is_alone: bool, choose: Callable[[list[str]], list[tuple[str, ...]]]
) -> Sweep:
    sweep = asyncio.run(
        sweep_all(
            folder,
            lambda attempt, plan: live_with_clients(forks, case, attempt, plan, is_alone=is_alone),
            choose,
        )
    )
    print(f"{len(sweep.points)} points, {len(sweep.deaths)} lives, {sweep.kills} kills at {sorted(sweep.killed_at)}")
    sweep.raise_problems()
    return sweep


@pytest.mark.parametrize("name", CLIENT_CASES)
def test_what_a_person_does_is_neither_lost_nor_done_twice_when_the_process_dies(
    tmp_path: Path, forks: Forks, name: str
) -> None:
    """Killed, and done again; by turns with a worker that is there, and with one that died before."""
    is_alone = list(CLIENT_CASES).index(name) % 2 == 0
    sweep = sweep_clients(
        tmp_path, forks, CLIENT_CASES[name], is_alone, lambda points: [(p,) for p in few_of_each(points, 1)]
    )
    killed_at[name] = sweep.killed_at
    assert sweep.kills >= 2


@pytest.mark.prove
@pytest.mark.parametrize("is_alone", [False, True], ids=["a worker is there", "the worker is dead"])
@pytest.mark.parametrize("name", CLIENT_CASES)
def test_what_a_person_does_survives_a_death_at_every_single_point(
    tmp_path: Path, forks: Forks, name: str, is_alone: bool
) -> None:
    """At each point, and then at each point of the repetition."""

    def choose(points: list[str]) -> list[tuple[str, ...]]:
        return [(p,) for p in points] + [(p, q) for p in points for q in few_of_each(points, 1)]

    assert sweep_clients(tmp_path, forks, CLIENT_CASES[name], is_alone, choose).kills >= 2


def test_every_point_that_is_left_to_this_file_was_one_where_a_process_died() -> None:
    if killed_at.keys() < {*CASES, *CLIENT_CASES}:
        pytest.skip(f"only {len(killed_at)} of {len(CASES) + len(CLIENT_CASES)} sweeps ran in this session")
    assert deaths.WAITING - frozenset().union(*killed_at.values()) == set()
