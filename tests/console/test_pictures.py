"""The pictures of the documentation are made from the company's store.

UPDATE_DOCS=1 writes them anew.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.console.browser import looking, needs_browser
from tests.console.screens import SCREENS
from tests.console.served import Served

pytestmark = [needs_browser, pytest.mark.prove]
_PICTURES = Path(__file__).parents[2] / "docs/pictures"


def test_the_pictures_of_the_pages_can_be_made(acme: Served, tmp_path: Path) -> None:
    folder = _PICTURES if os.environ.get("UPDATE_DOCS") else tmp_path

    async def go() -> None:
        async with looking() as looks:
            page = await looks.page(acme.at("/"), width=1280, height=1120)
            path, seen = SCREENS["run"]
            await page.locator(".needs li").first.wait_for(timeout=60_000)
            await page.goto(acme.bare(path))
            await page.locator(seen).first.wait_for(timeout=60_000)
            await page.wait_for_timeout(500)
            await page.screenshot(path=folder / "run.png")

    asyncio.run(go())
    assert (folder / "run.png").stat().st_size > 20_000
    assert (_PICTURES / "run.png").exists()
