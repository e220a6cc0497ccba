"""`holdfast demo --console`: kills and resumes as they happen, on a page that was opened before the agent started."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.browser import Looks, needs_browser, played

pytestmark = [needs_browser, pytest.mark.prove]
_PATIENCE_MS = 60_000


def test_the_demo_is_seen_from_its_first_call_to_its_last(tmp_path: Path) -> None:
    ours, its = pty.openpty()  # somebody at a terminal says when it begins and ends
    demo = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo", "--console", "--fast"],
        cwd=tmp_path,
        env=os.environ | {"BROWSER": "true", "COLUMNS": "300"},
        stdin=its,
        stderr=its,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(its)
    assert demo.stdout is not None
    lines = iter(demo.stdout)
    address = next(word for line in lines for word in line.split() if word.startswith("http://"))

    async def play(looks: Looks) -> None:
        page = await looks.page(address)
        await page.get_by_text("There is no run tide-report yet").wait_for(timeout=_PATIENCE_MS)
        await page.evaluate("globalThis.isTheSame = true")
        os.write(ours, b"\n")
        receipts = page.get_by_role("list", name="Receipts").get_by_role("listitem")
        for number in range(3):
            await receipts.nth(number).get_by_text("from the journal").wait_for(timeout=_PATIENCE_MS)
        await page.locator(".run-head .status-done").wait_for(timeout=_PATIENCE_MS)
        assert await receipts.count() == 3
        assert "1 in doubt → it happened, says verify" in await receipts.nth(2).inner_text()
        rows = page.get_by_role("treegrid", name="Calls")
        await rows.get_by_text("write#1").wait_for()
        await page.locator(".lanes-back .down").nth(2).wait_for(state="attached")
        assert await page.evaluate("globalThis.isTheSame"), "nobody loaded it anew"
        os.write(ours, b"\n")

    try:
        played(play)
        rest = "".join(lines)
        assert demo.wait() == 0, rest
    finally:
        demo.kill()
        demo.communicate()
        os.close(ours)
