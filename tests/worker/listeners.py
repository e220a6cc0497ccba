"""Agents that hear of events: one that a trigger starts, and one that waits for them."""

from __future__ import annotations

import holdfast as hf

happened = hf.Signal("happened", int)


@hf.agent
async def told(value: int) -> int:
    return value


@hf.agent(signals=[happened])
async def hears(count: int) -> list[int]:
    return [await hf.receive(happened) for _ in range(count)]
