"""The parts of a run's page that show what it keeps: states, artifacts, streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import holdfast as hf
from tests.console.browser import looking, needs_browser
from tests.console.served import Served, store_in
from tests.eventually import eventually
from tests.server.agents import keeper

pytestmark = [needs_browser, pytest.mark.prove]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = store_in(tmp_path_factory.mktemp("kept"))

    async def prepare() -> None:
        async with hf.connect(url, agents=[keeper]) as app:
            run = await app.start(keeper(), id="k")
            for number in (4, 5):
                await run.send("number", number)

            async def is_there() -> bool:
                return len(await run.checkpoints()) == 3 and (await run.status()) is hf.Status.waiting

            await eventually(is_there)

    asyncio.run(prepare())
    with Served(url) as served:
        yield served


def test_states_artifacts_and_streams_are_shown(served: Served) -> None:
    async def go() -> None:
        async with looking() as looks:
            page = await looks.page(served.at("/runs/k?tab=state"))
            await page.get_by_text("Turn 3 of 3").wait_for()
            await page.get_by_text("seen[1]").wait_for()
            slider = page.get_by_role("slider", name="Turn")
            await slider.press("ArrowLeft")
            await page.get_by_text("Turn 2 of 3").wait_for()
            await page.get_by_text("seen[0]").wait_for()
            await page.get_by_role("tab", name="Artifacts").click()
            await page.get_by_role("link", name="a/<b>.html").wait_for()
            await page.get_by_text("https://example.org/1").wait_for()
            await page.get_by_role("tab", name="Streams").click()
            await page.get_by_text("one two").wait_for()
            assert looks.problems == []

    asyncio.run(go())
