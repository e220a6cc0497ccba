"""A worker stands still in the middle of each verb that leaves something behind, and wakes up when another one has gone
on: nothing of it is visible, in the journal, among the artifacts, in the thread or in the streams.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import holdfast as hf
from tests.files import agents as files
from tests.forkserver import ForkServer
from tests.limits import agents as limits
from tests.ownership.scene import BRIEF_S, PATIENCE_S, Scene
from tests.streams import agents as streams
from tests.threads import agents as threads


class Program(NamedTuple):
    module: ModuleType
    call: hf.Call[Any]
    result: Any
    points: tuple[str, ...]  #: where it is stopped: none of them is inside a transaction, which would hold up everybody


TOLD = "0 1 2 "
PROGRAMS = {
    "artifact": Program(
        files,
        files.author("text"),
        [1, 1, 2, 1, "of text"],
        ("artifact.after_data@1", "artifact.after_data@8", "files.after_commit@1", "step.after_body@2"),
    ),
    "workspace": Program(
        files,
        files.coder(1),
        files.BUILT,
        ("workspace.before_body@2", "workspace.after_data@1", "workspace.after_data@3", "files.after_commit@2"),
    ),
    "plan and guard": Program(
        limits,
        limits.planned(),
        ["1 True", "2 False"],
        ("plan.before_record@2", "plan.after_record@3", "guard.taken@1"),
    ),
    "stream": Program(
        streams,
        streams.all_sorts(3),
        [TOLD, TOLD, TOLD],
        ("stream.before_append@1", "stream.before_append@5", "step.after_body@1"),
    ),
    "thread": Program(
        threads,
        threads.chat("tides"),
        "tides? I know 1.",
        ("effect.after_intent@1", "say.after_commit@2", "effect.after_body@2"),
    ),
}


async def all_that_is_left(scene: Scene, run: hf.Run[Any]) -> list[list[Any]]:
    """Records, artifacts, events of streams, messages: none of them twice."""
    names = ("output", "thread", "published")
    events = [event for name in names for event in [each async for each in run.stream(name, offset=0)]]
    said = await scene.app.thread("t", dict).recent()
    listed = await run.artifacts()
    assert len({(each.name, each.version, each.kind) for each in listed}) == len(listed)
    assert all(said.count(message) == 1 for message in said)
    return [await scene.records(run), listed, events, said]


@pytest.mark.prove
@pytest.mark.parametrize(
    ("program", "point"), [(name, point) for name, each in PROGRAMS.items() for point in each.points]
)
def test_of_a_worker_that_stood_still_in_a_verb_nothing_is_visible(
    program: str, point: str, tmp_path: Path, forkserver: ForkServer
) -> None:
    module, call, result, _ = PROGRAMS[program]

    async def story(scene: Scene) -> None:
        async with scene:
            run = await scene.app.start(call, id="run", thread_id="t")
            name, _, number = point.partition("@")
            old = scene.worker(fault=f"{name}:stop@{number}", lease_s=BRIEF_S)
            await old.wait_stopped()
            scene.worker()
            assert await run.result(timeout=PATIENCE_S) == result
            before = await all_that_is_left(scene, run)
            old.go_on()
            await scene.lost(old, run)
            assert await all_that_is_left(scene, run) == before
            assert (await run.verify_journal()).is_ok

    scene = Scene(tmp_path, forkserver)
    scene._agents = module.__name__
    scene.env |= {
        "HOLDFAST_TEST_FOLDER": str(tmp_path),
        "HOLDFAST_WORKSPACES": str(tmp_path / "workspaces"),
        streams.GATES: str(tmp_path),
    }
    asyncio.run(story(scene))
