"""A turn whose state is 1 MB and changes a little, next to what pydantic-core takes to write that once.

Processor time of all threads, least of many. The state is stored in each turn, and read again: with `many` messages
that alone is more than the goal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pydantic
from values import PlainState, State, messages

import holdfast as hf

_TURNS = 25
_ROUNDS = 4


class Stage:
    """What the agent begins with, and what it measures."""

    def __init__(self, state: Any, write: Callable[[Any], object]) -> None:
        self.state = state
        self.write = write
        self.turns: list[float] = []
        self.writes: list[float] = []
        self.began = 0.0

    def look(self, state: Any) -> None:
        """A turn has begun."""
        now = time.process_time()
        if self.began:
            self.turns.append(now - self.began)
        self.write(state)
        self.began = time.process_time()
        self.writes.append(self.began - now)


_stages: dict[str, Stage] = {}


@hf.agent
async def turning(kind: str) -> int:
    stage = _stages[kind]
    stage.began = 0.0
    async for state in hf.turns(stage.state):
        stage.look(state)
        fields = state if isinstance(state, dict) else vars(state)
        fields["n"] += 1
        if fields["n"] > _TURNS:
            return _TURNS
        await asyncio.sleep(0)
    raise AssertionError


async def large_states(url: str) -> dict[str, float]:
    found = {}
    async with hf.connect(url, agents=[turning]) as app:
        for shape, count, size in (("few", 500, 2000), ("many", 7000, 100)):
            plain = {"history": messages(count, size), "n": 0}
            for kind, annotation in (("pydantic model", State), ("dataclass", PlainState), ("dict", dict[str, Any])):
                adapter = pydantic.TypeAdapter[Any](annotation)
                stage = _stages[kind] = Stage(adapter.validate_python(plain), adapter.dump_json)
                for _ in range(_ROUNDS):
                    await (await app.start(turning(kind))).result()
                found[f"turn, 1 MB in {shape} messages, {kind}, x pydantic-core"] = min(stage.turns) / min(stage.writes)
    return found


GOALS = {
    f"turn, 1 MB in few messages, {kind}, x pydantic-core": (3, False)
    for kind in ("pydantic model", "dataclass", "dict")
}
