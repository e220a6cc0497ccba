"""Forks, threads, plans and saved views: what the pages tell before an act, and what the store has afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import holdfast as hf
from tests.console import talk
from tests.console.browser import Looks, needs_browser, played
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
        await dialog.get_by_text("1 call with another result").wait_for(timeout=_PATIENCE_MS)
        await dialog.get_by_text("""holdfast fork first --at 3 --result 'search#1=["<i>moons"]'""").wait_for()
        await dialog.get_by_role("textbox", name="Id").fill("second")
        await dialog.get_by_label("Note").fill("what if")
        await dialog.get_by_role("button", name="Fork the run").click()
        await page.wait_for_url("**/runs/second")
        await page.get_by_text("forked from").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_role("link", name="compare").click()
        await page.get_by_role("cell", name="search#1").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_text("Different from the start: search#1.").wait_for()
        rows = page.get_by_role("table", name="Calls").locator("tbody tr")
        told = {row.split("\t")[0].strip(): row.split("\t")[2].split()[0] for row in await rows.all_inner_texts()}
        assert told == {"search#1": "done", "write#1": "–", "send#1": "–"}, "nobody has gone on with the fork yet"
        await page.get_by_role("button", name="What differs 3").focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url("**show=other")
        assert await page.locator("tr.chosen").count() == 3, "one has another result, two are not there"

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
        await page.locator(".preflight[aria-busy=false]").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("Enter")
        await page.get_by_text("forked from").wait_for(timeout=_PATIENCE_MS)
        assert await looks.refused(page) == []

    played(play)
    second = served.ask("GET", "/runs/second")
    assert second["forked_from"] == {
        "run": "first", "at": 3, "by": second["forked_from"]["by"], "note": "what if", "changed": ["search#1"],
    }  # fmt: skip
    made = [each["id"] for each in served.ask("GET", "/runs?agent=keeper")["items"] if each["id"] != "turning"]
    assert "[7]" in served.ask("GET", f"/runs/{made[0]}/state")["state"]["json"]


def test_a_thread_is_a_conversation_and_grows_as_something_is_said(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/threads"))
        await page.get_by_role("link", name="chat-7").wait_for(timeout=_PATIENCE_MS)
        await page.keyboard.press("j")
        while "chat-7" not in await page.evaluate("document.activeElement.textContent"):
            await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="chat-7").wait_for(timeout=_PATIENCE_MS)
        bubbles = page.locator(".bubble")
        await page.locator(".bubble.asks").get_by_role("link", name="Answer…").wait_for(timeout=_PATIENCE_MS)
        await page.locator(".bubble", has_text="ana").get_by_text("yes").wait_for(timeout=_PATIENCE_MS)
        said = [text.split("\n")[-1] for text in await bubbles.all_inner_texts()]
        assert said == [
            "My boat is called Tern.", "I know 1 messages.", "What is her name?", "May I answer 'What is her name?'?",
            "they own it", "Her name is Tern.", "Thank you <b>!", "Where does she lie?", "Answer…",
        ], "nothing is told twice: what it was given and what came of it are messages"  # fmt: skip
        async with hf.connect(served.url) as app:
            await app.thread("chat-7", talk.Said).append(talk.Said("user", "In the harbour."), by="cy")
        await page.get_by_text("In the harbour.").wait_for(timeout=_PATIENCE_MS)
        assert await looks.refused(page) == []

    played(play)


def test_a_filter_is_saved_as_a_view_and_forgotten(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs?q=agent%3Asupport"))
        views = page.get_by_role("navigation", name="Views")
        await page.get_by_role("link", name="chat-7a").wait_for(timeout=_PATIENCE_MS)
        await views.get_by_role("button", name="Save view…").click()
        await page.get_by_text("holdfast runs --agent support").wait_for()
        await page.keyboard.type("Talk <b>")
        await page.keyboard.press("Enter")
        await views.get_by_role("link", name="Talk <b> 3").wait_for(timeout=_PATIENCE_MS)
        await views.get_by_role("link", name="All").click()
        await page.get_by_role("link", name="first", exact=True).wait_for(timeout=_PATIENCE_MS)
        await page.reload()
        await views.get_by_role("link", name="Talk <b>").focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/runs?q=agent%3Asupport")
        await page.get_by_role("link", name="first", exact=True).wait_for(state="detached", timeout=_PATIENCE_MS)
        await views.get_by_role("button", name="Forget the view Talk <b>").click()
        await views.get_by_role("link", name="Talk <b>").wait_for(state="detached")
        await page.keyboard.press("s")
        await page.get_by_role("heading", name="Save this view").wait_for()

    played(play)


def test_the_plan_and_the_messages_of_a_run_are_shown_and_its_plan_is_changed(served: Served) -> None:
    async def play(looks: Looks) -> None:
        page = await looks.page(served.at("/runs/chat-7c"))
        await page.get_by_role("tab", name="Messages").click(timeout=_PATIENCE_MS)
        await page.locator(".bubble", has_text="Thank you <b>!").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_role("tab", name="Plan").focus()
        await page.keyboard.press("Enter")
        await page.get_by_text("1 of 3 done").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_role("button", name="Change…").nth(1).click()
        await page.get_by_label("Rewrite").check()
        text = page.get_by_role("textbox", name="Text")
        assert await text.input_value() == "answer it"
        await text.fill("answer <i>it</i> kindly")
        await page.get_by_text("holdfast plan chat-7c --edit").wait_for()
        await page.get_by_role("button", name="Send it").click()
        await page.get_by_role("dialog").wait_for(state="detached", timeout=_PATIENCE_MS)
        await page.get_by_role("listitem").filter(has_text="answer <i>it</i> kindly").wait_for(timeout=_PATIENCE_MS)
        await page.get_by_text("Not taken yet:").wait_for()
        await page.get_by_role("button", name="Add…").focus()
        await page.keyboard.press("Enter")
        await page.keyboard.type("say goodbye")
        await page.get_by_label("Note").focus()
        await page.keyboard.press("Enter")
        await page.get_by_text("1 of 4 done").wait_for(timeout=_PATIENCE_MS)
        assert await looks.refused(page) == []

    played(play)
    items = [each["text"] for each in served.ask("GET", "/runs/chat-7c/plan")["items"]]
    assert items == ["read the question", "answer <i>it</i> kindly", "file it", "say goodbye"]
