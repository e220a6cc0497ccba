"""Processes that are killed at random moments while eight agents are at work, until one comes to the end.

Moments are told by what was done so far, and a few milliseconds more: on a slow machine a process gets as far.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.errors import AlreadySettled
from tests.ext.letters import all_letters, end
from tests.ext.living import note, notes, said_of
from tests.forkserver import ForkServer

AT_ONCE = 8
_FURTHEST = 12  #: what is noted in a life before it ends
_PATIENCE_S = 300.0
_OVER = ("done", "failed", "cancelled", "blocked")


@dataclass
class Storm:
    """What became of it."""

    kills: int = 0
    letters: int = 0
    in_doubt: int = 0
    asked: int = 0  #: how many requests models were sent
    needed: int = 0  #: how many had to be
    under_way: int = 0  #: how many had no record yet when their process was killed


def live(url: str, module: str, agent: str, names: Sequence[str], told: str) -> None:
    """In the process that is killed."""
    results = asyncio.run(_live(url, getattr(sys.modules[module], agent), names))
    Path(told).write_text(json.dumps(results))


async def _live(url: str, agent: hf.Agent[..., Any], names: Sequence[str]) -> dict[str, Any]:
    async with hf.connect(url, agents=[agent]) as app:
        runs = {name: await app.start(agent(name), id=name) for name in names}
        while not all(info.status in _OVER for info in await app.runs(limit=len(names), agent=agent.name)):
            for doubt in await app.in_doubt():
                with suppress(AlreadySettled):  # by a process before, and nobody has taken note of it yet
                    await doubt.resolve(await said_of(doubt))
                    note(f"settled {doubt.key}")
            await asyncio.sleep(0.05)
        return {name: await run.result() for name, run in runs.items()}


def storm(
    server: ForkServer,
    url: str,
    module: str,
    agent: str,
    *,
    folder: Path,
    kills: int,
    seed: int,
    env: Mapping[str, str],
) -> Storm:
    """Eight runs at once, and eight more while there are kills left."""
    chance, found, rounds = random.Random(seed), Storm(), 0
    env = {"HOLDFAST_TEST_FOLDER": str(folder), **env}
    while not rounds or found.kills < kills:
        rounds += 1
        names, told = [f"{agent}.{rounds}.{n}" for n in range(AT_ONCE)], folder / f"results{rounds}.json"
        recorded: Mapping[str, int] = dict.fromkeys(names, 0)
        while not told.exists():
            before = len(notes(folder))
            process = server.start(
                live, imports=[module], log=folder / "log.txt", env=env,
                url=url, module=module, agent=agent, names=names, told=str(told),
            )  # fmt: skip
            until = len(notes(folder)) + chance.randint(1, _FURTHEST) if found.kills < kills else sys.maxsize
            give_up = time.monotonic() + _PATIENCE_S
            while process.code is None and len(notes(folder)) < until:
                assert time.monotonic() < give_up, (folder / "log.txt").read_text()[-4000:]
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.01))
            if process.code is None:
                process.kill()
                found.kills += process.code == -9
            assert process.code == -9 or told.exists(), (folder / "log.txt").read_text()[-4000:]
            asked = [line for line in notes(folder)[before:] if line.startswith("model")]
            found.under_way += _check_asked(asked, recorded, now := asyncio.run(_recorded(url, names)))
            recorded = now
        assert json.loads(told.read_text()) == {name: end(name) for name in names}
        found.letters += sum(len(all_letters(name)) for name in names)
        wanted = [f"mail {letter}" for name in names for letter in all_letters(name)]
        _check(wanted, [line for line in notes(folder) if line.startswith(f"mail {agent}.{rounds}.")])
    found.in_doubt = len([line for line in notes(folder) if line.startswith("settled")])
    requests = Counter(line for line in notes(folder) if line.startswith("model"))
    found.asked, found.needed = requests.total(), len(requests)
    return found


async def _recorded(url: str, names: Sequence[str]) -> dict[str, int]:
    """How many answers of models each run has: all else that these agents do is an effect."""
    async with hf.connect(url) as app:
        known = {info.id for info in await app.runs(limit=1_000)}
        return {name: await _answers(app.get(name)) if name in known else 0 for name in names}


async def _answers(run: hf.Run[Any]) -> int:
    return sum(each.kind == "step" and each.status == "done" for each in await run.history())


def _check_asked(asked: Sequence[str], before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """What one life has asked models, and what it found and left in the journal; how many requests it left under way.

    Nothing that has a record is asked again, nothing is asked twice, and of each run one request at most, the latest,
    has none: what is paid twice is what was under way when a process was killed.
    """
    turns: dict[str, list[int]] = defaultdict(list)
    for line in asked:
        _, name, turn = line.split()
        turns[name].append(int(turn))
    for name, found in turns.items():
        first = before[name] + 1
        assert found == list(range(first, first + len(found))), f"{name} had {first - 1} answers, and asked {found}"
        assert found[-1] - now[name] in (0, 1), f"{name} asked {found}, and has {now[name]} answers"
    return sum(found[-1] - now[name] for name, found in turns.items())


def _check(wanted: list[str], done: list[str]) -> None:
    times = Counter(done)
    assert {line: n for line, n in times.items() if n > 1} == {}, "done twice"
    assert sorted(set(wanted) - set(times)) == [], "lost"
    assert sorted(set(times) - set(wanted)) == [], "nobody asked for it"
