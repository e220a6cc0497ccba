"""Steps, effects and runs whose results are false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import holdfast as hf
from tests.crash.agents import act, ledger, world

VALUES: list[Any] = [None, 0, "", [], {}, False, 0.0, b"", ()]


@hf.step
async def get(n: int) -> Any:
    with ledger.step():
        return VALUES[n]


@hf.effect(settle=0)
async def put(n: int) -> Any:
    act("effect", n)
    return VALUES[n]


@put.verify
async def find(n: int) -> hf.Verdict[Any]:
    return hf.landed(VALUES[n]) if world.has("effect", hf.this_step().idempotency_key) else hf.not_landed()


@hf.agent
async def everything() -> list[Any]:
    seen = []
    for n in range(len(VALUES)):
        seen.append(await get(n))
        seen.append(await put(n))
    return seen


@hf.step
async def note(calls: str) -> None:
    with Path(calls).open("a") as file:
        file.write("called\n")


@hf.agent
async def returns(n: int, calls: str) -> Any:
    await note(calls)
    return VALUES[n]
