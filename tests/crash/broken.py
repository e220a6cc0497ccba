"""Agents that break the rules; the crash harness must say so."""

from __future__ import annotations

import itertools
import os

import holdfast as hf
from tests.crash.agents import act, look, post

counter = itertools.count()


@hf.effect(settle=0)
async def denied(n: int) -> str:
    act("denied", n)
    return "done"


@denied.verify
async def deny(n: int) -> hf.Verdict[str]:
    return hf.not_landed()


@hf.agent
async def liar(n: int) -> str:
    """Its verification denies what happened."""
    return await denied(n)


@hf.agent
async def fickle(n: int) -> int:
    """Its result depends on the process."""
    await look(n)
    return os.getpid()


@hf.step
async def smuggled(n: int) -> int:
    act("smuggled", n)
    return n


@hf.agent
async def smuggler(n: int) -> int:
    """Its step has an effect."""
    return await smuggled(n)


@hf.agent
async def stuck(n: int) -> str:
    """It never ends once it was interrupted."""
    if os.path.exists(os.path.join(os.environ["HOLDFAST_TEST_FOLDER"], "began")):
        os._exit(7)
    with open(os.path.join(os.environ["HOLDFAST_TEST_FOLDER"], "began"), "w"):
        pass
    return await post(n)
