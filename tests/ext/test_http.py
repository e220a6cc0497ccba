"""The durable transport: an SDK as it is, a model server of our own, real kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing.model_server import ModelServer, Turn
from tests.eventually import eventually
from tests.ext import http_bots as bots
from tests.ext.living import lived, notes

SCRIPT = [
    Turn(calls=[("mail", {"to": "ada"})], error=429, retry_after=0.05),
    Turn(calls=[("mail", {"to": "bo"})], error=503),
    Turn(say="all is sent"),
]


def test_a_killed_client_is_answered_what_it_was_and_no_request_is_sent_twice(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(SCRIPT) as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        faults = ["effect.after_outcome:kill@2"]
        assert (
            lived(str(tmp_path / "runs.db"), "tests.ext.http_bots:chat", folder=folder, faults=faults) == "all is sent"
        )
        turns = [each["turn"] for each in server.requests]
    assert notes(folder) == ["mail ada", "mail bo"]
    assert turns == [0, 0, 1, 1, 2]  # each of the first two was too busy once
    keys = [each["headers"]["idempotency-key"] for each in server.requests]
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_usage_and_cost_are_those_of_the_answers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Any:
        async with hf.connect(url, agents=[bots.chat]) as app:
            run = await app.start(bots.chat("go"), id="r")
            await run.result(timeout=60)
            keys = [each.key for each in await run.history() if "http" in each.key]
            return await run.info(), keys

    with ModelServer(SCRIPT[2:]) as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        info, keys = asyncio.run(main())
    assert (info.input_tokens, info.output_tokens) == (10, 3)
    assert info.cost == pytest.approx(16e-6)
    assert {key.partition("key:")[0] for key in keys} == {"http/"}


@pytest.mark.parametrize("agent", [bots.stream, bots.plainly])
def test_a_stream_and_a_plain_client_are_played_back(
    url: str, monkeypatch: pytest.MonkeyPatch, agent: hf.Agent[..., Any]
) -> None:
    async def first() -> None:
        async with hf.connect(url, agents=[agent]) as app:
            await app.start(agent("go"), id="r")
            await eventually(app.questions)

    async def then() -> Any:
        async with hf.connect(url, agents=[agent]) as app:
            await (await app.questions())[0].answer(True)
            return await app.get("r").result(timeout=60)

    with ModelServer([Turn(say="one two three")]) as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        asyncio.run(first())
        found = asyncio.run(then())
        assert len(server.requests) == 1
    assert "".join(found) == "one two three"
