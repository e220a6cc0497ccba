"""A run with turns goes on after each of its records as if it had never stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import check_history
from holdfast.testing.ledger import VARIABLE
from holdfast.testing.reading import read_run
from holdfast.testing.survival import FOLDER
from tests.crash.agents import World
from tests.turns import loops
from tests.turns.cutting import cut_at, worlds_at

RUN = "r"

CASES: dict[str, tuple[hf.Call[Any], list[tuple[Any, Any]]]] = {
    "effects": (loops.effects_at_both_ends(0), []),
    "caught": (loops.caught(0), []),
    "gathers": (loops.gathers(0), []),
    "awaits later": (loops.awaits_later(0), []),
    "listens": (loops.listens(0), [(loops.word, "a"), (loops.other, 5), (loops.other, 6), (loops.word, "last")]),
    "takes back": (loops.takes_back(1), []),
    "reducer": (loops.total(0), [("event", 3), ("event", 4), ("event", 0)]),
}
FIRST = ("effects", "listens")
AGENTS = [loops.child, *(call.agent for call, _ in CASES.values())]


def live(url: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[tuple[str, object, str]]]:
    """How it ends, and what happened outside, each once."""
    monkeypatch.setenv(FOLDER, str(url.parent))
    monkeypatch.setenv(VARIABLE, str(url.parent / "ledger.jsonl"))
    call, said = CASES[name]

    async def go() -> Any:
        async with hf.connect(str(url), agents=AGENTS) as app:
            run = await app.start(call, id=RUN)
            for number, (signal, value) in enumerate(said):
                await run.send(signal, value, dedup=f"said-{number}")
            return await run.result(timeout=20)

    result = asyncio.run(go())
    return result, list(dict.fromkeys(World(url.parent).acts()))


@pytest.mark.parametrize("name", [n if n in FIRST else pytest.param(n, marks=pytest.mark.prove) for n in CASES])
def test_a_run_goes_on_after_each_record_as_if_it_had_never_stopped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path / "whole" / "store.db"
    url.parent.mkdir()
    expected = live(url, name, monkeypatch)
    row, records = read_run(str(url), RUN)
    assert row.turn >= 2
    for seq in range(2, len(records)):
        for number, world in enumerate(worlds_at(url.parent, records, seq=seq)):
            again = tmp_path / f"{seq}-{number}" / "store.db"
            cut_at(url, again, RUN, seq=seq)
            World(again.parent).path.write_text("".join(f"{line}\n" for line in world))
            found = live(again, name, monkeypatch)
            assert found == expected, f"after record {seq} ({records[seq - 1]}), {number}"
            assert list(check_history(str(again))) == []
