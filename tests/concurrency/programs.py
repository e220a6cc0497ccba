"""Random concurrent programs with a known result.

A program is a tree grown from a seed. Each leaf is a durable call that names itself: it is called with its place in the
tree and returns it, so a branch that is handed another one's value notices at once. The sum of a program follows from
its tree; who was first follows from latencies, which differ from run to run, and is part of the result.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import holdfast as hf


@dataclass
class World:
    """What is outside of the run: bodies that ran, effects that happened, how slow everything is."""

    latency: random.Random = field(default_factory=lambda: random.Random(0))
    most_s: float = 0.003
    bodies: list[str] = field(default_factory=list)
    effects: dict[str, str] = field(default_factory=dict)  #: idempotency key -> place
    repeated: list[str] = field(default_factory=list)

    def copy(self) -> World:
        return World(self.latency, self.most_s, list(self.bodies), dict(self.effects), list(self.repeated))

    async def takes_a_while(self) -> None:
        pick = self.latency.random()
        if pick > 0.25:
            await asyncio.sleep(0 if pick < 0.4 else self.latency.random() * self.most_s)


world = World()


class Mixed(AssertionError):
    """A branch was given the value of another one."""


class Planned(Exception):
    """Raised by a branch on purpose."""


@hf.step
async def work(place: str, value: int) -> list[Any]:
    world.bodies.append(place)
    await world.takes_a_while()
    return [place, value]


@hf.step
def compute(place: str, value: int) -> list[Any]:
    world.bodies.append(place)
    return [place, value]


@hf.step
async def slow(place: str) -> list[Any]:
    world.bodies.append(place)
    await asyncio.sleep(30)
    return [place, 0]


@hf.step
async def fails(place: str, value: int) -> list[Any]:
    world.bodies.append(place)
    await world.takes_a_while()
    raise ValueError(place, value)


@hf.effect(settle=0)
async def act(place: str, value: int) -> list[Any]:
    key = hf.this_step().idempotency_key
    await world.takes_a_while()
    if key in world.effects:
        world.repeated.append(place)
    world.effects[key] = place
    world.bodies.append(place)
    await world.takes_a_while()
    return [place, value]


@act.verify
async def acted(place: str, value: int) -> hf.Verdict[list[Any]]:
    found = world.effects.get(hf.this_step().idempotency_key)
    if found is None:
        return hf.not_landed()
    if found != place:
        raise Mixed(f"{found} under the key of {place}")
    return hf.landed([place, value])


@hf.agent
async def helper(place: str, value: int) -> list[Any]:
    first, second = await asyncio.gather(work(f"{place}.1", value), work(f"{place}.2", 0))
    assert (first[0], second[0]) == (f"{place}.1", f"{place}.2")
    return [place, first[1] + second[1]]


@dataclass(frozen=True)
class Node:
    """A part of a program."""

    kind: str
    place: str
    value: int = 0
    parts: tuple[Node, ...] = ()
    is_optional: bool = False

    def total(self) -> int:
        return self.value + sum(part.total() for part in self.parts)

    def walk(self) -> list[Node]:
        return [self, *(each for part in self.parts for each in part.walk())]


LEAVES = ["work"] * 6 + ["compute", "fails", "act", "act", "values"]
BRANCHING = ["gather", "gather", "group", "first", "as_list", "as_generator", "shield", "wait_for", "deadline"]
BRANCHING += ["hf_timeout", "queue", "semaphore", "lock", "event", "race", "tasks", "eager_gather", "generator"]
DIRECT = ["calls", "as_calls", "call_tasks", "same_calls", "children"]
ENDING = ["expires", "cancels", "first_exception", "failing_group"]
PLAIN = ["pause", "yield_"]


def grow(seed: int, *, plain: bool) -> Node:
    """The program of a seed. `plain`: branches also wait for timers of their own between durable calls."""
    rnd = random.Random(f"program {seed}")
    budget = [rnd.randint(8, 30)]

    def leaf(place: str) -> Node:
        budget[0] -= 1
        return Node(rnd.choice(LEAVES), place, rnd.randint(1, 1000))

    def sequence(place: str, depth: int) -> Node:
        parts: list[Node] = []
        for n in range(rnd.randint(1, 3)):
            parts.append(part(f"{place}.{n}", depth))
            if plain and rnd.random() < 0.5:
                parts.append(Node(rnd.choice(PLAIN), f"{place}.{n}p"))
        parts.append(Node("work", f"{place}.end", rnd.randint(1, 1000)))
        return Node("sequence", place, 0, tuple(parts))

    def part(place: str, depth: int) -> Node:
        if depth == 0 or budget[0] <= 0 or rnd.random() < 0.35:
            return leaf(place)
        kind = rnd.choice(BRANCHING * 2 + DIRECT * 2 + ENDING)
        if kind == "expires" and plain and rnd.random() < 0.5:
            kind = rnd.choice(["plain_expires", "wait_for_expires"])
        if kind in ("expires", "cancels", "plain_expires", "wait_for_expires"):
            budget[0] -= 2
            return Node(kind, place, rnd.randint(1, 1000))
        if kind in DIRECT:
            count = rnd.randint(2, 4)
            budget[0] -= count
            kinds = ["work", "work", "act"] if kind != "children" else ["helper"]
            same = rnd.choice(kinds)
            direct = tuple(
                Node(same if kind == "same_calls" else rnd.choice(kinds), f"{place}.{n}", rnd.randint(1, 1000))
                for n in range(count)
            )
            return Node(kind, place, 0, direct)
        count = 1 if kind in ("shield", "wait_for", "deadline", "hf_timeout") else rnd.randint(2, 3)
        inner = tuple(sequence(f"{place}.{n}", depth - 1) for n in range(count))
        if kind == "race":
            return Node(kind, place, rnd.randint(1, 1000), tuple(_without_value(each) for each in inner))
        return Node(kind, place, 0, inner)

    return Node("sequence", "r", 0, tuple(part(f"r.{n}", 3) for n in range(rnd.randint(2, 4))))


def _without_value(node: Node) -> Node:
    """What may be cancelled adds nothing; its effects happen once or not at all."""
    return Node(node.kind, node.place, 0, tuple(_without_value(part) for part in node.parts), is_optional=True)


class Interpreter:
    """Executes one program inside a run, and notes who was first."""

    def __init__(self) -> None:
        self.orders: dict[str, list[str]] = {}

    async def do(self, node: Node) -> int:
        method: Callable[[Node], Coroutine[Any, Any, int]] = getattr(self, node.kind)
        return await method(node)

    # leaves

    async def work(self, node: Node) -> int:
        return _own(node, await work(node.place, node.value))

    async def compute(self, node: Node) -> int:
        return _own(node, await compute(node.place, node.value))

    async def act(self, node: Node) -> int:
        return _own(node, await act(node.place, node.value))

    async def helper(self, node: Node) -> int:
        return _own(node, await helper(node.place, node.value))

    async def fails(self, node: Node) -> int:
        try:
            await fails(node.place, node.value)
        except ValueError as error:
            return _own(node, list(error.args))
        raise AssertionError("did not fail")

    async def values(self, node: Node) -> int:
        """The helpers for determinism: what they say is checked by a step that was told it before."""
        said = f"{hf.uuid4()} {hf.rng().random()} {hf.now().isoformat()} {hf.patched(node.place)}"
        place, told = await echo(node.place, said)
        if (place, told) != (node.place, said):
            raise Mixed(f"{node.place}: {told} became {said}")
        return node.value

    async def pause(self, node: Node) -> int:
        await asyncio.sleep(world.latency.random() * world.most_s)
        return 0

    async def yield_(self, node: Node) -> int:
        await asyncio.sleep(0)
        return 0

    # branches

    async def sequence(self, node: Node) -> int:
        return sum([await self.do(each) for each in node.parts])

    async def branch(self, node: Node) -> int:
        return await self.do(node)

    async def noted(self, at: str, node: Node) -> tuple[str, int]:
        return node.place, await self.do(node)

    async def gather(self, node: Node) -> int:
        return sum(await asyncio.gather(*(self.branch(each) for each in node.parts)))

    eager_gather = gather

    async def group(self, node: Node) -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.branch(each)) for each in node.parts]
        return sum(task.result() for task in tasks)

    async def tasks(self, node: Node) -> int:
        tasks = [asyncio.create_task(self.branch(each)) for each in node.parts]
        mine = await work(f"{node.place}.mine", 0)
        assert mine[0] == f"{node.place}.mine"
        return sum([await task for task in reversed(tasks)])

    async def first(self, node: Node) -> int:
        tasks = [asyncio.create_task(self.noted(node.place, each)) for each in node.parts]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.orders[node.place] = sorted(task.result()[0] for task in done)
        if left:
            await asyncio.wait(left)
        return sum(task.result()[1] for task in tasks)

    async def as_list(self, node: Node) -> int:
        return await self._in_order(node, asyncio.as_completed([self.noted(node.place, each) for each in node.parts]))

    async def as_generator(self, node: Node) -> int:
        return await self._in_order(
            node, asyncio.as_completed(iter([self.noted(node.place, each) for each in node.parts]))
        )

    async def _in_order(self, node: Node, ended: Any) -> int:
        order = self.orders.setdefault(node.place, [])
        total = 0
        for each in ended:
            place, value = await each
            order.append(place)
            total += value
        return total

    async def shield(self, node: Node) -> int:
        return await asyncio.shield(self.branch(node.parts[0]))

    async def wait_for(self, node: Node) -> int:
        return await asyncio.wait_for(self.branch(node.parts[0]), 60)

    async def deadline(self, node: Node) -> int:
        async with asyncio.timeout(60):
            return await self.do(node.parts[0])

    async def hf_timeout(self, node: Node) -> int:
        async with hf.timeout(60):
            return await self.do(node.parts[0])

    async def queue(self, node: Node) -> int:
        queue: asyncio.Queue[tuple[str, int]] = asyncio.Queue(1)
        order = self.orders.setdefault(node.place, [])

        async def produce(part: Node) -> None:
            await queue.put(await self.noted(node.place, part))

        async def consume() -> int:
            total = 0
            for _ in node.parts:
                place, value = await queue.get()
                order.append(place)
                total += value
            return total

        _, *_, total = await asyncio.gather(*(produce(each) for each in node.parts), consume())
        return int(total or 0)

    async def semaphore(self, node: Node) -> int:
        limit = asyncio.Semaphore(2)

        async def limited(part: Node) -> int:
            async with limit:
                return await self.do(part)

        return sum(await asyncio.gather(*(limited(each) for each in node.parts)))

    async def lock(self, node: Node) -> int:
        lock = asyncio.Lock()

        async def locked(part: Node) -> int:
            first = await self.do(part)
            async with lock:
                place, value = await work(f"{part.place}.locked", 0)
                assert place == f"{part.place}.locked"
                return first + int(value)

        return sum(await asyncio.gather(*(locked(each) for each in node.parts)))

    async def event(self, node: Node) -> int:
        event = asyncio.Event()

        async def waits(part: Node) -> int:
            await event.wait()
            return await self.do(part)

        async def sets() -> int:
            value = await self.do(node.parts[0])
            event.set()
            return value

        return sum(await asyncio.gather(*(waits(each) for each in node.parts[1:]), sets()))

    async def race(self, node: Node) -> int:
        place, _ = await hf.race(*(self.noted(node.place, each) for each in node.parts))
        self.orders[node.place] = [place]
        return node.value

    async def generator(self, node: Node) -> int:
        async def values() -> AsyncIterator[int]:
            for each in node.parts:
                yield await self.do(each)

        async with aclosing(values()) as found:  # type: ignore[type-var]
            return sum([value async for value in found])

    # direct calls

    def _call(self, node: Node) -> Coroutine[Any, Any, list[Any]]:
        calls: dict[str, Callable[[str, int], Coroutine[Any, Any, list[Any]]]] = {
            "work": work,
            "act": act,
            "helper": helper,
        }
        return calls[node.kind](node.place, node.value)

    async def calls(self, node: Node) -> int:
        values = await asyncio.gather(*(self._call(each) for each in node.parts))
        return sum(_own(part, value) for part, value in zip(node.parts, values, strict=True))

    same_calls = calls
    children = calls

    async def call_tasks(self, node: Node) -> int:
        tasks = [asyncio.create_task(self._call(each)) for each in node.parts]
        return sum([_own(part, await task) for part, task in zip(node.parts, tasks, strict=True)])

    async def as_calls(self, node: Node) -> int:
        order = self.orders.setdefault(node.place, [])
        parts = {part.place: part for part in node.parts}
        total = 0
        for each in asyncio.as_completed([self._call(part) for part in node.parts]):
            value = await each
            order.append(value[0])
            total += _own(parts.pop(value[0]), value)
        return total

    # cancelled and failing branches

    async def expires(self, node: Node) -> int:
        try:
            async with hf.timeout(0.004):
                await slow(f"{node.place}.slow")
        except TimeoutError:
            return _own(node, await work(node.place, node.value))
        raise AssertionError("did not expire")

    async def plain_expires(self, node: Node) -> int:
        try:
            async with asyncio.timeout(0.004):
                await slow(f"{node.place}.slow")
        except TimeoutError:
            return _own(node, await work(node.place, node.value))
        raise AssertionError("did not expire")

    async def wait_for_expires(self, node: Node) -> int:
        try:
            await asyncio.wait_for(slow(f"{node.place}.slow"), 0.004)
        except TimeoutError:
            return _own(node, await work(node.place, node.value))
        raise AssertionError("did not expire")

    async def cancels(self, node: Node) -> int:
        task = asyncio.create_task(slow(f"{node.place}.slow"))
        value = _own(node, await work(node.place, node.value))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return value

    async def first_exception(self, node: Node) -> int:
        async def planned(part: Node) -> int:
            value = await self.do(part)
            if part is node.parts[0]:
                raise Planned(value)
            return value

        tasks = [asyncio.create_task(planned(each)) for each in node.parts]
        _, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if left:
            await asyncio.wait(left)
        error = tasks[0].exception()
        assert isinstance(error, Planned)
        return int(error.args[0]) + sum(task.result() for task in tasks[1:])

    async def failing_group(self, node: Node) -> int:
        values: list[int] = []

        async def planned(part: Node) -> None:
            values.append(await self.do(part))
            if len(values) == len(node.parts):
                raise Planned

        try:
            async with asyncio.TaskGroup() as group:
                for each in node.parts:
                    group.create_task(planned(each))
        except* Planned:
            pass
        return sum(values)


@hf.step
async def echo(place: str, said: str) -> list[str]:
    world.bodies.append(place)
    return [place, said]


def _own(node: Node, value: list[Any]) -> int:
    if value[0] != node.place:
        raise Mixed(f"{node.place} was given the value of {value[0]}")
    return int(value[1])


@hf.agent
async def program(seed: int, plain: bool) -> dict[str, Any]:
    interpreter = Interpreter()
    total = await interpreter.do(grow(seed, plain=plain))
    return {"total": total, "orders": interpreter.orders}
