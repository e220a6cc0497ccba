"""A program whose calls are cut off by a time limit, and which is killed, edited and started again.

`python program.py URL LIFE LIMIT EDITED`: LIMIT says where the limit comes from, EDITED is `same` if it stays. The
world is the file next to the store.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, cast

import holdfast as hf
from limits import limited as limited_by_a_helper  # type: ignore[import-not-found]

URL, LIFE, LIMIT, EDITED = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
WORLD = Path(URL).with_name("world.txt")


async def limited_here(call: Awaitable[Any]) -> Any:
    async with hf.timeout(0.3):
        return await call


def limited(call: Awaitable[Any]) -> Awaitable[Any]:
    match LIMIT:
        case "agent's module":
            return limited_here(call)
        case "helper":
            return cast("Awaitable[Any]", limited_by_a_helper(call))
    unseen = importlib.import_module("un" + "seen")
    return cast("Awaitable[Any]", unseen.limited(call))


def act(what: str) -> None:
    with WORLD.open("a") as world:
        world.write(f"{LIFE} {what}\n")


@hf.step
async def slow(what: str) -> str:
    act(what)
    if LIFE == 1:
        await asyncio.sleep(3600)
    return "step"


@hf.step
async def tell(asked: hf.Asked) -> None:
    act("ask")


@hf.effect
async def pay(what: str) -> str:
    act(what)
    await asyncio.sleep(0.6)
    return "paid"


@hf.agent
async def helper() -> str:
    return await hf.receive(("never", str))


@hf.agent
async def napper() -> str:
    await hf.sleep(1.2)
    return "slept"


async def _step() -> Any:
    return await limited(slow("step"))


async def _effect() -> Any:
    return await limited(pay("effect"))


async def _sleep() -> Any:
    return await limited(hf.sleep(1.5))


async def _receive() -> Any:
    return await limited(hf.receive(("word", str)))


async def _ask() -> Any:
    return await limited(hf.ask("Well?", notify=tell))


async def _child() -> Any:
    return await limited(helper())


async def _result() -> Any:
    other = await hf.start(napper())
    return await limited(other.result())


async def _race() -> Any:
    return await limited(hf.race(slow("race"), hf.receive(("never", str))))


async def _timeout() -> Any:
    async with hf.timeout(3600):
        return await limited(slow("timeout"))


async def _branches() -> Any:
    return await limited(asyncio.gather(slow("branches"), hf.sleep(1.5)))


async def _beside() -> Any:
    """Beside a wait that was open when the limit came, and that ends when the step has been made."""
    others = [asyncio.create_task(hf.receive((name, str))) for name in ("on", "later")]
    try:
        return await limited(slow("beside"))
    finally:
        await asyncio.gather(*others)


async def _plain() -> Any:
    """The code's own timer is what cuts it off, in every version."""
    async with asyncio.timeout(2.5):
        return await slow("plain")


async def _outside() -> Any:
    """Cut off after something outside, in every version."""
    task = asyncio.create_task(slow("outside"))
    await asyncio.to_thread(time.sleep, 2)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        raise TimeoutError from None


CALLS = {
    call.__name__.strip("_"): call
    for call in (
        *(_step, _effect, _sleep, _receive, _ask, _child, _result, _race, _timeout, _branches, _beside),
        *(_plain, _outside),
    )
}


@hf.agent
async def main(what: str) -> str:
    try:
        got = await CALLS[what]()
    except TimeoutError:
        got = "cut off"
    await hf.receive(("on", str))
    return f"{got}, {await hf.receive(('go', str))}"


async def wait_all(runs: dict[str, hf.Run[Any]]) -> None:
    """Have each go on, until it waits for `go`, or cannot."""
    for run in runs.values():
        await run.send("on", "on", dedup="on")
    await runs["beside"].send("on", "on", dedup="on again")
    for what, run in runs.items():
        while True:
            info = await run.info()
            names = [wait.get("name") for wait in (info.reason or {}).get("waits", [])]
            if info.status == "blocked" or (info.status == "waiting" and names == ["go"]):
                break
            if what == "receive" and "word" in names:
                await run.send("word", "word", dedup="once")
            if what == "beside" and (EDITED == "same" or f"{LIFE} beside" in WORLD.read_text()):
                await run.send("later", "later", dedup="once")
            for question in await run.questions():
                await question.answer(True)
            await asyncio.sleep(0.02)


async def live() -> None:
    settings = hf.Settings(sweep_s=0.1)
    async with hf.connect(URL, agents=[main, helper, napper], settings=settings) as app:
        runs = {what: await app.start(main(what), id=what) for what in CALLS}
        if LIFE == 1:
            await wait_first(app, runs)
        else:
            await wait_all(runs)
        if LIFE < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        told: dict[str, Any] = {}
        for what, run in runs.items():
            if await run.status() == "blocked":
                told[what] = (await run.info()).reason
            else:
                await run.send("go", "went")
                told[what] = await run.result(timeout=60)
        print(json.dumps(told))


async def wait_first(app: hf.Holdfast, runs: dict[str, hf.Run[Any]]) -> None:
    """Until each was cut off, which the journal says."""
    for run in runs.values():
        while not any(wait.get("name") == "on" for wait in ((await run.info()).reason or {}).get("waits", [])):
            if run.id == "beside" and any(r.kind == "cancelled" for r in await app._store.records(run.id)):
                break
            await asyncio.sleep(0.02)


logging.basicConfig(level=logging.WARNING, format="%(message)s")
asyncio.run(live())
