"""A worker whose clock is set by the test while it works, and its agents."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import holdfast as hf
from holdfast.base import clock

DAY_US = 86_400_000_000


@hf.step
async def mark(name: str) -> None:
    with (Path(os.environ["HOLDFAST_TEST_FOLDER"]) / name).open("a") as file:
        file.write(".")


@hf.agent
async def ticks() -> None:
    await mark("ticks")


@hf.agent(queue="rated")
async def rated() -> None:
    await mark("rated")


@hf.agent
async def naps() -> None:
    await hf.sleep(days=3)
    await mark("naps")


AGENTS = [ticks, rated, naps]


def work(url: str, folder: str) -> None:
    """Be a worker; the file `days` says by how many days the clock of the machine is ahead."""
    logging.basicConfig(level="INFO", format="%(message)s")

    async def follow() -> None:
        days = 0
        while True:
            wanted = int((Path(folder) / "days").read_text() or days)
            if wanted != days:
                clock.jump_us((wanted - days) * DAY_US)
                days = wanted
            await asyncio.sleep(0.01)

    async def main() -> None:
        setting = asyncio.create_task(follow())
        async with hf.connect(url, agents=AGENTS, settings=hf.Settings(sweep_s=0.1)) as app:
            await app.work()
        setting.cancel()

    asyncio.run(main())
