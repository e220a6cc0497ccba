"""A queue's limits hold for all workers together, whoever is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.testing import Ledger, LedgerLine
from tests.forkserver import ForkServer
from tests.programs.driver import Lane, Plan, run_batch
from tests.programs.trees import Node
from tests.programs.workers import Process

LANE = Lane("lane", concurrency=3, per_key=1, keys=5)


def spans(lines: Sequence[LedgerLine], processes: Sequence[Process]) -> list[tuple[int, int, str]]:
    """From when to when each body ran, and for which run. One that was killed ended no later than its process."""
    begun: dict[tuple[int, str, str, int], int] = {}
    found: list[tuple[int, int, str]] = []
    for line in lines:
        call = (line.pid, line.run, line.key, line.attempt)
        if line.what == "begin":
            begun[call] = line.at
        else:
            found.append((begun.pop(call), line.at, line.run))
    for (pid, run, _, _), at in begun.items():
        died = next(each.died for each in reversed(processes) if each.pid == pid and each.born <= at)
        assert died is not None, f"a body of {run} in process {pid} began and never ended"
        found.append((at, max(at, died), run))
    return found


def most_at_once(found: Sequence[tuple[int, int, str]], group: Mapping[str, str]) -> Counter[str]:
    """How many runs of each group were at work at the same time, at most."""
    moments = sorted([(at, 1, run) for at, _, run in found] + [(at, 0, run) for _, at, run in found])
    at_work: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for _, is_begin, run in moments:
        at_work[run] += 1 if is_begin else -1
        busy = Counter(group[each] for each, bodies in at_work.items() if bodies > 0)
        for name, count in busy.items():
            most[name] = max(most[name], count)
    return most


def test_the_measure_sees_runs_that_overlap() -> None:
    found = [(1, 5, "a"), (2, 3, "a"), (4, 6, "b"), (5, 7, "c"), (8, 9, "b")]
    assert most_at_once(found, {"a": "x", "b": "x", "c": "x"}) == {"x": 2}
    assert most_at_once(found, {"a": "x", "b": "y", "c": "x"}) == {"x": 1, "y": 1}


def test_no_more_runs_than_a_queue_allows_are_at_work_at_once(tmp_path: Path, forkserver: ForkServer) -> None:
    """The lease is long here: a worker is taken for dead only when it is, so nobody acts late."""
    trees = [
        Node(
            "seq",
            f"lane-{n}",
            parts=tuple(Node(kind, f"lane-{n}.{m}", n=20) for m, kind in enumerate(["slow", "sleep", "slow", "step"])),
        )
        for n in range(30)
    ]
    batch = run_batch(tmp_path, forkserver, trees, seed="lane", plan=Plan(aims=0.0, most_s=15, lease_s=30.0, lane=LANE))
    batch.assert_well()
    assert batch.kills >= 5
    found = spans(Ledger(tmp_path / "ledger.jsonl").lines(), batch.processes)
    most = most_at_once(found, {tree.at: "lane" for tree in trees})["lane"]
    assert most <= LANE.concurrency
    assert most > 1, "runs of different keys do run at the same time"
    by_key = most_at_once(found, {tree.at: f"k{n % LANE.keys}" for n, tree in enumerate(trees)})
    assert set(by_key.values()) <= {LANE.per_key}, by_key
