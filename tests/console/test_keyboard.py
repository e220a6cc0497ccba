"""What people do on the pages without a mouse. Nothing here is clicked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.console.acting import acting, until
from tests.console.browser import Looks, needs_browser, played
from tests.console.served import Served, start_run, store_in

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [needs_browser, pytest.mark.prove]
_PATIENCE_MS = 20_000
#: What has the focus is called so, as somebody hears it.
_NAMED = """(name) => {
  const here = document.activeElement;
  const said = here?.getAttribute("aria-label") || here?.labels?.[0]?.textContent || here?.textContent || "";
  return said.trim().startsWith(name);
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with acting(store_in(tmp_path_factory.mktemp("keyboard"))) as served:
        yield served


async def _reach(page: Page, name: str) -> None:
    """Go on by Tab until what is called so has the focus."""
    for _ in range(150):
        await page.keyboard.press("Tab")
        if await page.evaluate(_NAMED, name):
            return
    raise AssertionError(f"Tab does not come to {name!r}")


async def _press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def _go(page: Page, words: str, heading: str) -> None:
    """By the search, which every page has."""
    await page.keyboard.press("/")
    await page.get_by_role("heading", name="Search or go to").wait_for()
    await page.keyboard.type(words)
    await page.get_by_role("option", name=words).first.wait_for(timeout=_PATIENCE_MS)
    while not await page.locator("[role=option][aria-selected=true]", has_text=words).count():
        await page.keyboard.press("ArrowDown")
    if await page.locator("[role=option][aria-selected=true]", has_text="Runs that fit").count():
        await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name=heading, exact=True).first.wait_for(timeout=_PATIENCE_MS)


def test_what_needs_somebody_is_answered_from_the_overview(served: Served) -> None:
    start_run(served, "refund", "refund-k", order="A-1", cents=2400)
    until(served, "refund-k", "waiting")

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/"))
        await page.get_by_text("Refund €24 for order A-1?").wait_for(timeout=_PATIENCE_MS)
        await _reach(page, "No: Refund")
        await page.keyboard.press("Enter")
        await page.get_by_text("Refund €24 for order A-1?", exact=True).wait_for(state="detached", timeout=_PATIENCE_MS)
        await _press(page, "j", "Enter")  # the first row is a payment that is in doubt
        await page.get_by_role("heading", name="In doubt", exact=True).wait_for(timeout=_PATIENCE_MS)

    played(play)
    until(served, "refund-k", "done")
    assert "refused" in served.ask("GET", "/runs/refund-k")["result"]["json"]


def test_a_question_is_declined_and_a_form_is_filled_in(served: Served) -> None:
    start_run(served, "deploy", "deploy-k", version="3")
    start_run(served, "research", "report-k", topic="tides")
    until(served, "deploy-k", "waiting")
    until(served, "report-k", "waiting")

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/questions"))
        await page.get_by_role("link", name="Where shall 3 go?").wait_for(timeout=_PATIENCE_MS)
        await _reach(page, "Where shall 3 go?")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Where shall 3 go?").wait_for()
        await _reach(page, "Decline")
        await page.keyboard.press("Enter")
        await page.get_by_text("It is declined.").wait_for(timeout=_PATIENCE_MS)

        await page.get_by_role("link", name="Release the report on tides?").wait_for(timeout=_PATIENCE_MS)
        await _reach(page, "Release the report on tides?")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Release the report on tides?").wait_for()
        await page.keyboard.press("a")
        await page.keyboard.press("ArrowDown")  # of those who can read it, the second
        await page.get_by_text("audience=team").wait_for()
        await _reach(page, "title")
        await page.keyboard.type("Tides")
        await page.keyboard.press("Control+Enter")
        await page.get_by_text("It is answered.").wait_for(timeout=_PATIENCE_MS)

    played(play)
    until(served, "report-k", "done")
    assert "released to team" in served.ask("GET", "/runs/report-k")["result"]["json"]


def test_a_doubt_is_settled(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/"))
        await page.get_by_text("live", exact=True).wait_for(timeout=_PATIENCE_MS)
        await _press(page, "g", "d")
        card = page.locator(".doubt-card", has_text="bill-1")
        await card.wait_for(timeout=_PATIENCE_MS)
        for _ in range(60):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.name?.startsWith('v-bill-1')"):
                break
        await page.keyboard.press("ArrowDown")
        assert await card.get_by_label("It did not happen").is_checked()
        await page.keyboard.press("ArrowUp")
        await _reach(page, "Its result, as JSON")
        await page.keyboard.type('"ch_9"')
        await _reach(page, "How do you know?")
        await page.keyboard.type("it is on the statement")
        await page.keyboard.press("Enter")
        await card.wait_for(state="detached", timeout=_PATIENCE_MS)

    played(play)
    until(served, "bill-1", "done")


def test_the_calls_of_a_run_are_walked_through_and_looked_at(served: Served) -> None:
    start_run(served, "research", "walked", topic="wind")
    until(served, "walked", "waiting")

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/walked"))
        rows = page.get_by_role("treegrid", name="Calls")
        await rows.get_by_text("plan#1").wait_for(timeout=_PATIENCE_MS)
        await _press(page, "j", "Home")
        inspector = page.get_by_role("complementary", name="The call that is selected")
        await inspector.get_by_role("heading", name="plan", exact=True).wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("ArrowDown")
        count = await rows.get_attribute("aria-rowcount")
        await page.keyboard.press("ArrowLeft")  # a branch is folded
        await page.wait_for_function(
            "(count) => document.querySelector('.rows').getAttribute('aria-rowcount') !== count", arg=count
        )
        await page.keyboard.press("ArrowRight")
        await page.wait_for_function(
            "(count) => document.querySelector('.rows').getAttribute('aria-rowcount') === count", arg=count
        )
        await page.keyboard.press("End")
        await inspector.get_by_text("ask#1").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("n")  # nothing is wrong behind it: it stays
        await inspector.get_by_text("ask#1").wait_for()
        whole = await page.locator(".rows .bar.child").bounding_box()
        assert whole is not None
        await rows.get_by_text("reviewer#1").wait_for()
        await _press(page, "k", "k", "k", *["+"] * 8)  # it waits for somebody by far the most of its time
        wide = "([least]) => document.querySelector('.rows .bar.child')?.getBoundingClientRect().width > least"
        await page.wait_for_function(wide, arg=[1.5 * whole["width"]], timeout=_PATIENCE_MS)
        await page.keyboard.press("z")
        await page.wait_for_function(f"(given) => !({wide})(given)", arg=[1.5 * whole["width"]], timeout=_PATIENCE_MS)
        await page.keyboard.press("Escape")
        await page.get_by_text("Choose a call").wait_for(timeout=_PATIENCE_MS)
        tabs = await page.evaluate("[...document.querySelectorAll('[role=tab]')].map((each) => each.id)")
        assert {"tab-story", "tab-journal", "tab-children", "tab-activity", "tab-values"} < set(tabs)
        for each in tabs[1:]:
            await page.keyboard.press("]")
            await page.locator(f"#{each}[aria-selected=true]").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("[")
        await page.locator(f"#{tabs[-2]}[aria-selected=true]").wait_for()
        await _reach(page, "More")
        await page.keyboard.press("Enter")
        await _reach(page, "Verify every byte")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="verified").wait_for(timeout=_PATIENCE_MS)
        await _reach(page, "More")
        await page.keyboard.press("Enter")
        await _reach(page, "Compare with another run")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Compare two runs").wait_for(timeout=_PATIENCE_MS)
        await _reach(page, "Another")
        await page.keyboard.type("bill-2")
        await page.keyboard.press("Enter")
        await page.get_by_role("cell", name="charge_card#1").wait_for(timeout=_PATIENCE_MS)
        await page.goto(served.bare("/runs/bill-2"))
        await inspector.get_by_text("Waits for you").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("Escape")
        await page.get_by_text("Choose a call").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("N")
        await inspector.get_by_text("Waits for you").wait_for(timeout=_PATIENCE_MS)

    played(play)


def test_many_runs_are_paused_and_filters_are_written(served: Served) -> None:
    for number in range(3):
        start_run(served, "watch_price", f"price-k{number}", product="kettle")
        until(served, f"price-k{number}", "sleeping")

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs"))
        await page.get_by_role("link", name="price-k2").wait_for(timeout=_PATIENCE_MS)
        await _reach(page, "Filter runs")
        await page.keyboard.type("agent:watch_price stat:sleeping")
        await page.keyboard.press("Enter")
        await page.get_by_text("There is no term “stat:”").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("Backspace")
        await page.get_by_role("link", name="bill-2", exact=True).wait_for(state="detached", timeout=_PATIENCE_MS)
        await page.keyboard.press("Escape")
        await _press(page, "j", "x", "j", "x")
        await page.get_by_text("2 selected").wait_for()
        await _reach(page, "Pause…")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Pause 2 runs?").wait_for()
        await page.keyboard.press("Enter")
        await page.get_by_text("2 paused:").wait_for(timeout=_PATIENCE_MS)
        await _press(page, "Escape", "j", "x")
        await page.get_by_text("1 selected").wait_for()
        await _reach(page, "Resume…")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Resume 1 run?").wait_for()
        await page.keyboard.press("Enter")
        await page.get_by_text("1 resumed:").wait_for(timeout=_PATIENCE_MS)

    played(play)


def test_what_starts_runs_is_paused_run_and_resumed(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/"))
        await page.get_by_text("live", exact=True).wait_for(timeout=_PATIENCE_MS)
        for where, path in (("Schedules", "schedules"), ("Triggers", "triggers"), ("Queues", "queues")):
            await _go(page, where, where)
            await page.get_by_role("button", name="Pause").wait_for(timeout=_PATIENCE_MS)
            for before, after in (("Pause", "Resume"), ("Resume", "Pause")):
                await _reach(page, before)
                await page.keyboard.press("Enter")
                await page.get_by_text(f"holdfast {path} {before.lower()}").wait_for()
                await page.keyboard.press("Enter")  # in the note
                await page.get_by_role("button", name=after, exact=True).wait_for(timeout=_PATIENCE_MS)
        await _go(page, "Integrity", "Integrity")
        await _reach(page, "Verify")
        await page.keyboard.press("Enter")
        told = page.get_by_text(": all fit.")
        await told.wait_for(timeout=_PATIENCE_MS)
        runs, records = (
            int(number) for number in re.findall(r"(\d+) r", (await told.inner_text()).replace("\u202f", ""))
        )
        assert records >= 3 * runs > 0, "each was started, taken up and recorded something"
        for where in ("Workers", "Threads"):
            await _go(page, where, where)
            await page.locator(".table tbody tr").first.wait_for(timeout=_PATIENCE_MS)

    played(play)


def test_a_run_is_started_and_cancelled_and_the_keys_and_colours_are_found(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs"))
        await page.get_by_role("button", name="Start a run…").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("?")
        await page.get_by_role("heading", name="Keys", exact=True).wait_for()
        await page.keyboard.press("Escape")
        await _reach(page, "Colours: auto")
        await page.keyboard.press("Enter")
        await page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
        await _reach(page, "Start a run…")
        await page.keyboard.press("Enter")
        await page.keyboard.type("watch_price")
        await _press(page, "Tab", "Control+A")
        await page.keyboard.type('{"product": "lamp"}')
        await page.keyboard.press("Tab")
        await page.keyboard.type("lamp-k")
        await _reach(page, "Start")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="watch_price").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("c")
        await page.get_by_role("heading", name="Cancel lamp-k?").wait_for(timeout=_PATIENCE_MS)
        await _reach(page, "Cancel the run")
        await page.keyboard.press("Enter")
        await page.locator(".run-head .status-cancelled").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("u")
        await page.get_by_role("heading", name="Runs", exact=True).wait_for(timeout=_PATIENCE_MS)

    played(play)
    until(served, "lamp-k", "cancelled")
