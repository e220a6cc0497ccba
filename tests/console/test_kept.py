"""The parts of a run's page that show what it keeps: states, artifacts, streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import holdfast as hf
from tests.console import acme as company
from tests.console.acme_store import has_said, kill, standing, worker
from tests.console.browser import Looks, needs_browser, played
from tests.console.served import Served, store_in
from tests.eventually import eventually

pytestmark = [needs_browser, pytest.mark.prove]
_PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A handbook of three turns, whose writer was killed in the middle of a sentence."""
    url = store_in(tmp_path_factory.mktemp("kept"))

    async def prepare() -> None:
        async with hf.connect(url) as app:
            writers = [worker(url, "handbook")]
            try:
                await app.start(company.handbook("shop"), id="k")
                await eventually(has_said(app, "k", "parcel"), timeout=60)
                kill(writers.pop())
                writers.append(worker(url, "handbook", code="new"))
                await eventually(standing(app, "k", "waiting"), timeout=60)
            finally:
                for each in writers:
                    kill(each)

    asyncio.run(prepare())
    with Served(url) as served:
        yield served


def test_states_are_chosen_by_slider_and_list_and_compared_with_any_other(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/k?tab=state"))
        await page.get_by_text("Turn 3 of 3").wait_for(timeout=_PATIENCE_MS)
        await page.locator(".diff li", has_text="phase").locator("ins", has_text="Returns is written").wait_for()
        await page.locator(".diff li", has_text="left[0]").locator("del", has_text="Returns").wait_for()
        await page.get_by_role("slider", name="Turn").press("ArrowLeft")
        await page.get_by_text("Turn 2 of 3").wait_for()
        await page.locator(".diff del", has_text="planned").wait_for()
        await page.get_by_role("list", name="Turns").get_by_role("button", name="turn 3").click()
        await page.get_by_text("Turn 3 of 3").wait_for()
        await page.get_by_role("textbox", name="Differences to turn").fill("1")
        await page.keyboard.press("Tab")
        await page.locator(".diff del", has_text="planned").wait_for()
        await page.get_by_role("button", name="whole state").click()
        await page.locator(".json", has_text="landlord").wait_for()
        assert await looks.refused(page) == []

    played(play)


def test_artifacts_are_looked_at_compared_and_checked(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/k?tab=artifacts"))
        await page.get_by_role("cell", name="draft-pr").wait_for(timeout=_PATIENCE_MS)
        dialog = page.get_by_role("dialog")
        await page.get_by_role("button", name="handbook.md").first.click()
        await dialog.get_by_text("## Opening").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("Escape")
        await dialog.wait_for(state="detached")
        assert await page.evaluate("document.activeElement.textContent") == "handbook.md", "the focus is where it was"
        await page.keyboard.press("Enter")
        await dialog.get_by_text("## Opening").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="v2, difference").click()
        await dialog.locator("ins", has_text="## Returns").wait_for(timeout=_PATIENCE_MS)
        assert await dialog.locator("del").count() == 0
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="cover.png").click()
        width = "document.querySelector('.picture')?.naturalWidth === 240"
        await page.wait_for_function(width, timeout=_PATIENCE_MS)
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Check every byte").click()
        await page.locator(".status-done", has_text="intact").nth(3).wait_for(timeout=_PATIENCE_MS)
        await page.get_by_role("link", name="@2/hf.artifact#1").click()
        await page.get_by_role("heading", name="hf.artifact").wait_for(timeout=_PATIENCE_MS)
        assert await looks.refused(page) == []

    played(play)


def test_what_a_killed_writer_had_said_is_kept_and_marked(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/k?tab=streams"))
        await page.locator(".salvaged", has_text="A parcel").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_text("its process was lost").wait_for()
        await page.get_by_text("salvaged, not part of the result").wait_for()
        whole = page.locator("pre:not(.salvaged)", has_text="What is heavier than it was is not ours.")
        await whole.wait_for()
        assert await page.locator("pre:not(.salvaged)").count() == 3, "one for each chapter"

    played(play)


def test_a_receipt_tells_what_had_changed_outside_meanwhile(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/k"))
        told = page.get_by_role("list", name="Receipts").get_by_role("listitem")
        await told.get_by_text("Changed outside: house style").wait_for(timeout=_PATIENCE_MS)
        text = await told.inner_text()
        assert "version 7, of March → version 8, of November" in text
        assert "it went on" in text
        assert "from the journal" in text
        await page.goto(served.bare("/"))
        await page.locator(".tiles div", has_text="Outages, 24 h").get_by_text("1", exact=True).wait_for()
        await page.locator(".tiles div", has_text="Outages, 24 h").get_by_text("all recovered").wait_for()
        saved = page.locator(".tiles div", has_text="Saved by resuming")
        assert "$0.03" in await saved.inner_text(), "the chapter that was written need not be paid for again"

    played(play)


def test_the_head_of_a_turn_is_no_call_that_was_cut_off(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/k"))
        await page.get_by_text("turn 3", exact=True).wait_for(timeout=_PATIENCE_MS)
        assert await page.locator(".timeline .took.loud").count() == 0

    played(play)
