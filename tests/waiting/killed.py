"""A run is lived again and again, its worker killed at another crash point each time, with somebody who acts on it.

`holdfast.testing.assert_survives` does that for agents that need nobody. Here a coroutine does from outside what people
do (send, answer, cancel), while whoever dies is replaced; it must come to the same end in every life. A life in which
nobody was killed proves nothing: it is lived again, and in the end reported.
"""

from __future__ import annotations

import asyncio
import fnmatch
import signal
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from tests.forkserver import Forked, ForkServer
from tests.waiting.scene import Scene

Drive = Callable[[Scene, Holdfast], Awaitable[Any]]

AT_ONCE = 4
LONGEST_S = 60
TRIES = 3


@dataclass
class KilledLives:
    """What came of a run that was killed in many lives, at another point in each."""

    end: Any = None  #: what the drive returned when nobody was killed
    killed_at: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  #: points that no life came by any more

    def __str__(self) -> str:
        return f"{len(self.killed_at)} kills ({', '.join(sorted(set(self.killed_at)))})"


def points(trace: Path) -> list[str]:
    """The crash points in a trace, each with how often it was passed by then."""
    times: Counter[str] = Counter()
    found = []
    for name in names(trace):
        times[name] += 1
        found.append(f"{name}@{times[name]}")
    return found


def names(trace: Path) -> list[str]:
    return trace.read_text().split()


def live(
    folder: Path, forkserver: ForkServer, drive: Drive, *, only: Sequence[str] = ("*",), most: int = 1000
) -> KilledLives:
    """Drive a run once without a fault, then once for each crash point that its worker passed, killed there.

    `only` picks points by name or pattern, `most` of them evenly. Fails if a life comes to another end, or if nobody
    can be killed at a point. Where it is passed less often than before, as commits are, the last time is taken.
    """
    lives = KilledLives()

    async def all_of_them() -> None:
        trace = folder / "trace"
        lives.end = await one_life(Scene(folder / "undisturbed", forkserver), drive, fault="", trace=trace)
        passed = [p for p in points(trace) if any(fnmatch.fnmatch(p, w) or p.partition("@")[0] == w for w in only)]
        assert passed, f"none of {only} was passed: {points(trace)}"
        step = max(1, -(-len(passed) // most))
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, point: str) -> None:
            name, _, count = point.partition("@")
            at, before = int(count), len(lives.problems)
            for again in range(TRIES):
                trace = folder / f"trace-{number}-{again}"
                async with at_once:
                    # In a thread: a database takes a while to make, and nobody is to be late in the other lives.
                    scene = await asyncio.to_thread(Scene, folder / f"life-{number}-{again}", forkserver)
                    is_killed = await killed(scene, f"{name}:kill@{at}", trace)
                if is_killed or len(lives.problems) > before:
                    return
                at = min(at, names(trace).count(name) or at)
            lives.missed.append(point)

        async def killed(scene: Scene, fault: str, trace: Path) -> bool:
            point = fault.replace(":kill", "")
            deaths: list[str] = []
            try:
                end = await one_life(scene, drive, fault=fault, trace=trace, on_kill=deaths.append)
            except Exception:
                log = scene.log.read_text()[-2000:] if scene.log.exists() else ""
                lives.problems.append(f"killed at {point}: {traceback.format_exc()[-1500:]}\n{log}")
                return True
            if end != lives.end:
                lives.problems.append(f"killed at {point}: {end}, without a crash {lives.end}")
            lives.killed_at += deaths
            return bool(deaths)

        await asyncio.gather(*(one(number, point) for number, point in enumerate(passed[::step])))

    asyncio.run(all_of_them())
    assert not lives.problems, f"{len(lives.problems)} lives went wrong:\n" + "\n".join(lives.problems[:4])
    most = (len(lives.killed_at) + len(lives.missed)) // 5  # whether a run parks, for one, depends on the others
    assert len(lives.missed) <= most, f"nobody was killed at {lives.missed}, in {TRIES} lives each"
    return lives


async def one_life(
    scene: Scene,
    drive: Drive,
    *,
    fault: str,
    trace: Path | None = None,
    on_kill: Callable[[str], None] = lambda _: None,
) -> Any:
    """Drive a run whose first worker has a fault; it is replaced when it dies."""
    with scene:
        first = scene.worker(fault=fault, trace=trace)
        replaced: list[Forked] = []

        async def replace() -> None:
            assert await first.wait_dead(LONGEST_S) == -9
            replaced.append(scene.worker())

        replacing = asyncio.create_task(replace())
        try:
            async with asyncio.timeout(LONGEST_S), scene.client() as app:
                end = await drive(scene, app)
        finally:
            replacing.cancel()
            await asyncio.wait({replacing})
        if not replaced:
            first.send(signal.SIGTERM)  # what it passes after the end, it passes now
        if await first.wait_dead(LONGEST_S) == -9:
            on_kill(fault.partition(":")[0])
        return end
