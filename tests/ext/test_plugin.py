"""The pytest plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.testing.processes import environment

TESTS = """
import asyncio
import holdfast as hf

@hf.step
async def twice(n: int) -> int:
    return 2 * n

@hf.agent
async def sleeper(n: int) -> int:
    await hf.sleep(days=7)
    return await twice(n)

@hf.agent
async def quick(n: int) -> int:
    return await twice(n)

def test_a_store_of_its_own(holdfast):
    assert holdfast.run(quick(2), id="r") == 4
    assert holdfast.run(quick(2), id="r") == 4

def test_a_week(holdfast, holdfast_clock):
    async def main() -> int:
        async with holdfast.connect(sleeper) as app:
            async with holdfast_clock(app) as clock:
                run = await app.start(sleeper(3))
                await clock.skip(days=7)
                return await run.result()
    assert asyncio.run(main()) == 6

def test_kills(assert_survives):
    assert assert_survives(quick(2), points=["step.after_body"]).kills
"""


def test_a_test_gets_a_store_a_clock_and_kills(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    # By its entry point; those of others take seconds to load.
    command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "-p", "holdfast", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment({}), check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
