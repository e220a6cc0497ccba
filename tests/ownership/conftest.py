"""Places with workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.testing import check_history
from tests.forkserver import ForkServer
from tests.ownership.scene import Scene
from tests.stores import forkserver

__all__ = ["forkserver", "live"]


@pytest.fixture
def live(tmp_path: Path, forkserver: ForkServer) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    """Have a story happen in a scene of its own; afterwards the journal and the ledger must agree."""

    def live(story: Callable[[Scene], Awaitable[None]]) -> None:
        scene = Scene(tmp_path, forkserver)

        async def told() -> None:
            async with scene:
                await story(scene)

        asyncio.run(told())
        found = check_history(scene.url, scene.ledger)
        # A worker that does not know yet that it lost a run may begin a step that another one has ended; no effect.
        assert [each for each in found if "a step's body began" not in each] == []

    return live
