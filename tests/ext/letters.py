"""What the agents of all adapters do: four turns, with two letters at once in each, then they say what came of it.

The prompt of a run is its name, which the model finds in what it hears; a letter is named by run, turn and reader.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict

from tests.ext.living import here, note

TURNS = 4

_begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


def letters(name: str, turn: int) -> list[str]:
    return [f"{name}-{turn}{reader}" for reader in "ab"]


def all_letters(name: str) -> list[str]:
    return [letter for turn in range(1, TURNS + 1) for letter in letters(name, turn)]


def end(name: str) -> str:
    return told([f"sent {letter}" for letter in all_letters(name)])


def told(answers: list[str]) -> str:
    return ", ".join(sorted(answers))


def asked(name: str, turn: int) -> None:
    """A model was sent a request."""
    note(f"model {name} {turn}")


async def send(to: str) -> str:
    """The effect. With HOLDFAST_TEST_MEET it waits until the other one of its turn is under way, too."""
    _begun[to].set()
    if "HOLDFAST_TEST_MEET" in os.environ:
        other = f"{to[:-1]}{'b' if to[-1] == 'a' else 'a'}"
        await asyncio.wait_for(_begun[other].wait(), 60)
        here(f"both {to}")
    await asyncio.sleep(0.002)
    note(f"mail {to}")
    await asyncio.sleep(0.002)
    return f"sent {to}"
