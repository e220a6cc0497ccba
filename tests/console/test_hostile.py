"""Values that somebody made to break a page, in every field of every screen: nothing runs, and nothing overflows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import holdfast as hf
from tests.console.browser import Looks, looking, needs_browser
from tests.console.served import Served, store_in
from tests.eventually import eventually

pytestmark = [needs_browser, pytest.mark.prove]
_PATIENCE_MS = 60_000
HOSTILE = [
    "<img src=x onerror=\"globalThis.pwned='img'\">",
    "<script>globalThis.pwned='script'</script>",
    "</title></textarea><svg onload=\"globalThis.pwned='svg'\">",
    "javascript:globalThis.pwned='link'",
    "https://example.org/\"onmouseover=\"globalThis.pwned='href'",
    "data:text/html,<script>globalThis.pwned='data'</script>",
    "abc\u202egnp.exe\u2066\u2069",
    "\u001b[31mred\u001b[0m\u001b]8;;http://evil.example\u0007link",
    "Z\u0335\u0321\u0322" * 300,
    "\U000e0041\ufeff\u200b" * 200,
    "W" * 20_000,
    "a b " * 5_000,
    "{{constructor.constructor('globalThis.pwned=1')()}}${globalThis.pwned=1}",
    "__proto__",
    "\n".join(["line"] * 2_000),
]
BOMBS: list[Any] = [
    json.loads("[" * 150 + "]" * 150),
    {"__proto__": {"pwned": 1}, "constructor": {"prototype": {"pwned": 1}}, "toString": 1},
    {str(n): "x" for n in range(5_000)},
    ["\ud83d\ude00" * 50] * 300,
    1e308,
    "x" * 1_000_000,
]


@hf.step
async def told(value: Any) -> Any:
    hf.progress(1, 2, HOSTILE[0] + HOSTILE[6])
    return value


@hf.effect(settle=0)
async def doubted(value: Any) -> Any:
    raise ConnectionError(HOSTILE[1] + HOSTILE[6])


@hf.agent
async def asking(value: Any) -> Any:
    await told(value)
    return await hf.ask(str(value)[:3_000] or "?", show={str(value)[:100]: value, "nested": {"deep": [value]}})


@hf.agent
async def choosing(value: Any) -> Any:
    return await hf.ask("Which?", options=[*HOSTILE[:7], str(value)[:200]])


@hf.agent
async def failing(value: Any) -> Any:
    await told(value)
    raise ValueError(str(value)[:5_000])


@hf.agent
async def doubting(value: Any) -> Any:
    return await doubted(value)


@hf.agent
async def listening(value: Any) -> Any:
    """Says it in its thread, and has it in its plan."""
    text = str(value)[:3_000]
    await hf.thread(Any).append(value, {"role": text[:200], "text": text})
    plan = await hf.plan([" ".join(text.split()) or "x"])
    await plan.tick(1, note=" ".join(text.split())[:300])
    return value


@hf.step
async def murmured(text: str) -> None:
    hf.stream("out").write(text)


@hf.agent
async def keeping(value: Any) -> None:
    """Says it while it works, puts it out, and has it in its state."""
    text = str(value)[:3_000]
    await murmured(text)
    await hf.artifact("note.html", "before")
    await hf.artifact("note.html", text)
    await hf.artifact("link", ref=_named(text)[:300])
    async for state in hf.turns(dict[str, Any](kept=None, turns=0)):
        state["kept"] = value
        state["turns"] += 1
        if state["turns"] == 2:
            break


AGENTS: list[hf.Agent[..., Any]] = [asking, choosing, failing, doubting, listening, keeping]


def _named(text: str) -> str:
    """As much of a text as an id may have of it."""
    return "".join(each for each in text if each.isprintable() and each != "@") or "x"


async def _fill(url: str) -> None:
    async with hf.connect(url, agents=AGENTS) as app:
        runs = []
        for number, value in enumerate([*HOSTILE, *BOMBS]):
            text = _named(HOSTILE[number % len(HOSTILE)])[:60].strip()
            tags = {"note": _named(str(value)[:300])[:150].strip()}
            for agent in AGENTS:
                name = f"{agent.name}-{number}-{text}"
                runs.append(await app.start(agent(value), id=name, tags=tags, thread_id=f"t-{number}-{text}"))
        await app.schedule("odd", listening(HOSTILE[1]), cron="0 0 1 1 *")
        await app.on("an.event", listening, name="odd", where={"plan": HOSTILE[1]})
        await app.emit("an.event", {"plan": HOSTILE[1]})
        await app.queue("odd", concurrency=1)

        async def stand() -> bool:
            return all([str(await run.status()) not in ("queued", "running") for run in runs])

        await eventually(stand, timeout=120)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = store_in(tmp_path_factory.mktemp("hostile"))
    asyncio.run(_fill(url))
    with Served(url) as served:
        yield served


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_runs_and_nothing_breaks(hostile: Served, width: int) -> None:
    async def check(looks: Looks) -> list[str]:
        wrong: list[str] = []
        page = await looks.page(hostile.at("/"), width=width)
        page.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))

        async def visit(path: str, seen: str) -> None:
            await page.goto(hostile.bare(path))
            await page.locator(seen).first.wait_for(state="attached", timeout=_PATIENCE_MS)
            await page.wait_for_timeout(150)
            await check_page(path)

        async def check_page(path: str) -> None:
            over = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            pwned = await page.evaluate("globalThis.pwned ?? ({}).pwned ?? null")
            odd = await page.evaluate(
                "document.querySelectorAll('main img, main script, main iframe, [onerror], [onload]').length"
            )
            bad = await page.evaluate(
                "[...document.querySelectorAll('a[href]')].filter((a) => !/^https?:$/.test(a.protocol)).length"
            )
            refused = await looks.refused(page)
            if over or pwned or odd or bad or refused:
                wrong.append(f"{path}: {over=} {pwned=} {odd=} {bad=} {refused=}")

        await visit("/", ".needs li")
        for path, seen in (
            ("/runs", ".runs tbody tr"),
            ("/questions", ".split-list li"),
            ("/in-doubt", ".doubt-card .json"),
            ("/schedules", ".table tbody tr"),
            ("/triggers", ".card"),
            ("/queues", ".table tbody tr"),
            ("/threads", ".table tbody tr"),
            ("/integrity", ".facts"),
            ("/workers", ".empty"),
        ):
            await visit(path, seen)
        listed = hostile.ask("GET", "/runs?limit=200")["items"]
        for number, run in enumerate(listed):
            if number % (7 if width == 390 else 5):  # each value comes by several agents
                continue
            path = f"/runs/{quote(run['id'], safe='')}"
            await visit(path, ".run-head")
            await visit(f"{path}?tab=values", ".json")
            if run["agent"] == "keeping":
                await visit(f"{path}?tab=state", ".state")
                await visit(f"{path}?tab=streams", ".stream pre")
                await visit(f"{path}?tab=artifacts", ".table tbody tr")
                await page.get_by_role("button", name="difference").click()
                await page.locator("pre.diff ins").first.wait_for(timeout=_PATIENCE_MS)
                await check_page(f"{path}: difference")
            if run["agent"] == "listening":
                await visit(f"{path}?tab=plan", ".plan-head")
                await visit(f"{path}?tab=messages", ".bubble")
                await visit(f"/threads/{quote(run['thread_id'], safe='')}", ".bubble")
                await visit(path, ".run-head")
                await page.keyboard.press("f")
                await page.locator(".preflight .lines").wait_for(timeout=_PATIENCE_MS)
                await check_page(f"{path}: fork")
            if number % 3 == 0:
                await visit(f"{path}?tab=journal", ".record:nth-child(2)")
                await visit(f"{path}?tab=story", ".story li")
        for question in hostile.ask("GET", "/questions?limit=200")["items"][:: 2 if width > 390 else 4]:
            await visit(f"/questions/{question['id']}", ".question h2")
        return wrong + looks.problems

    async def go() -> list[str]:
        async with looking() as looks:
            return await check(looks)

    wrong = asyncio.run(go())
    assert not wrong, "\n".join(wrong)


def test_characters_that_turn_text_around_are_made_visible(hostile: Served) -> None:
    asked = hostile.ask("GET", "/questions?limit=200")["items"]
    question = next(each for each in asked if "\u202e" in each["prompt"])

    async def go() -> str:
        async with looking() as looks:
            page = await looks.page(hostile.at(f"/questions/{question['id']}"))
            await page.locator(".question h2").wait_for(timeout=_PATIENCE_MS)
            return await page.locator("body").inner_text()

    text = asyncio.run(go())
    assert "\u202e" not in text
    assert "\\u202e" in text
