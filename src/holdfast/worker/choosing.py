"""Which of the runs that are ready to claim, and in which order: fair between keys and queues. Nothing here looks at a
store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from holdfast.model import UNBEGUN, Limit, RunRow
from holdfast.store.lines import place
from holdfast.worker.queue_state import QueueState, permits_left


def is_start(row: RunRow) -> bool:
    """Whether claiming the run starts it; else it goes on after a wait."""
    return row.head_seq <= 1 or bool(row.summary.get(UNBEGUN))


def choose(
    ready: Sequence[RunRow], *, states: Mapping[str, QueueState], slots: int, now: int, cursor: str
) -> list[RunRow]:
    """The runs to claim, at most `slots`, in the order to claim them.

    Fair between keys: the first of each queue and key, then the second of each, and so on, beginning behind `cursor`
    (see `next_cursor`); among those of one turn, higher priorities go first. Within a key: by priority, then those that
    go on after a wait, then the ones that have been ready for longest.

    A paused or held queue keeps back all of its runs: those that have not started, and those whose wait is over. (Runs
    under way are not touched.) A rate keeps back starts only: a run that goes on needs no permit.

    Not more are chosen from a queue than it could take if nothing else ran: so one that is full does not use up the
    slots of others. For that, `ready` has to hold more than `slots` runs, some of each queue, and none of those that
    are known to be closed: see `closed`.

    Example: `choose(await store.ready(...), states=await queues.load(), slots=4, now=now, cursor="")`
    """
    lines: dict[tuple[str, str], list[RunRow]] = {}
    for row in ready:
        state = states.get(row.queue)
        if state is None or state.is_open(now):
            lines.setdefault((row.queue_key, row.queue), []).append(row)
    for line in lines.values():
        line.sort(key=lambda row: (-row.priority, is_start(row), row.wake_at or 0, row.created_at, row.id))
    order = sorted(lines, key=lambda key: (place(*key) <= cursor, key))
    left = _Room(states, now)
    chosen: list[RunRow] = []
    turn = 0
    while len(chosen) < slots and order:
        order = [key for key in order if len(lines[key]) > turn]
        heads = sorted((lines[key][turn] for key in order), key=lambda row: -row.priority)
        chosen += [row for row in heads if left.take(row)]
        turn += 1
    return chosen[: max(slots, 0)]


def closed(states: Mapping[str, QueueState], now: int) -> list[str]:
    """The queues that let nobody go. They are not even looked at: however many there are, they hide no other.

    Example: `await store.ready(..., closed=closed(states, now))`
    """
    return [name for name, state in states.items() if not state.is_open(now)]


class _Room:
    """What each queue, and each key in it, can take at most."""

    def __init__(self, states: Mapping[str, QueueState], now: int) -> None:
        self._states = states
        self._now = now
        self._taken: Counter[str] = Counter()
        self._by_key: Counter[tuple[str, str]] = Counter()
        self._starts: Counter[str] = Counter()

    def take(self, row: RunRow) -> bool:
        state = self._states.get(row.queue)
        if state is None:
            return True
        key = (row.queue, row.queue_key)
        if state.concurrency is not None and self._taken[row.queue] >= state.concurrency:
            return False
        if state.per_key is not None and self._by_key[key] >= state.per_key:
            return False
        if state.rate is not None and is_start(row):
            if self._starts[row.queue] >= permits_left(state, self._now):
                return False
            self._starts[row.queue] += 1
        self._taken[row.queue] += 1
        self._by_key[key] += 1
        return True


def next_cursor(chosen: Sequence[RunRow], cursor: str, ready: Sequence[RunRow] = ()) -> str:
    """Where to begin next time: behind the last one chosen. `Store.ready(after=…)` takes it as well.

    If none was, behind the last one that was ready: a closed queue must not be all that is ever looked at.

    Example: `cursor = next_cursor(chosen, cursor, ready)`
    """
    last = chosen or ready
    return place(last[-1].queue_key, last[-1].queue) if last else cursor


def limits(states: Mapping[str, QueueState]) -> dict[str, Limit]:
    """What `Store.claim_many` has to count.

    Example: `await store.claim_many(claims, owner=worker, limits=limits(states))`
    """
    return {
        name: Limit(state.concurrency, state.per_key)
        for name, state in states.items()
        if state.concurrency is not None or state.per_key is not None
    }


def starts(rows: Iterable[RunRow]) -> dict[str, int]:
    """How many permits runs need, by queue.

    Example: `granted = await queues.reserve(starts(chosen), now)`
    """
    return dict(Counter(row.queue for row in rows if is_start(row)))


def permitted(rows: Iterable[RunRow], granted: Mapping[str, int]) -> list[RunRow]:
    """The runs that may be claimed with the permits granted, in the same order.

    Example: `chosen = permitted(chosen, granted)`
    """
    used: Counter[str] = Counter()
    kept: list[RunRow] = []
    for row in rows:
        if is_start(row):
            if used[row.queue] >= granted.get(row.queue, 0):
                continue
            used[row.queue] += 1
        kept.append(row)
    return kept
