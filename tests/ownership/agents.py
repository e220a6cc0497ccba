"""Agents for workers that are stopped, killed and taken over from. What their bodies did is in the ledger."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import holdfast as hf
from holdfast.running.scopes import Scope, current_scope
from holdfast.testing import Ledger

ledger = Ledger()


def _file(name: str) -> Path:
    return ledger.path.parent / name


def say_reached(name: str) -> None:
    reached = os.open(_file(f"{name}.reached"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(reached, f"{os.getpid()}\n".encode())
    os.close(reached)


def is_open(name: str) -> bool:
    return _file(f"{name}.open").exists() or _file(f"{name}.open.{os.getpid()}").exists()


async def written() -> None:
    """Wait until all that this run has done so far is on disk."""
    scope = current_scope()
    assert isinstance(scope, Scope)
    journal = scope.run.journal
    while journal._drafts or journal._fresh_open or journal.durable_seq < journal._head_seq:  # noqa: ASYNC110
        await asyncio.sleep(0.002)


async def held(name: str) -> None:
    """Say that this process came here, and all before is on disk; wait until the test lets it, or everybody, pass."""
    await written()
    say_reached(name)
    while not is_open(name):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@hf.step
async def look(n: int) -> int:
    with ledger.step():
        return n * 10


@hf.step
async def held_step(name: str) -> str:
    with ledger.step():
        await held(name)
        return name


@hf.effect(settle=0)
async def post(n: int) -> int:
    """It can be looked up: whoever takes over learns whether it happened."""
    with ledger.effect():
        _file(f"posted.{hf.this_step().idempotency_key}").touch()
        return n


@post.verify
async def find_post(n: int) -> hf.Verdict[int]:
    return hf.landed(n) if _file(f"posted.{hf.this_step().idempotency_key}").exists() else hf.not_landed()


@hf.effect(on_doubt="retry")
async def held_effect(name: str) -> str:
    with ledger.effect():
        await held(name)
        return name


@hf.agent
async def in_a_step(name: str) -> list[object]:
    first = await look(1)
    second = await held_step(name)
    return [first, second, await post(2)]


@hf.agent
async def in_an_effect(name: str) -> list[object]:
    first = await look(1)
    second = await held_effect(name)
    return [first, second, await look(2)]


@hf.agent
async def child(n: int) -> int:
    return await look(n)


@hf.agent
async def everything() -> list[object]:
    """One of each thing that is written for a run."""
    found: list[object] = [await look(1), await post(2), await child(3)]
    found += await asyncio.gather(look(4), post(5))
    await hf.sleep(1.2)
    found.append(await hf.receive(("go", int)))
    return found


# held in the agent's own code, right before something that is written


@hf.agent
async def before_an_effect(name: str) -> int:
    await look(1)
    await held(name)
    return await post(2)


@hf.agent
async def before_a_step(name: str) -> int:
    await look(1)
    await held(name)
    return await look(2)


@hf.agent
async def before_its_end(name: str) -> int:
    n = await look(1)
    await held(name)
    return n


@hf.agent
async def before_its_failure(name: str) -> int:
    await look(1)
    await held(name)
    raise ValueError("as expected")


@hf.agent
async def before_a_sleep(name: str) -> int:
    await look(1)
    await held(name)
    await hf.sleep(hours=1)
    return 1


@hf.agent
async def before_a_question(name: str) -> bool:
    await look(1)
    await held(name)
    return await hf.ask("Go on?")


@hf.agent
async def before_a_child(name: str) -> int:
    await look(1)
    await held(name)
    return await child(2)


@hf.agent(signals=[hf.Signal("go", int)])
async def asks_and_starts(name: str) -> int:
    """A question and a child: what leaves the run."""
    if name == "ask":
        return int(await hf.ask("Go on?"))
    return await child(2)


@hf.agent
async def posts() -> int:
    return await post(2)


# long, deadly, blocking


@hf.step
async def short(n: int) -> int:
    with ledger.step():
        await asyncio.sleep(0.02)
        return n


@hf.agent
async def long(count: int) -> int:
    n = 0
    for n in range(1, count + 1):
        await short(n)
    return n


@hf.step
async def has_opened(name: str) -> bool:
    with ledger.step():
        await asyncio.sleep(0.02)
        return is_open(name)


@hf.agent
async def busy_until(name: str) -> int:
    """Short steps, as many as it takes until the test opens a gate."""
    n = 1
    while not await has_opened(name):
        n += 1
    return n


@hf.agent
async def looped(name: str, count: int) -> int:
    """Each of its steps waits until the test lets it pass."""
    for n in range(count):
        await held_step(f"{name}.{n}")
    return count


@hf.step
async def deadly() -> None:
    with ledger.step():
        os.kill(os.getpid(), signal.SIGKILL)


@hf.agent
async def poison() -> None:
    await post(1)
    await look(2)
    await deadly()


@hf.step
async def stuck_step(name: str) -> str:
    """Blocks its event loop until the test lets it, or everybody, pass."""
    with ledger.step():
        say_reached(name)
        while not is_open(name):
            time.sleep(0.005)
        return name


@hf.agent
async def stuck(name: str) -> list[object]:
    return [await stuck_step(name), await post(3)]


@hf.agent
async def one_look(n: int) -> int:
    return await look(n)


@hf.agent
async def one_held_step(name: str) -> str:
    return await held_step(name)


@hf.agent
async def naps(seconds: float) -> int:
    await look(1)
    await hf.sleep(seconds)
    return await look(2)


@hf.agent
async def looks_on(name: str, count: int) -> list[int]:
    """Steps, a body that is under way when its worker leaves, and more steps."""
    before = [await look(n) for n in range(count)]
    await held_step(name)
    return before + [await look(n) for n in range(count, 2 * count)]


@hf.step
async def double(n: int) -> int:
    await asyncio.sleep(0.002)
    return n * 2


@hf.agent
async def doubles(n: int) -> int:
    return await double(n)


@hf.agent
async def waits_and_is_held(name: str) -> list[object]:
    """Twice it waits, and leaves memory; then it is held."""
    heard: list[object] = [await hf.receive(("go", int)) for _ in range(2)]
    return [*heard, await held_step(name)]
