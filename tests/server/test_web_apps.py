"""A web app of a user's own: it starts runs, watches them and answers, with the public names alone."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import holdfast as hf
from tests.server.agents import ALL, dozing, echo, refund

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_app.py"


def test_the_example_starts_watches_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    web = runpy.run_path(str(EXAMPLE))["web"]
    with TestClient(web) as browser:
        assert browser.get("/letters/tides/question").status_code == 404
        assert browser.put("/letters/tides").json()["run"] == "letter-tides"
        assert browser.put("/letters/tides").status_code == 202
        asked = browser.get("/letters/tides/question").json()
        assert asked["prompt"] == "Send the letter about tides?"
        told = browser.post("/letters/tides/question", json={"ok": True, "by": "ana"})
        assert told.json() == {"result": "sent: All about tides."}
        assert browser.post("/letters/tides/question", json={"ok": True, "by": "ana"}).status_code == 409
        lines = [line for line in browser.get("/letters/tides/events").text.splitlines() if line]
        assert json.loads(lines[-1].removeprefix("data: "))["status"] == "done"


def test_a_run_is_watched_until_it_is_over(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "store.db"), agents=ALL) as app:
            run = await app.start(refund("ada"), id="r1")
            seen: list[hf.Status] = []
            async with asyncio.timeout(60):
                async for info in run.watch():
                    seen.append(info.status)
                    if info.status is hf.Status.waiting and len(seen) < 50:
                        for question in await run.questions():
                            await question.answer(True)
            assert seen[-1] is hf.Status.done
            assert hf.Status.waiting in seen
            assert [info.status async for info in run.watch()] == [hf.Status.done], "of one that is over, its end"

    asyncio.run(go())


def test_a_question_is_waited_for(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "store.db"), agents=ALL) as app:
            run = await app.start(refund("ada"), id="r1")
            question = await run.question(timeout=60)
            assert question.prompt == "Pay 40 back to ada?"
            await question.answer(False)
            assert await run.result(60) == "refused"
            with pytest.raises(hf.RunFinished, match="r1 is done; it asks nothing any more"):
                await run.question()
            ended = await app.start(echo("x"), id="e1")
            with pytest.raises(hf.RunFinished):
                await ended.question(timeout=60)
            asleep = await app.start(dozing(), id="d1")
            with pytest.raises(TimeoutError):
                await asleep.question(timeout=0.2)

    asyncio.run(go())
