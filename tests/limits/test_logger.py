"""What agents log: once, and with where it comes from."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import holdfast as hf
from tests.workers import asked, until

log = hf.logger("tests.agent")


@hf.step
async def work(n: int) -> int:
    log.info("working at %d%%", n)
    return n


@hf.agent
async def talks() -> None:
    log.info("begun")
    await work(1)
    log.warning("100% sure", extra={"mine": 1})
    await hf.ask("go on?")
    log.info("went on")
    await work(2)


def test_a_replay_logs_nothing_and_each_line_says_what_it_is_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[talks]) as app:
            run = await app.start(talks(), id="50%", thread_id="t")
            (question,) = await asked(run)
            await until(run, "waiting")
            await question.answer(True)
            await run.result(timeout=60)

    with caplog.at_level(logging.INFO, logger="tests.agent"):
        asyncio.run(story())
        log.info("outside")
    found = [record for record in caplog.records if record.name == "tests.agent"]
    place = "[run=50% thread=t turn=0 call="
    assert [record.getMessage() for record in found] == [
        f"begun {place}]",
        f"working at 1% {place}work#1]",
        f"100% sure {place}]",
        f"went on {place}]",
        f"working at 2% {place}work#2]",
        "outside",
    ]
    record = found[2]
    assert {name: vars(record)[name] for name in ("run_id", "thread_id", "turn", "call", "mine")} == {
        "run_id": "50%",
        "thread_id": "t",
        "turn": 0,
        "call": "",
        "mine": 1,
    }
    assert {each.filename for each in found} == {Path(__file__).name}
    with caplog.at_level(logging.ERROR, logger="tests.agent"):
        assert not log.isEnabledFor(logging.INFO)
