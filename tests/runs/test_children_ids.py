"""The ids of children: known from the record, of bounded length, and found again by their parents."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.running import children
from holdfast.running.children import LONGEST_CHILD, child_id
from tests.workers import until


@hf.agent
async def leaf() -> str:
    return "leaf"


@hf.agent
async def trunk() -> str:
    return await leaf()


@hf.agent
async def descend(levels: int) -> int:
    return 0 if levels == 0 else 1 + await descend(levels - 1)


@hf.agent
async def patient() -> str:
    return await hf.receive(("go", str))


@hf.agent
async def waits_for_it() -> str:
    return await patient()


@hf.agent
async def starts_it() -> str:
    run = await hf.start(patient())
    await hf.receive(("look", bool))
    return run.id


@hf.agent
async def gives_it_up() -> str:
    try:
        async with hf.timeout(1.5):
            return await patient()
    except TimeoutError:
        return "given up"


PARENT = "parent-" + "x" * 40
AGENTS: list[hf.Agent[..., Any]] = [leaf, trunk, descend, patient, waits_for_it, starts_it, gives_it_up]


@pytest.mark.parametrize("length", [1, 109, 110, 119, 120, 150, 189, 190, 199, 200])
def test_every_id_that_a_run_may_have_can_have_children(tmp_path: Path, length: int) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=AGENTS) as app:
            assert await (await app.start(trunk(), id="x" * length)).result(timeout=30) == "leaf"
            for run in await app.runs(agent="leaf"):
                assert run.id.startswith("x" * min(length, 98))
                assert len(run.id) <= LONGEST_CHILD

    asyncio.run(go())


def test_a_family_of_fifty_levels_has_ids_that_can_be_read(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=AGENTS) as app:
            assert await (await app.start(descend(50), id="family")).result(timeout=60) == 50
            ids = [run.id for run in reversed(await app.runs(limit=100))]
        assert len(set(ids)) == 51
        assert max(map(len, ids)) <= LONGEST_CHILD
        for parent, own in itertools.pairwise(ids[:11]):
            assert own.startswith(f"{parent}."), "the first levels say whose children they are"
        assert all(each.startswith("family.") for each in ids[1:])

    asyncio.run(go())


def test_ids_of_different_places_differ_at_any_depth() -> None:
    deep = "x" * LONGEST_CHILD
    made = {child_id(deep, f"nonce/0/call#{n}") for n in range(10_000)}
    assert len(made) == 10_000
    assert child_id(deep, "a/0/call#1") == child_id(deep, "a/0/call#1")
    assert child_id("short", "a/0/call#1") != child_id("short", "b/0/call#1")


@pytest.mark.parametrize("agent", [waits_for_it, starts_it, gives_it_up])
def test_a_recorded_child_is_found_whatever_ids_are_made_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: hf.Agent[[], str]
) -> None:
    """The parent is taken up by code that would give the child another id."""
    url = str(tmp_path / "s.db")

    async def begin() -> None:
        async with hf.connect(url, agents=AGENTS) as app:
            run = await app.start(agent(), id=PARENT)
            await until(run, "waiting")

    async def go_on() -> None:
        async with hf.connect(url, agents=AGENTS) as app:
            (known,) = await app.runs(agent="patient")
            run = app.get(PARENT)
            if agent is starts_it:
                await run.send("look", True)
                assert await run.result(timeout=30) == known.id
            elif agent is gives_it_up:
                assert await run.result(timeout=30) == "given up"
                await until(app.get(known.id), "cancelled")
            else:
                await app.get(known.id).send("go", "on")
                assert await run.result(timeout=30) == "on"
            assert [each.id for each in await app.runs(agent="patient")] == [known.id]

    asyncio.run(begin())
    monkeypatch.setattr(children, "LONGEST_CHILD", 40)
    asyncio.run(go_on())
