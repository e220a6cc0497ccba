"""An agent whose input says what it does, and the world that its effects change.

The world is a folder with a file for each idempotency key; a line in it is one `write` to a file opened with O_APPEND,
which no kill undoes. What a body tells in `acks.txt` somebody was told, so it must be in the store.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import asyncpg  # noqa: F401  (loaded once, before workers are forked)

import holdfast as hf
from holdfast.testing import Ledger

#: The folder of a trial.
VARIABLE = "HOLDFAST_TEST_FOLDER"
#: What a plan is made of, and how often, more or less.
ACTIONS = {"look": 5, "post": 4, "nap": 2, "doze": 1, "hear": 2, "child": 2, "both": 2}
NAPS_S = {"nap": 0.2, "doze": 1.5}

ledger = Ledger()


def mix(*what: object) -> int:
    return int.from_bytes(blake2b(repr(what).encode(), digest_size=6).digest())


def folder() -> Path:
    return Path(os.environ[VARIABLE])


def write(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


def deed(key: str) -> Path:
    """Where it is written that an effect has happened."""
    return folder() / "world" / blake2b(key.encode(), digest_size=12).hexdigest()


def has_happened(key: str) -> bool:
    """A process that is killed between making the file and writing to it has done nothing."""
    path = deed(key)
    return path.exists() and path.stat().st_size > 0


@hf.step
async def look(x: int) -> int:
    with ledger.step():
        await asyncio.sleep(random.random() * 0.02)
        return mix("look", x)


@hf.effect(settle=0)
async def post(x: int, before: list[str]) -> int:
    """Everything before an effect is on disk when its body begins, so its body may tell of it."""
    step = hf.this_step()
    with ledger.effect():
        write(folder() / "acks.txt", " ".join([step.run_id, *before]))
        await asyncio.sleep(random.random() * 0.01)
        write(deed(step.idempotency_key), f"{step.run_id} {step.key} {os.getpid()}")
        await asyncio.sleep(random.random() * 0.01)
        return mix("post", x)


@post.verify
async def find_post(x: int, before: list[str]) -> hf.Verdict[int]:
    return hf.landed(mix("post", x)) if has_happened(hf.this_step().idempotency_key) else hf.not_landed()


@hf.agent
async def helper(x: int) -> int:
    return await post(await look(x), ["look#1"])


@hf.agent(signals=[hf.Signal("go", int)])
async def errand(plan: list[str], x: int) -> int:
    before: list[str] = []
    made: Counter[str] = Counter()

    def done(name: str) -> None:
        made[name] += 1
        before.append(f"{name}#{made[name]}")

    for action in plan:
        match action:
            case "look":
                x = await look(x)
                done("look")
            case "post":
                x = await post(x, before[-3:])
                done("post")
            case "nap" | "doze":
                await hf.sleep(NAPS_S[action])
            case "hear":
                x = mix(x, await hf.receive(("go", int)))
            case "child":
                x = await helper(x)
            case "both":
                x = mix(await asyncio.gather(look(x), post(x, [])))
            case other:
                raise ValueError(other)
    return x


def planned(chance: random.Random, length: int) -> list[str]:
    """What a run is to do, by chance."""
    return chance.choices(list(ACTIONS), list(ACTIONS.values()), k=length)


def expected(plan: Iterable[str], x: int, signals: Iterable[int]) -> int:
    """What a run returns, found without Holdfast."""
    heard = iter(signals)
    for action in plan:
        match action:
            case "look" | "post":
                x = mix(action, x)
            case "hear":
                x = mix(x, next(heard))
            case "child":
                x = mix("post", mix("look", x))
            case "both":
                x = mix([mix("look", x), mix("post", x)])
    return x


def posts(plan: Iterable[str]) -> int:
    """How many effects a plan has, those of its children included."""
    return sum(action in ("post", "child", "both") for action in plan)
