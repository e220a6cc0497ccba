"""The agent `changes` of `loops` as it may be later: with patches, without an effect, with another state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import holdfast as hf
from tests.crash.agents import look, post
from tests.turns.loops import State, word


@dataclass
class More:
    """With a field that was not there."""

    n: int
    seen: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    child: str = ""
    more: int = 5


@dataclass
class Less:
    """Without fields that were there."""

    n: int
    seen: list[str] = field(default_factory=list)


@dataclass
class Renamed:
    """With other names."""

    number: int
    heard: list[str] = field(default_factory=list)


_STATES = {"field added": More, "field removed": Less, "field renamed": Renamed, "not migrated": Renamed}


def renamed(stored: dict[str, Any]) -> Renamed:
    return Renamed(stored["n"], stored["seen"])


def changed(code: str) -> hf.Agent[[int], list[str]]:
    """The code with this change."""

    @hf.agent(name="changes", signals=[word])
    async def changes(n: int) -> list[str]:
        if code in ("patch before the loop", "patch in both") and hf.patched("new"):
            await post(901)
        if code == "effect added":
            await post(902)
        if code not in ("effect removed", "effect moved"):
            await post(900)
        await look(1)
        migrate = renamed if code == "field renamed" else None
        async for state in hf.turns(_STATES.get(code, State)(n), migrate=migrate):
            heard = state.heard if isinstance(state, Renamed) else state.seen
            heard.append(await hf.receive(word))
            if code in ("patch in the loop", "patch in both") and hf.patched("new"):
                await post(700 + len(heard))
            if code == "effect moved":
                await post(900)
            await post(len(heard))
            if len(heard) == 4:
                return heard
        raise AssertionError

    return changes
