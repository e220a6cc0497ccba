"""The agent that executes programs, and the world that its effects change.

One agent for all programs: what it does is its input. The world is a folder with a file for each idempotency key; a
line there is one `write` to a file opened with O_APPEND, which no kill undoes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import holdfast as hf
from holdfast.base.clock import now_us
from holdfast.testing import Ledger
from holdfast.testing.ledger import whole_lines
from tests.programs.trees import FOREVER_S, NEVER, Node, mix

#: Where the world is.
VARIABLE = "PROGRAMS_WORLD"
#: Places in bodies at which a process can be aimed at.
PLACES = ("step", "before", "after", "verify", "undo", "undone")
QUICKLY = hf.Retry(100, first=0.005, factor=1.2, most=0.05)

ledger = Ledger()


@dataclass(frozen=True)
class Deed:
    """Something that happened in the world."""

    what: Literal["act", "undo"]
    at: str
    x: int
    key: str  #: the idempotency key of the effect
    run: str
    call: str  #: the key of the call in its run
    attempt: int
    pid: int
    began: int
    done: int


def file_of(key: str) -> Path:
    return Path(os.environ[VARIABLE]) / blake2b(key.encode(), digest_size=12).hexdigest()


def deeds_of(key: str) -> list[Deed]:
    return [Deed(**json.loads(line)) for line in whole_lines(file_of(key))]


def change_world(what: Literal["act", "undo"], at: str, x: int, *, began: int) -> None:
    step = hf.this_step()
    key = step.idempotency_key if what == "act" else str(step.undoes)
    deed = Deed(what, at, x, key, step.run_id, step.key, step.attempt, os.getpid(), began, now_us())
    descriptor = os.open(file_of(key), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(asdict(deed)).encode() + b"\n")
    finally:
        os.close(descriptor)


def aimed(place: str) -> None:
    """Die here, or be stopped, if somebody aims at this place: the first to come takes the order."""
    folder = Path(os.environ[VARIABLE]).parent / "aims"
    for name, number in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)):
        with suppress(FileNotFoundError):
            os.rename(folder / f"{place}.{name}", folder / f"{name}-{os.getpid()}")
            os.kill(os.getpid(), number)


async def takes_a_while() -> None:
    pick = random.random()
    if pick > 0.3:
        await asyncio.sleep(0 if pick < 0.5 else random.random() * (0.008 if pick < 0.85 else 0.06))


# steps


@hf.step
async def work(at: str, x: int) -> list[Any]:
    with ledger.step():
        await takes_a_while()
        aimed("step")
        return [at, mix(x, at)]


@hf.step
async def slow(at: str, x: int, takes_ms: int) -> list[Any]:
    with ledger.step():
        await asyncio.sleep(takes_ms / 1000)
        return [at, mix(x, at)]


@hf.step
def thread(at: str, x: int) -> list[Any]:
    with ledger.step():
        time.sleep(random.random() * 0.004)
        return [at, mix(x, at)]


@hf.step(retries=QUICKLY, retry_on=ConnectionError)
async def flaky(at: str, x: int, failures: int) -> list[Any]:
    with ledger.step():
        await takes_a_while()
        if hf.this_step().attempt <= failures:
            raise ConnectionError(at)
        return [at, mix(x, at)]


@hf.step
async def fails(at: str, x: int) -> list[Any]:
    with ledger.step():
        await takes_a_while()
        raise ValueError(at)


@hf.step
async def stuck(at: str) -> None:
    with ledger.step():
        await asyncio.sleep(FOREVER_S)


@hf.step
async def echo(at: str, x: int, said: str) -> list[Any]:
    with ledger.step():
        await takes_a_while()
        return [at, mix(x, at), said]


# effects


async def act(at: str, x: int) -> list[Any]:
    with ledger.effect():
        began = now_us()
        await takes_a_while()
        aimed("before")
        change_world("act", at, x, began=began)
        aimed("after")
        await takes_a_while()
        return [at, mix(x, at)]


async def take_back(at: str, x: int) -> None:
    began = now_us()
    await takes_a_while()
    aimed("undo")
    change_world("undo", at, x, began=began)
    aimed("undone")
    await takes_a_while()


async def look(at: str, x: int) -> hf.Verdict[list[Any]]:
    """What `verify` says: what the world shows."""
    await takes_a_while()
    aimed("verify")
    found = [deed for deed in deeds_of(hf.this_step().idempotency_key) if deed.what == "act"]
    if not found:
        return hf.not_landed()
    if {(deed.at, deed.x) for deed in found} != {(at, x)}:
        raise AssertionError(f"{found} under the key of {at}")
    return hf.landed([at, mix(x, at)])


@hf.effect(settle=0)
async def sure(at: str, x: int) -> list[Any]:
    return await act(at, x)


@hf.effect(on_doubt="retry")
async def again(at: str, x: int) -> list[Any]:
    return await act(at, x)


@hf.effect(on_doubt="retry", settle=0)
async def both(at: str, x: int) -> list[Any]:
    return await act(at, x)


@hf.effect(on_doubt="retry", settle=0)
async def booked(at: str, x: int) -> list[Any]:
    return await act(at, x)


@hf.effect(on_doubt="undo")
async def stubborn(at: str, x: int) -> list[Any]:
    return await act(at, x)


@hf.effect(on_doubt="retry", settle=0, retries=QUICKLY, retry_on=ConnectionError)
async def flaky_effect(at: str, x: int, failures: int) -> list[Any]:
    with ledger.effect():
        began = now_us()
        await takes_a_while()
        if hf.this_step().attempt <= failures:
            raise ConnectionError(at)
        aimed("before")
        change_world("act", at, x, began=began)
        aimed("after")
        return [at, mix(x, at)]


sure.verify(look)
both.verify(look)
booked.verify(look)


@flaky_effect.verify
async def look_flaky(at: str, x: int, failures: int) -> hf.Verdict[list[Any]]:
    return await look(at, x)


@booked.undo
async def unbook(booking: list[Any] | None, at: str, x: int) -> None:
    await take_back(at, x)


@stubborn.undo
async def give_in(booking: list[Any] | None, at: str, x: int) -> None:
    await take_back(at, x)


PLAIN_EFFECTS: dict[str, Callable[[str, int], Coroutine[Any, Any, list[Any]]]] = {
    "sure": sure,
    "again": again,
    "both": both,
    "booked": booked,
}


# the interpreter


def own(node: Node, value: list[Any]) -> int:
    if value[0] != node.at:
        raise AssertionError(f"{node.at} was given the value of {value[0]}")
    return int(value[1])


def last_word(error: Exception) -> str:
    return str(error).rpartition(": ")[2]


class Interpreter:
    """Executes a tree inside a run."""

    def call(self, tree: Node, x: int) -> hf.Call[int]:
        """The agent for a run of its own."""
        return program(tree, x)

    async def do(self, node: Node, x: int) -> int:
        method: Callable[[Node, int], Coroutine[Any, Any, int]] = getattr(self, f"do_{node.kind}")
        return await method(node, x)

    async def do_seq(self, node: Node, x: int) -> int:
        for part in node.parts:
            x = await self.do(part, x)
        return x

    async def do_step(self, node: Node, x: int) -> int:
        return own(node, await work(node.at, x))

    async def do_slow(self, node: Node, x: int) -> int:
        return own(node, await slow(node.at, x, node.n))

    async def do_thread(self, node: Node, x: int) -> int:
        return own(node, await thread(node.at, x))

    async def do_flaky(self, node: Node, x: int) -> int:
        return own(node, await flaky(node.at, x, node.n))

    async def do_fails(self, node: Node, x: int) -> int:
        return own(node, await fails(node.at, x))

    async def do_stuck(self, node: Node, x: int) -> int:
        await stuck(node.at)
        return x

    async def do_raise(self, node: Node, x: int) -> int:
        raise ValueError(node.at)

    async def do_values(self, node: Node, x: int) -> int:
        """The helpers for determinism: what they say is checked by a step that was told it before."""
        said = f"{hf.uuid4()} {hf.rng().random()} {hf.now().isoformat()} {hf.patched(node.at)}"
        at, value, told = await echo(node.at, x, said)
        if told != said:
            raise AssertionError(f"{node.at}: {told} became {said}")
        return own(node, [at, value])

    async def do_effect(self, node: Node, x: int) -> int:
        match node.word:
            case "flaky_effect":
                return own(node, await flaky_effect(node.at, x, node.n))
            case "stubborn":
                while True:
                    try:
                        return own(node, await stubborn(node.at, x))
                    except hf.EffectUndone:
                        pass
            case word:
                return own(node, await PLAIN_EFFECTS[word](node.at, x))

    async def do_sleep(self, node: Node, x: int) -> int:
        before = hf.now()
        await hf.sleep(node.n / 1000)
        slept_s = (hf.now() - before).total_seconds()
        if slept_s < node.n / 1000:
            raise AssertionError(f"{node.at}: slept {slept_s} s of {node.n} ms")
        return x

    async def do_receive(self, node: Node, x: int) -> int:
        for _ in range(node.n):
            x = mix(x, node.at, await hf.receive((node.word, int)))
        return x

    async def do_unheard(self, node: Node, x: int) -> int:
        try:
            await hf.receive((NEVER, int), timeout=node.n / 1000)
        except TimeoutError:
            return mix(x, node.at, "TimeoutError")
        raise AssertionError(f"{node.at}: somebody sent it")

    async def do_ask(self, node: Node, x: int) -> int:
        answer = await (hf.ask(node.at) if node.word == "yes" else hf.ask(node.at, int))
        return mix(x, node.at, answer)

    async def do_expires(self, node: Node, x: int) -> int:
        try:
            async with hf.timeout(node.n / 1000):
                await self.do(node.parts[0], x)
        except TimeoutError:
            return mix(x, node.at, "TimeoutError")
        raise AssertionError(f"{node.at}: did not expire")

    async def do_within(self, node: Node, x: int) -> int:
        async with hf.timeout(node.n / 1000):
            return await self.do(node.parts[0], x)

    async def do_gather(self, node: Node, x: int) -> int:
        values = await asyncio.gather(*(self.do(part, mix(x, n)) for n, part in enumerate(node.parts)))
        return mix(x, node.at, list(values))

    async def do_group(self, node: Node, x: int) -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.do(part, mix(x, n))) for n, part in enumerate(node.parts)]
        return mix(x, node.at, [task.result() for task in tasks])

    async def do_as_completed(self, node: Node, x: int) -> int:
        async def numbered(n: int, part: Node) -> tuple[int, int]:
            return n, await self.do(part, mix(x, n))

        values = dict(
            [await each for each in asyncio.as_completed([numbered(*each) for each in enumerate(node.parts)])]
        )
        return mix(x, node.at, [values[n] for n in range(len(node.parts))])

    async def do_race(self, node: Node, x: int) -> int:
        return mix(await hf.race(*(self.do(part, x) for part in node.parts)), node.at)

    async def do_child(self, node: Node, x: int) -> int:
        return await self.call(node.parts[0], mix(x, node.at))

    async def do_detached(self, node: Node, x: int) -> int:
        side, meanwhile = node.parts
        run = await hf.start(self.call(side, mix(x, node.at)))
        y = await self.do(meanwhile, x)
        return y if node.word == "forget" else mix(await run.result(), y)

    async def do_saga(self, node: Node, x: int) -> int:
        async with hf.saga():
            for part in node.parts:
                x = await self.do(part, x)
            if node.word == "fails":
                raise ValueError(node.at)
        return x

    async def do_catch(self, node: Node, x: int) -> int:
        try:
            return await self.do(node.parts[0], x)
        except (ValueError, hf.RunFailed) as error:
            return mix(x, node.at, type(error).__name__, last_word(error))


@hf.agent(name="program")
async def program(tree: Node, x: int) -> int:
    return await Interpreter().do(tree, x)
