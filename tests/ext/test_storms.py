"""Eight agents of each adapter at once, killed at random moments: each letter is sent once, and each run ends alike."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing.model_server import ModelServer
from tests.ext.adapters import ADAPTERS, LETTERS, Adapter
from tests.ext.letters import end
from tests.ext.storms import storm
from tests.forkserver import ForkServer

pytestmark = pytest.mark.prove


@pytest.fixture(params=ADAPTERS, ids=[each.name for each in ADAPTERS])
def writer(request: pytest.FixtureRequest) -> tuple[str, str]:
    adapter: Adapter = request.param
    pytest.importorskip(adapter.name, reason=f"{adapter.name} is not installed")
    return f"tests.ext.{adapter.module}", adapter.writes


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """A model for those that ask one on the network."""
    with ModelServer(LETTERS) as server:
        yield {"MODEL_URL": server.url}


def test_eight_agents_in_a_storm_of_fifty_kills_send_each_letter_once(
    url: str, folder: Path, writer: tuple[str, str], env: dict[str, str], forkserver: ForkServer
) -> None:
    module, agent = writer
    found = storm(forkserver, url, module, agent, folder=folder, kills=50, seed=16, env=env)
    print(f"{module}:{agent}: {found}")
    assert found.kills >= 50
    assert found.asked - found.needed == found.under_way, "what is paid twice is what was under way at a kill"


def test_letters_of_a_turn_are_sent_at_the_same_time(
    url: str, writer: tuple[str, str], env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the other one: one after the other, they would wait in vain."""
    for name, value in {**env, "HOLDFAST_TEST_MEET": "1"}.items():
        monkeypatch.setenv(name, value)
    module, name = writer
    agent = getattr(importlib.import_module(module), name)

    async def main() -> None:
        async with hf.connect(url, agents=[agent]) as app:
            assert await (await app.start(agent("r"), id="r")).result(timeout=120) == end("r")

    asyncio.run(main())
