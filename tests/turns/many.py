"""A run of many turns, and what it takes to go on with it: `python -m tests.turns.many URL` prints that as JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time

import holdfast as hf
from holdfast.model import RunId
from tests.eventually import eventually

RUN = "r"
_AT_ONCE = 1000
go = hf.Signal("go", int)
other = hf.Signal("other", int)
begun: list[float] = []  #: CPU time when each turn of this process began


@hf.step
async def before(n: int) -> int:
    return n


@hf.agent(signals=[go, other])
async def counts() -> int:
    await before(1)
    async for state in hf.turns({"n": 0}):
        begun.append(time.process_time())
        state["n"] += 1
        if await hf.receive(go) < 0:
            return state["n"]
    raise AssertionError


async def stands(app: hf.Holdfast, turn: int) -> None:
    """Return when the run waits in this turn, and nobody has it."""

    async def does() -> bool:
        row = await app._store.run(RunId(RUN))
        return row is not None and row.turn == turn and row.owner is None and row.status is hf.Status.waiting

    await eventually(does, timeout=3600)


async def make(url: str, turns: int) -> None:
    """A run that has had so many turns, each with a signal, and three signals that nobody has received."""
    async with hf.connect(url, agents=[counts]) as app:
        run = await app.start(counts(), id=RUN)
        for n in range(3):
            await run.send(other, n)
        done = 0
        while done < turns:
            some = min(_AT_ONCE, turns - done)
            await asyncio.gather(*(run.send(go, n) for n in range(some)))
            done += some
        await stands(app, turns + 1)


async def go_on(url: str, turns: int, times: int) -> dict[str, float]:
    """What it takes to begin with the last turn: CPU in ms, the least of some times; how far memory grows, in MB."""
    took, grown = [], []
    for n in range(times):
        async with hf.connect(url, agents=[counts]) as app:
            begun.clear()
            held, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
            await app.get(RUN).send(go, n)
            await stands(app, turns + 2 + n)
            took.append(begun[0] - began)
            grown.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held)
    return {"ms": 1000 * min(took), "mb": max(grown) / 1024}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(go_on(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
