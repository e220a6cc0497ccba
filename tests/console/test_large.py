"""Large things: a run of 20,000 calls, a store of 100,000 runs, ten tabs. What was measured is printed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.base.clock import now_us
from holdfast.base.config import Settings
from holdfast.journal.chain import seal_row
from holdfast.model import Status
from holdfast.store import open_store
from holdfast.testing.samples import new_run
from tests.console.browser import Looks, looking, needs_browser
from tests.console.served import Served, store_in
from tests.eventually import eventually

pytestmark = [needs_browser, pytest.mark.prove]
_PATIENCE_MS = 120_000
CALLS = 20_000
RUNS = 100_000


@hf.step
async def counted(n: int) -> int:
    return n


@hf.agent
async def long(calls: int) -> int:
    for n in range(calls):
        await counted(n)
    return calls


@hf.agent
async def asks() -> bool:
    return await hf.ask("Yes?")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = store_in(tmp_path_factory.mktemp("large"))

    async def fill() -> None:
        async with hf.connect(url, agents=[long, asks]) as app:
            await (await app.start(long(CALLS), id="long")).result()
            await app.start(asks(), id="asks")

            async def waits() -> bool:
                return str(await app.get("asks").status()) == "waiting"

            await eventually(waits)

    asyncio.run(fill())
    with Served(url) as served:
        yield served


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """100,000 runs, a second apart; most have ended well."""
    url = store_in(tmp_path_factory.mktemp("crowded"))

    async def fill() -> None:
        store = open_store(url, settings=Settings())
        await store.open()
        start = now_us() - RUNS * 1_000_000
        for begin in range(0, RUNS, 1000):
            made = [
                new_run(
                    f"r{n:06d}",
                    agent=f"agent{n % 40}",
                    created_at=start + n * 1_000_000,
                    updated_at=start + n * 1_000_000,
                    status=Status.failed if n % 50 == 0 else Status.done,
                )
                for n in range(begin, begin + 1000)
            ]
            for each in made:
                seal_row(each.row)
            await asyncio.gather(*(store.create(each, owner=None) for each in made))
        await store.close()

    asyncio.run(fill())
    with Served(url) as served:
        yield served


#: When the first line of the list stands in the page, from the click that led there.
_LISTED = """
addEventListener("click", () => { globalThis.listedAt = 0; globalThis.clickedAt = performance.now(); }, true);
new MutationObserver(() => {
  if (globalThis.listedAt || !document.querySelector(".runs tbody tr")) return;
  globalThis.listedAt = -1;
  requestAnimationFrame(() => setTimeout(() => { globalThis.listedAt = performance.now(); }));
}).observe(document, {childList: true, subtree: true});
"""


def test_the_list_of_100_000_runs_is_there_at_once(crowded: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Loaded anew, and from another page; the least of some turns, since others use the machine as well."""

    async def go() -> dict[str, float]:
        async with looking() as looks:
            context = await looks.context()
            await context.add_init_script(_LISTED)
            page = await context.new_page()
            await page.goto(crowded.at("/"))
            loaded, led = [], []
            for path in ["/runs", "/runs?q=status%3Afailed", "/runs?q=agent%3Aagent7", "/runs?q=r0999"] * 2:
                await page.goto(crowded.bare(path))
                await page.wait_for_function("() => globalThis.listedAt > 0", timeout=_PATIENCE_MS)
                loaded.append(await page.evaluate("listedAt"))
                assert await page.locator(".runs tbody tr").count() == 50
                await page.get_by_role("link", name="Workers").first.click()
                await page.get_by_role("heading", name="Workers").wait_for()
                await page.get_by_role("link", name="Runs").first.click()
                await page.wait_for_function("() => globalThis.listedAt > 0", timeout=_PATIENCE_MS)
                led.append(await page.evaluate("listedAt - clickedAt"))
            await page.goto(crowded.bare("/runs"))
            await page.get_by_text("12\u202f000+ runs").wait_for(timeout=_PATIENCE_MS)  # it counts up to 10,000 of each
            assert looks.problems == []
            return {"list of 100,000 runs, loaded anew, ms": min(loaded), "from another page, ms": min(led)}

    found = asyncio.run(go())
    with capsys.disabled():
        print(json.dumps(found, indent=2))


#: When the first row stands in the page, and when the next frame has been drawn.
_FIRST = """
new MutationObserver(() => {
  if (globalThis.drawnAt || !document.querySelector(".rows .row")) return;
  globalThis.drawnAt = -1;
  requestAnimationFrame(() => setTimeout(() => { globalThis.drawnAt = performance.now(); }));
}).observe(document, {childList: true, subtree: true});
"""
_SCROLL = """async () => {
  const frames = [];
  let former = performance.now();
  for (let n = 0; n < 120; n += 1) {
    scrollBy(0, n % 40 === 39 ? 60000 : 260);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - former);
    former = now;
  }
  return frames.slice(5).sort((a, b) => a - b);
}"""


def test_a_run_of_20_000_calls_is_drawn_and_scrolled(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    async def go() -> dict[str, float]:
        async with looking() as looks:
            context = await looks.context()
            await context.add_init_script(_FIRST)
            page = await context.new_page()
            for _ in range(2):  # the second of two rounds: scripts are compiled then
                await page.goto("about:blank")
                await page.goto(served.at("/runs/long"))
                await page.wait_for_function("() => globalThis.drawnAt > 0", timeout=_PATIENCE_MS)
                await page.wait_for_function(f"() => document.querySelector('.rows').ariaRowCount === '{CALLS}'")
            paint = await page.evaluate(
                "drawnAt - Math.max(...performance.getEntriesByType('resource')"
                ".filter((each) => /runs.long(.calls.after=0)?$/.test(each.name)).map((each) => each.responseEnd))"
            )
            frames = await page.evaluate(_SCROLL)
            nodes = await page.evaluate("document.querySelectorAll('.timeline *').length")
            every = await page.evaluate("document.querySelectorAll('body *').length")
            last = await page.evaluate("document.querySelector('.rows').lastElementChild.textContent")
            assert last
            assert looks.problems == []
            return {
                "first paint after data, ms": paint,
                "frame p50, ms": frames[len(frames) // 2],
                "frame p95, ms": frames[int(len(frames) * 0.95)],
                "frame most, ms": frames[-1],
                "nodes of the timeline": nodes,
                "nodes of the page, sprite included": every,
            }

    found = asyncio.run(go())
    with capsys.disabled():
        print(json.dumps(found, indent=2))
    assert found["nodes of the timeline"] <= 500


def test_ten_tabs_have_one_connection(served: Served) -> None:
    async def check(looks: Looks, *, is_shared: bool) -> int:
        context = await looks.context()
        if not is_shared:
            await context.add_init_script("delete globalThis.SharedWorker;")
        pages = []
        for _ in range(10):
            page = await context.new_page()
            await page.goto(served.at("/runs/asks"))
            pages.append(page)
        for page in pages:
            await page.locator(".live.on").wait_for(timeout=_PATIENCE_MS)
        found = _connections(served.port)
        await context.close()
        return found

    async def go() -> None:
        async with looking() as looks:
            assert await check(looks, is_shared=True) == 1, "one, in a worker that all share"
            await eventually(lambda: _connections(served.port) == 0)
            assert await check(looks, is_shared=False) == 1, "one, of the tab that leads"

    asyncio.run(go())


def _connections(port: int) -> int:
    """Open connections to a server whose answer does not end: those that are idle are closed after some seconds."""
    time.sleep(20)
    local = f":{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(1 for line in lines if line.split()[1].endswith(local) and line.split()[3] == "01")
