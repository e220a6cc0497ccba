"""A run that tells its parent, over a pipe, what it may rely on: `acknowledging.py URL RUN AGENT [N]`.

A line `RUN KEY` on standard output means: whoever reads this was told that the call is on disk. `RUN` alone is the
start, `RUN finished` the end. An effect's body may tell of everything before it: that is what its barrier promises.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import Ledger

ledger = Ledger()


def tell(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())


def happened() -> Path:
    return Path(os.environ["HOLDFAST_TEST_FOLDER"]) / "happened.txt"


@hf.step
async def look(n: int) -> int:
    with ledger.step():
        return n


@hf.effect(settle=0)
async def change(n: int, before: list[str]) -> int:
    with ledger.effect():
        for key in before:
            tell(hf.this_step().run_id, key)
        descriptor = os.open(happened(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, hf.this_step().idempotency_key.encode() + b"\n")
        os.close(descriptor)
        return n


@change.verify
async def find_change(n: int, before: list[str]) -> hf.Verdict[int]:
    path = happened()
    found = path.read_text().split() if path.exists() else []
    return hf.landed(n) if hf.this_step().idempotency_key in found else hf.not_landed()


async def work(n: int) -> int:
    total, before = 0, list[str]()
    for i in range(n):
        total += await look(i)
        before.append(f"look#{i + 1}")
        total += await change(i, before)
        before.append(f"change#{i + 1}")
    return total


@hf.agent
async def inline(n: int) -> int:
    """One branch: effects commit their intents on the event loop's thread."""
    return await work(n)


@hf.agent
async def queued(n: int) -> int:
    """Another branch is alive, so every commit is the writer's."""
    async with hf.timeout(600):
        return await work(n)


@hf.agent
async def ticking(n: int) -> int:
    """As `inline`, with many changes; `main` counts how often the loop comes round meanwhile."""
    return await work(n)


AGENTS: dict[str, hf.Agent[[int], int]] = {"inline": inline, "queued": queued, "ticking": ticking}


async def main(url: str, run_id: str, name: str, n: str = "2") -> Any:
    async with hf.connect(url, agents=AGENTS.values()) as app:
        ticks, possible, is_over = 0, 0, threading.Event()

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        def tick_elsewhere() -> None:
            """How often it is possible on this machine, in a thread that nobody holds up."""
            nonlocal possible
            while not is_over.wait(0.01):
                possible += 1

        ticker, thread = asyncio.create_task(tick()), threading.Thread(target=tick_elsewhere)
        thread.start()
        try:
            run = await app.start(AGENTS[name](int(n)), id=run_id)
            tell(run_id)
            result = await run.result()
            tell(run_id, "finished")
        finally:
            ticker.cancel()
            is_over.set()
            thread.join()
        print(f"ticks {ticks} of {possible}", file=sys.stderr)
        return result


if __name__ == "__main__":
    try:
        print(asyncio.run(main(*sys.argv[1:])), file=sys.stderr)
    except hf.HoldfastError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(4)
