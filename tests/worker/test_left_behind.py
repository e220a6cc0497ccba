"""What an execution leaves in memory when it is over: nothing that only the garbage collector could find."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing import Clock
from tests.eventually import eventually


@hf.step
async def look(n: int) -> int:
    return n


@hf.agent
async def sleeper(n: int) -> int:
    await look(n)
    await hf.sleep(days=1)
    return await look(n + 1)


@pytest.mark.parametrize("phase", ["parked", "woken"])
def test_an_execution_that_is_over_leaves_no_cycles(phase: str, tmp_path: Path) -> None:
    async def main() -> Counter[str]:
        async with hf.connect(str(tmp_path / "runs.db"), agents=[sleeper]) as app, Clock(app) as clock:
            await app.start(sleeper(0))
            await clock.skip(days=2)  # whatever is made once is made
            runs = [await app.start(sleeper(n)) for n in range(5)] if phase == "woken" else []
            await clock.settle()
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            if phase == "parked":
                runs = [await app.start(sleeper(n)) for n in range(5)]
                await clock.settle()
                assert {await run.status() for run in runs} == {hf.Status.sleeping}
            else:
                await clock.skip(days=2)
                assert {await run.status() for run in runs} == {hf.Status.done}
            await eventually(lambda: not app._here.executions)
            gc.collect()
            return Counter(type(each).__name__ for each in gc.garbage)

    try:
        found = asyncio.run(main())
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not {"Execution", "RunContext", "Journal", "Task"} & found.keys(), found
