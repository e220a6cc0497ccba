"""Variants of one agent, as files that a deployment might exchange between a crash and the resume."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path
from typing import Any

import holdfast as hf

HEAD = """
import asyncio
import time

import holdfast as hf
from tests.code_change.ledger import orders, pauses, ran


@hf.step
async def look(n: float) -> float:
    ran.append(f"look {n}")
    return n


@hf.step(name="see")
async def look_elsewhere(n: float) -> float:
    ran.append(f"see {n}")
    return n


@hf.effect(settle=0, on_doubt="retry")
async def pay(n: float) -> str:
    ran.append(f"pay {n}")
    return f"paid {n}"


@hf.effect(settle=0, on_doubt="retry")
async def charge(n: int) -> str:
    ran.append(f"charge {n}")
    return f"paid {n}"


@hf.effect(settle=0, on_doubt="retry")
async def mail(text: str) -> str:
    ran.append(f"mail {text}")
    return f"mailed {text}"


@hf.effect(settle=0, on_doubt="retry")
async def gift() -> str:
    ran.append("gift")
    return "given"


async def buy(n: int) -> str:
    await look(n)
    return await pay(n)


async def purchase(n: int) -> str:
    await look(n)
    return await pay(n)

"""

AGENT = """

@hf.agent(name="shop")
async def shop() -> list[str | float]:
"""


def load(folder: Path, name: str, body: str, *, head: str = HEAD) -> hf.Agent[[], Any]:
    """The agent of a file with this body."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(head + AGENT + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n")
    return load_file(path)


def load_file(path: Path) -> hf.Agent[[], Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    agent: hf.Agent[[], Any] = module.shop
    return agent
