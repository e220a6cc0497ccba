"""Agents that do as little as possible, so that what is measured is Holdfast."""

from __future__ import annotations

import holdfast as hf


@hf.step
async def tiny(n: int) -> int:
    return n + 1


@hf.effect(on_doubt="retry")
async def act(n: int) -> int:
    return n + 1


@hf.agent
async def steps(count: int) -> int:
    n = 0
    for _ in range(count):
        n = await tiny(n)
    return n


@hf.agent
async def effects(count: int) -> int:
    n = 0
    for _ in range(count):
        n = await act(n)
    return n
