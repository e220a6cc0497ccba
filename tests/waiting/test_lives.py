"""The lives of these tests are only worth something if it is noticed that nobody was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from tests.forkserver import ForkServer
from tests.waiting import agents
from tests.waiting.killed import live
from tests.waiting.scene import Scene


def test_a_life_in_which_nobody_was_killed_is_reported(tmp_path: Path, forkserver: ForkServer) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        count = 1 if scene.folder.name == "undisturbed" else 0
        run = await app.start(agents.collect(count), id="r")
        if count:  # the other one may be over by now
            await run.send("number", 1)
        return len(await run.result(timeout=60)) - count

    with pytest.raises(AssertionError) as caught:
        live(tmp_path, forkserver, drive, only=("effect.after_body",))
    assert str(caught.value).startswith("nobody was killed at ['effect.after_body@1'], in 3 lives each")


def test_a_point_that_is_passed_after_the_end_is_one_where_somebody_dies(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        return await (await app.start(agents.collect(0), id="r")).result(timeout=60)

    assert live(tmp_path, forkserver, drive, only=("finish.after",)).killed_at == ["finish.after"]
