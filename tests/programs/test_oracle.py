"""The programs themselves: they grow the same from a seed, have everything in them, and the oracle reads them well."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing import check_history
from holdfast.testing.ledger import VARIABLE as LEDGER
from tests.programs.agents import VARIABLE as WORLD
from tests.programs.agents import ledger, program
from tests.programs.checks import check, look, story
from tests.programs.oracle import expect
from tests.programs.trees import EFFECTS, WAITS, Node, grow


def test_a_seed_always_grows_the_same_program() -> None:
    assert [grow(seed) for seed in range(50)] == [grow(seed) for seed in range(50)]
    assert len({str(grow(seed, name="p")) for seed in range(50)}) > 45


def test_the_programs_have_everything_in_them() -> None:
    kinds: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for seed in range(300):
        tree = grow(seed)
        assert len({node.at for node in tree.walk()}) == len(list(tree.walk())), "places are unique"
        kinds.update(node.word if node.kind == "effect" else node.kind for node in tree.walk())
        expected = expect(tree, 0)
        ends["failed" if expected.error else "done"] += 1
        ends["undone"] += any(act.undone_by for act in expected.acts.values())
    wanted = {*EFFECTS, *WAITS, "step", "thread", "flaky", "values", "gather", "group", "as_completed", "race"}
    wanted |= {"within", "expires", "child", "detached", "saga", "catch", "raise", "fails", "stuck"}
    assert {kind: kinds[kind] for kind in wanted if kinds[kind] < 10} == {}
    assert ends["failed"] > 10
    assert ends["undone"] > 30


async def undisturbed(url: str, trees: list[Node]) -> None:
    async with hf.connect(url, agents=[program]) as app:
        for run in [await app.start(program(tree, 0), id=tree.at) for tree in trees]:
            with suppress(hf.RunFailed):
                await run.result(timeout=60)


def test_the_oracle_says_what_a_program_comes_to_when_nobody_disturbs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = tmp_path / "world"
    world.mkdir()
    monkeypatch.setenv(WORLD, str(world))
    monkeypatch.setenv(LEDGER, str(tmp_path / "ledger.jsonl"))
    url = str(tmp_path / "store.db")
    trees = [grow(f"quiet {seed}", without=frozenset({"receive", "ask"})) for seed in range(60)]
    asyncio.run(undisturbed(url, trees))
    left = look(url, world)
    found = check(left, url, trees, ledger=ledger)
    assert not found.wrong, "\n".join([str(dict(found.wrong)), *(story(left.runs[id]) for id in found.wrong if id)])
    assert found.late == []
    assert check_history(url, ledger) == []
