"""The console in a browser: signing in, what needs somebody, acting by keyboard, kills and outages as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.server.savings import Savings
from tests.console.acme_store import kill, worker
from tests.console.browser import Looks, looking, needs_browser
from tests.console.served import Served, start_run, store_in
from tests.eventually import eventually_now

pytestmark = needs_browser
_PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A store, and a worker that knows all agents but the one that tests kill."""
    url = store_in(tmp_path_factory.mktemp("console"))
    with Served(url) as served:
        beside = worker(url, "refund", "billing", "deploy", "research", "reviewer", pace=0.05)
        try:
            yield served
        finally:
            kill(beside)


def test_somebody_signs_in_answers_by_keyboard_and_hears_who_was_first(served: Served) -> None:
    start_run(served, "refund", "refund-1", order="A-1", cents=2400)
    start_run(served, "refund", "refund-2", order="A-2", cents=900)

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/"))
        await page.get_by_text("Refund €24 for order A-1?").wait_for(timeout=_PATIENCE_MS)
        assert "#" not in page.url, "the token is taken out of the address"
        await page.get_by_text("live", exact=True).wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("g")
        await page.keyboard.press("q")
        await page.get_by_role("heading", name="Questions").wait_for()
        await page.get_by_role("link", name="Refund €24 for order A-1?").click()
        await page.get_by_role("heading", name="Refund €24 for order A-1?").wait_for()
        await page.keyboard.press("Control+Enter")
        await page.get_by_text("Choose one.").wait_for()  # nothing is decided for somebody
        await page.keyboard.press("a")  # to the form
        await page.keyboard.press("ArrowRight")
        await page.get_by_text("holdfast answer q_").filter(has_text=" no").wait_for()
        await page.keyboard.press("Control+Enter")
        await page.get_by_text("It is answered.").wait_for(timeout=_PATIENCE_MS)
        assert served.ask("GET", "/questions?run=refund-1") == {"items": [], "next": None}

        await page.get_by_role("link", name="Refund €9 for order A-2?").click()
        await page.get_by_role("heading", name="Refund €9 for order A-2?").wait_for()
        question = served.ask("GET", "/questions?run=refund-2")["items"][0]
        await page.context.set_offline(True)  # this one does not hear of it
        answer = {"value": True, "shown": question["shown"], "note": "I was first"}
        served.ask("POST", f"/questions/{question['id']}/answer", answer)
        await page.keyboard.press("a")
        await page.keyboard.press("Space")
        await page.context.set_offline(False)
        await page.keyboard.press("Control+Enter")
        await page.get_by_text("I was first").wait_for(timeout=_PATIENCE_MS)
        assert await looks.refused(page) == []
        assert looks.problems == []

    _played(play)


def test_a_kill_and_a_resume_appear_on_the_page_without_a_reload(served: Served) -> None:
    first = worker(served.url, "crawl", pace=0.5, stands_at="https://example.org/p/12")
    start_run(served, "crawl", "crawl-1", pages=90)

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/crawl-1"))
        await page.evaluate("globalThis.isTheSame = true")
        await page.get_by_text("fetch#6", exact=True).wait_for(timeout=_PATIENCE_MS)
        kill(first)
        await page.locator(".run-head .status-cut_off").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_text("Its process died.").wait_for()
        second = worker(served.url, "crawl", pace=0.05)
        try:
            await page.locator(".receipts li", has_text="from the journal").wait_for(timeout=_PATIENCE_MS)
            await page.locator(".lanes-back .down").wait_for(state="attached", timeout=_PATIENCE_MS)
            await page.locator(".run-head .status-done").wait_for(timeout=_PATIENCE_MS)
            rows = page.locator(".timeline .rows")
            await page.wait_for_function("() => document.querySelector('.rows').getAttribute('aria-rowcount') === '90'")
            assert await rows.count() == 1
            assert await page.evaluate("globalThis.isTheSame"), "nobody loaded it anew"
            assert await looks.refused(page) == []
            assert looks.problems == []
        finally:
            kill(second)

    _played(play)

    async def saved() -> dict[str, Any]:
        async with hf.connect(served.url) as app:
            return await Savings(app).last_day()

    told = asyncio.run(saved())
    assert told["outages"] == 1
    assert told["saved_s"] > 0.5, "calls that took a second need not be made again"
    assert told["is_all"]


def test_a_server_that_was_killed_is_said_to_be_away_and_nothing_is_lost(tmp_path: Path) -> None:
    with Served(store_in(tmp_path)) as served:
        start_run(served, "refund", "waits-1", order="A-1", cents=100)

        async def play(looks: Looks) -> None:
            page = await looks.page(served.at("/runs"))
            await page.get_by_role("link", name="waits-1").wait_for(timeout=_PATIENCE_MS)
            await page.get_by_text("live", exact=True).wait_for(timeout=_PATIENCE_MS)
            served.kill()
            await page.get_by_text("Not live since").wait_for(timeout=_PATIENCE_MS)
            assert await page.get_by_role("link", name="waits-1").is_visible(), "what was there stays"
            served.start()
            start_run(served, "refund", "waits-2", order="A-2", cents=100)
            await page.get_by_text("live", exact=True).wait_for(timeout=_PATIENCE_MS)
            await page.get_by_role("link", name="waits-2").wait_for(timeout=_PATIENCE_MS)
            await page.get_by_text("Not live since").wait_for(state="detached")

        _played(play)


def test_an_act_shows_its_command_asks_why_and_is_recorded(served: Served) -> None:
    start_run(served, "deploy", "deploy-1", version="2.14.0")

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/deploy-1"))
        await page.locator(".run-head .status-asks").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("p")
        await page.get_by_role("heading", name="Pause deploy-1?").wait_for()
        await page.keyboard.type("until noon")
        await page.get_by_text("holdfast pause deploy-1 --note 'until noon'").wait_for()
        await page.keyboard.press("Enter")
        await page.locator(".run-head .status-paused").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("c")
        await page.get_by_role("heading", name="Cancel deploy-1?").wait_for()
        await page.keyboard.press("Escape")
        await page.get_by_role("heading", name="Cancel deploy-1?").wait_for(state="detached")
        assert looks.problems == []

    _played(play)
    eventually_now(lambda: served.ask("GET", "/runs/deploy-1")["status"] == "paused")
    notes = [
        each["payload"]["json"] for each in served.ask("GET", "/runs/deploy-1/records")["items"] if each["payload"]
    ]
    assert any("until noon" in note for note in notes)


def _played(play: Callable[[Looks], Awaitable[None]]) -> None:
    async def go() -> None:
        async with looking() as looks:
            await play(looks)

    asyncio.run(go())
