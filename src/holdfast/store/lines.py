"""Runs in groups: whose turn it is among those that wait in line, and who is loaded together."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from holdfast.model import RunRow

#: Between a key and a queue; sorts before all that a key may contain.
_BETWEEN = "\x1f"


def evenly(line: Iterable[Sequence[str]], after: str, limit: int) -> list[str]:
    """Of (queue, key, id), each key's in order: the first of each key, then the second of each, and so on.

    Keys come in order from behind `after` (a key, or a `place`) on; those up to it come last. Queues take turns, so
    that one which can take no more does not hide the others. Among those whose turn it is the order is that of their
    keys, then of their names, from behind `after` on: however many queues there are, the next one is always the first.
    """
    if after and _BETWEEN not in after:
        after = place(after, chr(sys.maxunicode))
    lines: dict[str, list[tuple[int, bool, str, str]]] = defaultdict(list)
    ranks: dict[tuple[str, str], int] = defaultdict(int)
    for queue, key, run_id in line:
        lines[queue].append((ranks[queue, key], place(key, queue) <= after, key, run_id))
        ranks[queue, key] += 1
    turns = [
        (turn, is_before, key, queue, run_id)
        for queue, own in lines.items()
        for turn, (_, is_before, key, run_id) in enumerate(sorted(own)[:limit])
    ]
    return [run_id for *_, run_id in sorted(turns)[:limit]]


def place(queue_key: str, queue: str) -> str:
    """Where a key of a queue stands in the order of turns, as text to be compared."""
    return f"{queue_key}{_BETWEEN}{queue}"


def few_records(stored: Iterable[RunRow], most: int) -> Iterator[list[RunRow]]:
    """Runs that have at most so many records together, by what their rows say; a long run comes alone."""
    few: list[RunRow] = []
    count = 0
    for row in stored:
        if few and count + row.head_seq > most:
            yield few
            few, count = [], 0
        few.append(row)
        count += row.head_seq
    if few:
        yield few
