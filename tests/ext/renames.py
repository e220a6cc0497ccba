"""A hundred runs of an adapter's agent wait for a person, and the framework gives other names to its coroutines."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import holdfast as hf
from tests.eventually import eventually

RUNS = 100
_PATIENCE_S = 300.0


def rename(packages: Sequence[str], prefix: str) -> int:
    """Have all coroutines of a framework named otherwise; how many there are."""
    found = set(_coroutines(tuple(packages)))
    for each in found:
        each.__name__ = f"{prefix}{each.__name__}"
        each.__qualname__ = f"{prefix}{each.__qualname__}"
    return len(found)


def _coroutines(packages: tuple[str, ...]) -> Iterator[FunctionType]:
    for name, module in list(sys.modules.items()):
        if name.startswith(packages) and not name.startswith(("agents.testing", "holdfast")):
            for each in list(vars(module).values()):
                members = list(vars(each).values()) if inspect.isclass(each) else [each]
                for member in members:
                    fn = getattr(member, "__func__", member)
                    if inspect.iscoroutinefunction(fn) and fn.__module__.startswith(packages):
                        yield fn


def wait_asked(url: str, module: str, agent: str, packages: Sequence[str], told: str) -> None:
    """In a process: until a person is asked by all of them, and nobody has one any more."""
    found = rename(packages, "old_")
    bot = getattr(sys.modules[module], agent)

    async def main() -> None:
        async with hf.connect(url, agents=[bot], concurrency=RUNS) as app:
            for number in range(RUNS):
                await app.start(bot(f"r{number}"), id=f"r{number}")
            await eventually(lambda: is_asked(app), timeout=_PATIENCE_S)

    async def is_asked(app: hf.Holdfast) -> bool:
        return len(await app.questions()) == RUNS

    asyncio.run(main())
    Path(told).write_text(json.dumps(found))


def go_on(url: str, module: str, agent: str, packages: Sequence[str], answer: Any, told: str) -> None:
    """In another one: all are answered, and end."""
    rename(packages, "new_")
    bot = getattr(sys.modules[module], agent)

    async def main() -> dict[str, Any]:
        async with hf.connect(url, agents=[bot], concurrency=RUNS) as app:
            runs = [app.get(f"r{number}", bot) for number in range(RUNS)]
            while not all(info.status == "done" for info in await app.runs(limit=RUNS)):
                for question in await app.questions():
                    await question.answer(answer)
                await asyncio.sleep(0.1)
            keys = {each.key for run in runs for each in await run.history() if each.key}
            return {"ends": [await run.result() for run in runs], "keys": sorted(keys)}

    Path(told).write_text(json.dumps(asyncio.run(main())))
