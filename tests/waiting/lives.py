"""A run is lived again and again, its worker killed at another crash point each time, with somebody who acts on it.

`holdfast.testing.assert_survives` does that for agents that need nobody. Here a coroutine does from outside what people
do (send, answer, cancel), while whoever dies is replaced; it must come to the same end in every life.
"""

from __future__ import annotations

import asyncio
import fnmatch
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from tests.nursery import Nursery
from tests.waiting.place import Place

Drive = Callable[[Place, Holdfast], Awaitable[Any]]

AT_ONCE = 4
LONGEST_S = 60


@dataclass
class Lives:
    """What came of them."""

    end: Any = None  #: what the drive returned when nobody was killed
    killed_at: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{len(self.killed_at)} kills ({', '.join(sorted(set(self.killed_at)))})"


def points(trace: Path) -> list[str]:
    """The crash points in a trace, each with how often it was passed by then."""
    times: Counter[str] = Counter()
    found = []
    for name in trace.read_text().split():
        times[name] += 1
        found.append(f"{name}@{times[name]}")
    return found


def live(folder: Path, nursery: Nursery, drive: Drive, *, only: Sequence[str] = ("*",), most: int = 1000) -> Lives:
    """Drive a run once without a fault, then once for each crash point that its worker passed, killed there.

    `only` picks points by name or pattern, `most` of them evenly. Fails if a life comes to another end.
    """
    lives = Lives()

    async def all_of_them() -> None:
        trace = folder / "trace"
        lives.end = await one_life(Place(folder / "undisturbed", nursery), drive, fault="", trace=trace)
        passed = [p for p in points(trace) if any(fnmatch.fnmatch(p, w) or p.partition("@")[0] == w for w in only)]
        assert passed, f"none of {only} was passed: {points(trace)}"
        step = max(1, -(-len(passed) // most))
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, point: str) -> None:
            async with at_once:
                # In a thread: a database takes a while to make, and nobody is to be late in the other lives.
                place = await asyncio.to_thread(Place, folder / f"life-{number}", nursery)
                name, _, count = point.partition("@")
                try:
                    end = await one_life(place, drive, fault=f"{name}:kill@{count}", on_kill=lives.killed_at.append)
                except Exception:
                    log = place.log.read_text()[-2000:] if place.log.exists() else ""
                    lives.problems.append(f"killed at {point}: {traceback.format_exc()[-1500:]}\n{log}")
                    return
                if end != lives.end:
                    lives.problems.append(f"killed at {point}: {end}, without a crash {lives.end}")

        await asyncio.gather(*(one(number, point) for number, point in enumerate(passed[::step])))

    asyncio.run(all_of_them())
    assert not lives.problems, f"{len(lives.problems)} lives went wrong:\n" + "\n".join(lives.problems[:4])
    return lives


async def one_life(
    place: Place,
    drive: Drive,
    *,
    fault: str,
    trace: Path | None = None,
    on_kill: Callable[[str], None] = lambda _: None,
) -> Any:
    """Drive a run whose first worker has a fault; it is replaced when it dies."""
    with place:
        first = place.worker(fault=fault, trace=trace)

        async def replace() -> None:
            assert await first.wait_dead(LONGEST_S) == -9
            on_kill(fault.partition(":")[0])
            place.worker()

        replacing = asyncio.create_task(replace())
        try:
            async with asyncio.timeout(LONGEST_S), place.client() as app:
                return await drive(place, app)
        finally:
            replacing.cancel()
