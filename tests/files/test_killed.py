"""Agents that put files out and work in directories are killed at their crash points, and leave the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing import Life, assert_survives
from tests.files import agents

#: name, version, kind, and the call that put it out last.
PUT_OUT = {
    ("data/large.bin", 1, "file", "draft"),
    ("draft.md", 1, "file", "draft"),
    ("draft.md", 2, "file", "draft"),
    ("plots/plot.png", 1, "file", "plot"),
    ("summary.txt", 1, "file", "hf.artifact"),
    ("pull-request", 1, "draft-pr", "open_request"),
}
POINTS = ["files.after_commit@1", "artifact.after_data@8"]
WORKSPACE_POINTS = ["workspace.before_body@2", "workspace.after_data@4", "files.before_commit@2", "effect.after_body"]
FEW = ["workspace.after_data@4"]


async def listed(life: Life) -> list[hf.Artifact]:
    async with hf.connect(life.url) as app:
        return await app.get(life.run_id).artifacts()


def all_put_out_once(life: Life) -> None:
    found = asyncio.run(listed(life))
    assert {each.state for each in found} == {"stored"}
    files = [
        (each.name, each.version, each.kind, each.key.partition("#")[0]) for each in found if each.kind != "record"
    ]
    assert len(files) == len(set(files))
    assert set(files) == PUT_OUT


def all_built(life: Life) -> None:
    assert life.result == agents.BUILT
    versions = [each.version for each in asyncio.run(listed(life)) if each.kind == "workspace"]
    assert versions == [1, 2, 3, 4]
    assert [each.key for each in asyncio.run(listed(life)) if each.kind == "file"] == ["push#1"]


def own_directories(folder: Path) -> dict[str, str]:
    return {"HOLDFAST_WORKSPACES": str(folder / "workspaces")}


def test_a_killed_agent_has_put_out_the_same_once() -> None:
    survival = assert_survives(agents.author("text"), check=all_put_out_once, points=POINTS)
    print(survival)
    assert {"files.after_commit", "artifact.after_data"} <= survival.killed_at


def test_a_killed_agent_finds_what_its_last_step_left() -> None:
    survival = assert_survives(agents.coder(1), setup=own_directories, check=all_built, points=WORKSPACE_POINTS)
    print(survival)
    assert {"workspace.before_body", "workspace.after_data", "files.before_commit"} <= survival.killed_at


def test_the_same_on_postgresql(postgres_url: str) -> None:
    print(assert_survives(agents.coder(1), url=postgres_url, setup=own_directories, check=all_built, points=FEW))


@pytest.mark.prove
@pytest.mark.parametrize("sort", ["sqlite", "postgres"])
def test_killed_at_every_point_and_again(sort: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if sort == "postgres" else None
    print(assert_survives(agents.coder(1), url=url, setup=own_directories, check=all_built, rounds=60))
    print(assert_survives(agents.author("text"), url=url, check=all_put_out_once, rounds=30))
