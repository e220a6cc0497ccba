"""A script as a user writes it: `plain.py AGENT ID URL [ARGUMENT]` with `hf.run` at its end. Prints the result."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import holdfast as hf
from holdfast.running.scopes import Scope, current_scope
from holdfast.testing import Ledger

ledger = Ledger()


def folder() -> Path:
    return Path(os.environ["HOLDFAST_TEST_FOLDER"])


@hf.step
async def look(n: int) -> int:
    with ledger.step():
        return n


@hf.effect(on_doubt="fail")
async def slow_change(n: int) -> int:
    with ledger.effect():
        await asyncio.sleep(0.3)
        return n * 2


@hf.agent
async def changes(n: int) -> int:
    return await look(n) + await slow_change(n)


@hf.step
async def sleeps(n: int) -> int:
    with ledger.step():
        scope = current_scope()
        assert isinstance(scope, Scope)
        journal = scope.run.journal
        while journal._drafts or journal.durable_seq < journal._head_seq:  # noqa: ASYNC110 - until it is on disk
            await asyncio.sleep(0.002)
        (folder() / "sleeping").touch()
        await asyncio.sleep(300 if n and not (folder() / "awake").exists() else 0)
        return n


@hf.agent
async def sleeper(n: int) -> int:
    return await slow_change(n) + await sleeps(n)


@hf.step
async def repaired(n: int) -> int:
    with ledger.step():
        if not (folder() / "repaired").exists():
            raise ConnectionError("broken")
        return n


@hf.agent
async def repairable(n: int) -> int:
    return await slow_change(n) + await repaired(n)


if __name__ == "__main__":
    chosen = {each.name: each for each in (changes, sleeper, repairable)}[sys.argv[1]]
    try:
        print(hf.run(chosen(int(sys.argv[4]) if len(sys.argv) > 4 else 1), id=sys.argv[2], url=sys.argv[3]))
    except hf.HoldfastError as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(4)
