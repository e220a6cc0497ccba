"""One process' share of a run, to be killed: `python -m tests.concurrency.killed STORE AGENT SEED LATENCY WORLD`.

What happens outside of the run is appended to the file WORLD, one JSON line each, which a kill does not undo.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from tests.concurrency import programs
from tests.concurrency.crashes import execute


class Ledger(dict[str, str]):
    """Effects, written to a file as they happen."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text().splitlines() if path.exists() else []
        super().__init__(json.loads(line) for line in lines if line.startswith("["))
        self._path = path

    def __setitem__(self, key: str, place: str) -> None:
        super().__setitem__(key, place)
        self.write(json.dumps([key, place]))

    def write(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{line}\n")


class Bodies(list[str]):
    """Bodies, written to a file as they begin."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def append(self, place: str) -> None:
        super().append(place)
        self._ledger.write(place)


@hf.step
async def spell(words: set[str], more: frozenset[tuple[str, int]], index: dict[str, set[str]]) -> list[str]:
    programs.world.bodies.append(f"spell {len(words)}")
    await asyncio.sleep(0.003)
    return sorted(words)


@hf.effect(on_doubt="retry", settle=0)
async def keep(n: int) -> int:
    """What came before it is on disk."""
    return n


@hf.agent
async def spelling(seed: int, plain: bool) -> dict[str, Any]:
    """Sets as arguments, whose order differs from process to process."""
    letters = [chr(97 + n) * 3 for n in range(20)]
    values = []
    for n in range(5, 15):
        words = set(letters[:n])
        calls = [spell(words, frozenset((w, n) for w in words), dict.fromkeys(words, words)) for _ in range(2)]
        values += await asyncio.gather(*calls)
        await keep(n)
        values.append([str(hf.uuid4()), str(hf.rng().random()), hf.now().isoformat()])
    return {"values": values}


def main() -> None:
    store, agent, seed, latency, world = sys.argv[1:]
    ledger = Ledger(Path(world))
    programs.world = programs.World(random.Random(latency), bodies=Bodies(ledger), effects=ledger)
    call = {"program": programs.program, "spelling": spelling}[agent](int(seed), int(seed) % 2 == 0)
    ended = asyncio.run(execute(Path(store), call))
    noted = [record.name for record in ended.records if record.kind == "noted"]
    print(
        json.dumps(
            {"result": ended.result, "repeated": programs.world.repeated, "calls": ended.calls(), "noted": noted}
        )
    )


if __name__ == "__main__":
    main()
