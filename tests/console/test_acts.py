"""What people do on the pages, by mouse and by keyboard, and what the store has of it afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.console.acting import acting, until
from tests.console.browser import Looks, needs_browser, played
from tests.console.served import Served, start_run, store_in

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [needs_browser, pytest.mark.prove]
_PATIENCE_MS = 60_000
_OTHER_TICKS = """(given) => {
  const ticks = [...document.querySelectorAll(".axis .tick")].map((each) => each.innerText);
  return JSON.stringify(ticks) !== JSON.stringify(given);
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with acting(store_in(tmp_path_factory.mktemp("acts"))) as served:
        yield served


def test_a_form_is_filled_in_with_errors_at_its_fields(served: Served) -> None:
    start_run(served, "research", "report-1", topic="tides")
    until(served, "report-1", "waiting")

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/questions"))
        await page.get_by_role("link", name="Release the report on tides?").click()
        await page.get_by_role("button", name="Answer").click()
        await page.get_by_text("Choose one.").wait_for()
        await page.get_by_text("At least 3 characters.").wait_for()
        await page.get_by_label("team").check()
        await page.get_by_role("textbox", name="title").fill("Tides")
        await page.get_by_role("textbox", name="priority").fill("9")
        await page.get_by_role("textbox", name="labels").fill("sea, moon")
        await page.get_by_label("Note").fill("read it twice")
        await page.get_by_role("button", name="Answer").click()
        await page.get_by_text("At most 5.").wait_for()
        await page.get_by_role("textbox", name="priority").fill("2")
        await page.get_by_text("audience=team").wait_for()
        await page.keyboard.press("Control+Enter")
        await page.get_by_text("It is answered.").wait_for(timeout=_PATIENCE_MS)

    played(play)
    until(served, "report-1", "done")
    assert "released to team" in served.ask("GET", "/runs/report-1")["result"]["json"]


def test_a_doubt_is_settled_once_it_is_said_what_became_of_it_and_how_that_is_known(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/in-doubt"))
        card = page.locator(".doubt-card", has_text="bill-1")
        await card.wait_for(timeout=_PATIENCE_MS)
        settle = card.get_by_role("button", name="Settle")
        assert await settle.is_disabled()
        await card.get_by_text("Choose what became of it.").wait_for()
        await card.get_by_label("It happened").check()
        await card.get_by_label("Its result, as JSON").fill("ch_1")
        await card.get_by_text("This is no JSON").wait_for()
        await card.get_by_label("Its result, as JSON").fill('"ch_1"')
        assert await settle.is_disabled(), "nobody has said how it is known"
        await card.get_by_label("How do you know?").fill("it is on the statement")
        await card.get_by_text("final, and recorded").wait_for()
        await settle.click()
        await card.wait_for(state="detached", timeout=_PATIENCE_MS)
        other = page.locator(".doubt-card", has_text="bill-2")
        await other.get_by_label("Fail the call").check()
        await other.get_by_label("What the agent is told").fill("the bank says no")
        await other.get_by_label("How do you know?").fill("called them")
        await other.get_by_text("holdfast resolve bill-2 'charge_card#1' --fail").wait_for()
        await page.keyboard.press("Enter")
        await page.get_by_text("Nothing is in doubt").wait_for(timeout=_PATIENCE_MS)

    played(play)
    until(served, "bill-1", "done")
    until(served, "bill-2", "failed")


def test_runs_are_cancelled_retried_and_paused_and_many_at_once(served: Served) -> None:
    for number in range(4):
        start_run(served, "watch_price", f"price-{number}", product="kettle")
        until(served, f"price-{number}", "sleeping")

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/price-0"))
        await page.get_by_role("button", name="Cancel…").click()
        await page.get_by_label("End it at once").check()
        await page.get_by_text("holdfast cancel price-0 --kill").wait_for()
        await page.get_by_role("button", name="Cancel the run").click()
        await page.locator(".run-head .status-cancelled").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("r")
        await page.get_by_role("heading", name="Retry price-0?").wait_for()
        await page.keyboard.press("Enter")
        await page.locator(".run-head .status-sleeping").wait_for(timeout=_PATIENCE_MS)

        await page.goto(served.bare("/runs?q=agent%3Awatch_price"))
        await page.get_by_role("link", name="price-3").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await page.get_by_text("2 selected").wait_for()
        await page.get_by_label("Select all that are shown").check()
        await page.get_by_text("4 selected").wait_for()
        await page.get_by_role("toolbar").get_by_role("button", name="Pause…").click()
        await page.get_by_role("button", name="Pause 4 runs").click()
        await page.get_by_text("4 paused:").wait_for(timeout=_PATIENCE_MS)
        await page.locator(".runs .status-paused").nth(3).wait_for(timeout=_PATIENCE_MS)

    played(play)


def test_the_filter_is_the_address_and_back_brings_it_again(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs"))
        await page.get_by_label("Filter runs").fill("agent:billing status:done")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/runs?q=agent%3Abilling*")
        await page.get_by_role("link", name="bill-1", exact=True).click()
        await page.get_by_role("heading", name="billing").wait_for(timeout=_PATIENCE_MS)
        await page.go_back()
        await page.get_by_role("button", name="Take away status:done").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_label("Filter runs").fill("colour:red owner:me")
        await page.keyboard.press("Enter")
        await page.get_by_text("There is no term “owner:”").wait_for()

    played(play)


def test_a_drag_chooses_a_time_in_the_histogram_and_on_the_map_of_a_run(served: Served) -> None:
    start_run(served, "crawl", "crawl-drag", pages=30)
    until(served, "crawl-drag", "done")

    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs"))
        await page.locator(".bins").wait_for(timeout=_PATIENCE_MS)
        await _drag(page, ".bins", 0.5, 0.99)
        await page.wait_for_url("**/runs?q=since%3A*until%3A*")
        await page.get_by_role("button", name="Take away since:").wait_for()
        await page.get_by_role("button", name="Take away until:").wait_for()

        await page.goto(served.bare("/runs/crawl-drag"))
        await page.get_by_text("fetch#1", exact=True).wait_for(timeout=_PATIENCE_MS)
        ticks = page.locator(".axis .tick")
        whole = await ticks.all_inner_texts()
        await _drag(page, ".map-box", 0.4, 0.6)
        await page.wait_for_function(_OTHER_TICKS, arg=whole)
        await page.get_by_role("button", name="Fit").click()
        await page.wait_for_function(f"(given) => !({_OTHER_TICKS})(given)", arg=whole)

    played(play)


async def _drag(page: Page, where: str, begin: float, end: float) -> None:
    box = await page.locator(where).bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + begin * box["width"], middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + end * box["width"], middle, steps=4)
    await page.mouse.up()


def test_what_starts_runs_is_paused_and_run(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/schedules"))
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_text("holdfast schedules pause daily").wait_for()
        await page.get_by_role("button", name="Pause it").click()
        await page.get_by_role("button", name="Resume").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_role("button", name="Run now").click()
        await page.get_by_role("button", name="Run it now").click()
        await page.get_by_role("heading", name="digest").wait_for(timeout=_PATIENCE_MS)
        for path, name in (("/triggers", "triggers pause tickets"), ("/queues", "queues pause gpu")):
            await page.goto(served.bare(path))
            await page.get_by_role("button", name="Pause").click()
            await page.get_by_text(f"holdfast {name}").wait_for()
            await page.get_by_role("button", name="Pause it").click()
            await page.get_by_role("button", name="Resume").wait_for(timeout=_PATIENCE_MS)

    played(play)


def test_a_run_is_started_and_found_and_one_that_is_not_there_yet_appears(served: Served) -> None:
    async def play(looks: Looks) -> None:
        waiting = await looks.page(served.at("/runs/soon"))
        await waiting.get_by_text("There is no run soon yet").wait_for(timeout=_PATIENCE_MS)
        page = await looks.page(served.at("/runs"))
        await page.get_by_role("button", name="Start a run…").click()
        await page.get_by_label("Agent", exact=True).fill("refund")
        await page.get_by_label("Arguments").fill('{"order": "A-9", "cents": 100}')
        await page.get_by_label("Id", exact=True).fill("soon")
        await page.get_by_role("button", name="Start", exact=True).click()
        await page.get_by_role("heading", name="refund").wait_for(timeout=_PATIENCE_MS)
        await waiting.locator(".run-head .status-asks").wait_for(timeout=_PATIENCE_MS)
        await waiting.get_by_text("ask#1", exact=True).wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("/")
        await page.keyboard.type("so")
        await page.get_by_role("option", name="soon").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/runs/soon")

    played(play)


def test_who_may_only_look_is_told_so(served: Served, tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    command = [sys.executable, "-m", "holdfast", "serve", "--users", str(users), "--add-user", "eva:viewer"]
    token = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    start_run(served, "deploy", "deploy-9", version="9")
    with Served(served.url, "--users", str(users)) as other:

        async def play(looks: Looks) -> None:
            page = await looks.page(f"{other.bare('/runs/deploy-9')}#t={token}")
            await page.locator(".run-head").wait_for(timeout=_PATIENCE_MS)
            assert await page.get_by_role("button", name="Pause").is_disabled()
            await page.keyboard.press("p")
            await page.get_by_text("You may look, not act").wait_for()

        played(play)
