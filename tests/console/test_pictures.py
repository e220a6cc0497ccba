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
#: file: (screen, height)
_MADE = {"run.png": ("run", 1120), "gap.png": ("run-gap", 420)}


def test_the_pictures_of_the_pages_can_be_made(acme: Served, tmp_path: Path) -> None:
    folder = _PICTURES if os.environ.get("UPDATE_DOCS") else tmp_path

    async def go() -> None:
        async with looking() as looks:
            page = await looks.page(acme.at("/"), width=1280, height=1120)
            await page.locator(".needs li").first.wait_for(timeout=60_000)
            for name, (screen, height) in _MADE.items():
                await page.set_viewport_size({"width": 1280, "height": height})
                path, seen = SCREENS[screen]
                await page.goto(acme.bare(path))
                await page.locator(seen).first.wait_for(timeout=60_000)
                await page.wait_for_timeout(500)
                await page.screenshot(path=folder / name)

    asyncio.run(go())
    for name in _MADE:
        assert (folder / name).stat().st_size > 20_000
        assert (_PICTURES / name).exists()
