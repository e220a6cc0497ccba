"""Forks, threads, plans and saved views: what the pages tell before an act, and what the store has afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import holdfast as hf
from tests.console import talk
from tests.console.browser import Looks, looking, needs_browser
from tests.console.served import Served, store_in
from tests.eventually import eventually
from tests.server.agents import keeper

pytestmark = needs_browser
_PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A letter that was sent, a conversation of three runs and a person, and a run with turns."""
    url = store_in(tmp_path_factory.mktemp("talk"))

    async def fill() -> None:
        async with hf.connect(url, agents=[*talk.ALL, keeper]) as app:
            await (await app.start(talk.letter("tides"), id="first")).result()
            await (await app.start(talk.support("My boat is called Tern."), id="chat-7a", thread_id="chat-7")).result()
            asking = await app.start(talk.support("What is her name?"), id="chat-7b", thread_id="chat-7")
            await eventually(lambda: _asks(asking))
            for question in await asking.questions():
                await question.answer(True, by="ana", note="they own it")
            await asking.result()
            await app.thread("chat-7", talk.Said).append(talk.Said("user", "Thank you <b>!"), by="cy")
            last = await app.start(talk.support("Where does she lie?"), id="chat-7c", thread_id="chat-7")
            turning = await app.start(keeper(), id="turning")
            await turning.send("number", 4)

            async def has_turned() -> bool:
                return len(await turning.checkpoints()) == 2 and await _asks(last)

            await eventually(has_turned)

    asyncio.run(fill())
    with Served(url) as served:
        yield served


async def _asks(run: hf.Run[str]) -> bool:
    return await run.status() is hf.Status.waiting


def _played(play: Callable[[Looks], Awaitable[None]]) -> None:
    async def go() -> None:
        async with looking() as looks:
            await play(looks)
            assert looks.problems == []

    asyncio.run(go())


def test_a_fork_tells_what_it_would_be_and_is_made_by_mouse_and_by_keyboard(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/first?call=search%231"))
        await page.get_by_role("button", name="Fork from here…").click(timeout=_PATIENCE_MS)
        dialog = page.get_by_role("dialog")
        await dialog.get_by_text("1 effect would happen again").wait_for(timeout=_PATIENCE_MS)
        await dialog.get_by_label("With another result").check()
        results = dialog.get_by_role("textbox", name="Other results")
        assert "tides for sailors" in await results.input_value(), "what it was stands there, to be changed"
        await results.fill("search#1=[oops")
        await dialog.get_by_text("It takes NAME=JSON on each line").wait_for()
        assert await dialog.get_by_role("button", name="Fork the run").is_disabled()
        await results.fill('search#1=["<i>moons"]')
        await dialog.get_by_text("1 call has another result").wait_for(timeout=_PATIENCE_MS)
        await dialog.get_by_text("""holdfast fork first --at 3 --result 'search#1=["<i>moons"]'""").wait_for()
        await dialog.get_by_text("Its id and thread").click()
        await dialog.get_by_role("textbox", name="Id").fill("second")
        await dialog.get_by_label("Note").fill("what if")
        await dialog.get_by_role("button", name="Fork the run").click()
        await page.wait_for_url("**/runs/second")
        await page.get_by_text("forked from").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_role("link", name="compare").click()
        await page.get_by_role("cell", name="search#1").wait_for(timeout=_PATIENCE_MS)

        await page.goto(served.bare("/runs/turning"))
        await page.get_by_role("tab", name="State").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("f")
        await dialog.get_by_text("All that it did is kept").wait_for()
        for key in ("ArrowDown", "ArrowDown", "Tab", "Tab"):  # with a turn, past its number, to the state
            await page.keyboard.press(key)
        await page.keyboard.type("seen=[7]")
        await dialog.get_by_text("holdfast fork turning --turn 2 --set 'seen=[7]'").wait_for()
        await dialog.get_by_label("Note").focus()
        await page.keyboard.type("by hand")
        await page.locator(".preflight:not([aria-busy])").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("Enter")
        await page.get_by_text("forked from").wait_for(timeout=_PATIENCE_MS)
        assert await looks.refused(page) == []

    _played(play)
    second = served.ask("GET", "/runs/second")
    assert second["forked_from"] == {
        "run": "first", "at": 3, "by": second["forked_from"]["by"], "note": "what if", "changed": ["search#1"],
    }  # fmt: skip
    made = [each["id"] for each in served.ask("GET", "/runs?agent=keeper")["items"] if each["id"] != "turning"]
    assert "[7]" in served.ask("GET", f"/runs/{made[0]}/state")["state"]["json"]
