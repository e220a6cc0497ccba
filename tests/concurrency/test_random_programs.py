"""Random concurrent programs, crashed anywhere: they end as they would have, and nobody sees another one's value."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from holdfast.model import Kind, Record
from tests.concurrency import programs
from tests.concurrency.crashes import Crash, Ended, camera, completed, cut, run_here, world_of


def is_plain(seed: int) -> bool:
    """Half of the programs also wait for timers of their own."""
    return seed % 2 == 0


def check_end(seed: int, ended: Ended, world: programs.World) -> None:
    tree = programs.grow(seed, plain=is_plain(seed))
    assert ended.result["total"] == tree.total()
    happened = Counter(world.effects.values())
    acts = [node for node in tree.walk() if node.kind == "act"]
    assert {n.place: happened[n.place] for n in acts if not n.is_optional} == {
        n.place: 1 for n in acts if not n.is_optional
    }
    assert set(happened.values()) <= {1}, "no effect happened twice"
    assert set(happened) <= {n.place for n in acts}
    assert world.repeated == []


def check_resumed(
    seed: int, live: Ended, crash: Crash, before: list[Record], resumed: Ended, world: programs.World
) -> None:
    check_end(seed, resumed, world)
    known = completed(before)
    after = resumed.calls()
    assert {key: after.get(key) for key in known} == known, "completed calls keep their keys and values"
    again = Counter(world.bodies[len(crash.world.bodies) :])
    assert set(again) & set(known.values()) == set(), "no completed body runs again"
    places = {place: key for key, place in live.calls().items()}
    moved = {p: (places[p], k) for k, p in after.items() if p in places and places[p] != k}
    assert moved == {}, "a call has the same key in every execution"
    if not is_plain(seed):
        check_order(seed, live, before, resumed)


def check_order(seed: int, live: Ended, before: list[Record], resumed: Ended) -> None:
    """Who ended before the crash (as far as that is on disk) is seen to end first, in the same order."""
    done = set(completed(before).values())
    kinds = {node.place: node.kind for node in programs.grow(seed, plain=False).walk()}
    for place, order in live.orders.items():
        decided = [each for each in order if f"{each}.end" in done or each in done]
        seen = resumed.orders.get(place, [])
        if kinds[place] not in ("first", "race"):
            assert seen[: len(decided)] == decided, place
        elif len(decided) == len(order):
            assert seen == decided, place


def before(resumed: Ended) -> list[Record]:
    """What was on disk at the crash: everything before the first claim of the worker that went on.

    That worker may have claimed the run again, if it was parked while a child took its time.
    """
    claims = [r for r in resumed.records if r.kind == Kind.claimed]
    first = next(r for r in claims if r.name == claims[-1].name)
    return resumed.records[: first.seq - 1]


def crash_and_resume(seed: int, folder: Path, *, chains: int) -> None:
    """Crash somewhere, resume with other latencies, crash that somewhere, and so on: each time it ends the same way."""
    chance = random.Random(f"crashes {seed}")
    call = programs.program(seed, is_plain(seed))
    backlog = 2 if seed % 5 == 0 else 1000
    world = programs.World(random.Random(f"live {seed}"))
    store = folder / "live" / "holdfast.db"
    store.parent.mkdir()
    with camera(store, lambda n: n > 1 and chance.random() < 0.3) as taken:
        live = run_here(store, call, world, backlog=backlog)
    check_end(seed, live, world)
    for _ in range(chains):
        crashes, crashed = taken.taken, live
        for depth in range(3):
            if not crashes:
                break
            crash = crashes.pop(chance.randrange(len(crashes)))  # resuming uses it up
            after = crash.world.copy()
            after.latency = random.Random(chance.random())
            with camera(crash.store, lambda n: n > 1 and chance.random() < 0.3) as again:
                resumed = run_here(crash.store, call, after, backlog=backlog, is_eager=bool((seed + depth) % 2))
            check_resumed(seed, crashed, crash, before(resumed), resumed, after)
            crashes, crashed = again.taken, resumed


@pytest.mark.parametrize("seed", range(20))
def test_a_crashed_program_ends_as_if_it_had_not_crashed(seed: int, tmp_path: Path) -> None:
    crash_and_resume(seed, tmp_path, chains=2)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(30, 500))
def test_many_crashed_programs_end_as_if_they_had_not_crashed(seed: int, tmp_path: Path) -> None:
    crash_and_resume(seed, tmp_path, chains=2)


@pytest.mark.parametrize("seed", range(1, 31, 2))
def test_a_replay_of_everything_sees_the_same_order(seed: int, tmp_path: Path) -> None:
    call = programs.program(seed, False)
    world = programs.World(random.Random(f"live {seed}"))
    live = run_here(tmp_path / "holdfast.db", call, world)
    last = cut(live, len(live.records) - 1, tmp_path / "last" / "holdfast.db")
    after = world_of(live, len(live.records), world, random.Random(f"resumed {seed}"))
    resumed = run_here(last, call, after)
    assert resumed.result == live.result
    assert set(after.bodies) <= {p for p in after.bodies if ".slow" in p}


def replay_from_every_prefix(seed: int, folder: Path, *, every: int) -> None:
    call = programs.program(seed, is_plain(seed))
    world = programs.World(random.Random(f"live {seed}"), most_s=0.001)
    live = run_here(folder / "holdfast.db", call, world)
    for length in range(2 + seed % every, len(live.records), every):
        after = world_of(live, length, world, random.Random(f"resumed {seed} {length}"))
        after.most_s = 0.001
        resumed = run_here(cut(live, length, folder / str(length) / "holdfast.db"), call, after)
        check_resumed(seed, live, Crash(folder, programs.World()), live.records[:length], resumed, after)


@pytest.mark.parametrize("seed", range(500, 504))
def test_a_run_resumes_from_prefixes_of_its_journal(seed: int, tmp_path: Path) -> None:
    replay_from_every_prefix(seed, tmp_path, every=4)
