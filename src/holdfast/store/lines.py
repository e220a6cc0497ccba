"""Runs in groups: whose turn it is among those that wait in line, and who is loaded together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from holdfast.model import RunRow


def evenly(line: Iterable[Sequence[str]], after: str, limit: int) -> list[str]:
    """Of (queue, key, id), each key's in order: the first of each key, then the second of each, and so on.

    Keys come in order from behind `after` on; those up to it come last. Queues take turns, so that one which can take
    no more does not hide the others.
    """
    lines: dict[str, list[tuple[int, bool, str, str]]] = defaultdict(list)
    ranks: dict[tuple[str, str], int] = defaultdict(int)
    for queue, key, run_id in line:
        lines[queue].append((ranks[queue, key], key <= after, key, run_id))
        ranks[queue, key] += 1
    turns = [
        (turn, queue, run_id) for queue, own in lines.items() for turn, (*_, run_id) in enumerate(sorted(own)[:limit])
    ]
    return [run_id for *_, run_id in sorted(turns)[:limit]]


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
