"""Agents of many tenants, each in a queue of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import holdfast as hf


@hf.step
async def stay(name: str) -> None:
    (Path(os.environ["HOLDFAST_TEST_FOLDER"]) / f"{name}.begun").touch()
    await asyncio.Event().wait()


@hf.agent
async def quick(name: str) -> str:
    return name


@hf.agent
async def held(name: str) -> None:
    await stay(name)


@hf.agent
async def naps(name: str) -> str:
    await hf.sleep(minutes=30)
    return name
