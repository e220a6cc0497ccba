"""A program that puts a large file out, next to a run that has effects all the time, and says what that took."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import holdfast as hf
from holdfast.model import Fence, RunId
from tests.eventually import eventually

took: list[tuple[float, float]] = []  # when an effect ended, and how long it took
STORED: list[str] = []
over = threading.Event()


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@hf.step
async def put_out(path: str) -> hf.Artifact:
    return await hf.artifact("large", path=path)


@hf.agent
async def large(path: str) -> int:
    return (await put_out(path)).size or 0


@hf.effect(on_doubt="retry")
async def tick(number: int) -> int:
    return number


@hf.agent
async def ticking(most: int) -> int:
    for number in range(most):
        began = time.perf_counter()
        await tick(number)
        took.append((time.perf_counter(), time.perf_counter() - began))
        if over.is_set():
            break
        await asyncio.sleep(0.002)
    return len(took)


def watch(peak: list[int]) -> None:
    while not over.wait(0.02):
        peak[0] = max(peak[0], memory())


async def main(url: str, path: str, copy: str, run_id: str, *agents: str) -> dict[str, float]:
    known = [agent for agent in (large, ticking) if agent.name in agents]
    async with hf.connect(url, agents=known) as app:
        put = app._store.put_chunks

        async def counted(run_id: RunId, chunks: Mapping[str, bytes], *, fence: Fence | None) -> None:
            await put(run_id, chunks, fence=fence)
            STORED.extend(chunks)

        app._store.put_chunks = counted  # type: ignore[method-assign]
        other = await app.start(ticking(1_000_000)) if ticking in known else None
        if other is not None:
            await eventually(lambda: len(took) >= 300)
        before, peak = memory(), [0]
        watching = threading.Thread(target=watch, args=(peak,))
        watching.start()
        began = time.perf_counter()
        run = await app.start(large(path), id=run_id)
        await run.result()
        ended = time.perf_counter()
        (artifact,) = [each for each in await run.artifacts(check=False) if each.name == "large"]
        await artifact.save(copy)
        over.set()
        watching.join()
        if other is not None:
            await other.result()
    said = {"stored": len(STORED), "grown": peak[0] - before, "seconds": ended - began}
    if took:
        said["usual_ms"] = 1e3 * statistics.median(each for at, each in took if at < began)
        said["meanwhile_ms"] = 1e3 * statistics.median(each for at, each in took if began < at < ended)
    return said


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
