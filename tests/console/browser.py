"""A browser that looks at a console, and keeps what went wrong in it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


def _candidates() -> Iterator[str]:
    yield os.environ.get("HOLDFAST_CHROMIUM", "")
    for name in _NAMES:
        yield shutil.which(name) or ""


BROWSER = next((path for path in _candidates() if path and os.access(path, os.X_OK)), "")
_WHY = (
    "playwright is not installed"
    if find_spec("playwright") is None
    else "no Chromium was found: install it (apt-get install chromium), or name one with HOLDFAST_CHROMIUM"
)
needs_browser = pytest.mark.skipif(not BROWSER or find_spec("playwright") is None, reason=_WHY)

#: Put into each page before its own scripts: tells of what the policy refuses.
_WATCH = """
globalThis.refused = [];
document.addEventListener("securitypolicyviolation", (event) => refused.push(
  `${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


class Looks:
    """Contexts of one browser. Whatever goes wrong in a page of theirs is in `problems`."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.problems: list[str] = []

    async def context(self, *, width: int = 1280, height: int = 900, **options: Any) -> BrowserContext:
        made = await self._browser.new_context(viewport={"width": width, "height": height}, **options)
        await made.add_init_script(_WATCH)
        made.on("weberror", lambda error: self.problems.append(str(error.error)))
        made.on("console", lambda said: self.problems.append(said.text) if _is_bad(said) else None)
        return made

    async def page(self, address: str, **options: Any) -> Page:
        """A page in a context of its own."""
        page = await (await self.context(**options)).new_page()
        await page.goto(address)
        return page

    async def refused(self, page: Page) -> list[str]:
        """What the policy has refused."""
        found: list[str] = await page.evaluate("globalThis.refused")
        return found


def _is_bad(said: Any) -> bool:
    # A server that is away, or does not know a resource yet, is told as a failed load; the page says it itself.
    return said.type == "error" and not said.text.startswith("Failed to load resource")


@asynccontextmanager
async def looking() -> AsyncIterator[Looks]:
    """A browser, until the block ends."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=BROWSER, args=_FLAGS)
        try:
            yield Looks(browser)
        finally:
            await browser.close()


def played(play: Callable[[Looks], Awaitable[None]]) -> None:
    """What somebody does in a browser, none of whose pages may have a problem."""

    async def go() -> None:
        async with looking() as looks:
            await play(looks)
            assert looks.problems == []

    asyncio.run(go())
