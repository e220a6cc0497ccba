"""Workers on two machines (each with a directory of its own): one is stopped or killed, the other goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.files import agents
from tests.forkserver import Forked, ForkServer, eventually
from tests.ownership.scene import BRIEF_S, Scene
from tests.stores import forkserver

__all__ = ["forkserver"]


class Hosts(Scene):
    """Workers that share a store and no directory."""

    def __init__(self, folder: Path, forkserver: ForkServer) -> None:
        super().__init__(folder, forkserver)
        self._agents = agents.__name__
        self.env["HOLDFAST_TEST_FOLDER"] = str(folder)

    def on(self, host: str, **settings: Any) -> Forked:
        """A worker on a machine."""
        return self.worker(env={"HOLDFAST_WORKSPACES": str(self.folder / host)}, **settings)


def live(folder: Path, forkserver: ForkServer, story: Callable[[Hosts], Awaitable[None]]) -> None:
    async def told() -> None:
        async with Hosts(folder, forkserver) as hosts:
            await story(hosts)

    asyncio.run(told())


@pytest.mark.postgres
def test_a_step_of_a_zombie_leaves_no_file_and_the_next_host_finds_the_last_version(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    async def story(hosts: Hosts) -> None:
        run = await hosts.app.start(agents.holding("gate"))
        old = hosts.on("a", lease_s=BRIEF_S)
        await hosts.wait_reached("gate", old)
        await hosts.stop(old)
        new = hosts.on("b")
        await hosts.wait_reached("gate", new)
        before = await hosts.row(run)
        hosts.open("gate", old)
        old.go_on()
        await hosts.lost(old, run)
        assert await hosts.row(run) == before
        hosts.open("gate", new)
        found, last = await run.result(60)
        assert found == ["src/", "src/1.py 644 9"]
        assert last == ["end 644 3", f"of-{new.pid} 644 4", "src/", "src/1.py 644 9"]
        listed = await run.artifacts()
        assert [(each.name, each.version) for each in listed if each.kind == "file"] == [("who", 1)]
        who = next(each for each in listed if each.name == "who")
        assert await who.read() == str(new.pid).encode()
        assert [each.version for each in listed if each.kind == "workspace"] == [1, 2, 3]

    live(tmp_path, forkserver, story)


def test_a_killed_step_is_taken_back_on_its_own_host_too(tmp_path: Path, forkserver: ForkServer) -> None:
    async def story(hosts: Hosts) -> None:
        run = await hosts.app.start(agents.holding("gate"))
        first = hosts.on("a")
        await hosts.wait_reached("gate", first)
        first.kill()
        second = hosts.on("a")
        await hosts.wait_reached("gate", second)
        hosts.open("gate", second)
        assert (await run.result(60))[1] == ["end 644 3", f"of-{second.pid} 644 4", "src/", "src/1.py 644 9"]
        await eventually(lambda: not list((hosts.folder / "a").glob("*")), what="the directories of the run to be gone")

    live(tmp_path, forkserver, story)
