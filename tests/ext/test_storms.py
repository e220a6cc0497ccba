"""Eight agents of each adapter at once, killed at random moments: each letter is sent once, and each run ends alike."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing.model_server import ModelServer, Turn
from tests.ext.letters import TURNS, end
from tests.ext.storms import storm
from tests.forkserver import ForkServer

#: The package that is needed, the module, and its agent.
WRITERS = [
    ("pydantic_ai", "pydantic_bots", "write"),
    ("langgraph", "graph_bots", "write_in_nodes"),
    ("langchain", "graph_bots", "write"),
    ("agents", "openai_bots", "write"),
    ("openai", "http_bots", "write"),
    ("mcp", "mcp_bots", "write"),
    ("google.adk", "adk_bots", "write"),
]
SCRIPT = [Turn(calls=[("letter", {"to": f"{turn}{reader}"}) for reader in "ab"]) for turn in range(1, TURNS + 1)]

pytestmark = pytest.mark.prove


@pytest.fixture(params=WRITERS, ids=[package for package, *_ in WRITERS])
def writer(request: pytest.FixtureRequest) -> tuple[str, str]:
    package, module, agent = request.param
    pytest.importorskip(package, reason=f"{package} is not installed")
    return f"tests.ext.{module}", agent


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """A model for those that ask one on the network; the turn after the last says what no run ends with by itself."""
    with ExitStack() as stack:
        server = stack.enter_context(ModelServer([*SCRIPT, Turn(say="done")]))
        yield {"MODEL_URL": server.url}


def test_eight_agents_in_a_storm_of_fifty_kills_send_each_letter_once(
    url: str, folder: Path, writer: tuple[str, str], env: dict[str, str], forkserver: ForkServer
) -> None:
    module, agent = writer
    found = storm(forkserver, url, module, agent, folder=folder, kills=50, seed=16, env=env)
    print(f"{module}:{agent}: {found}")
    assert found.kills >= 50
    assert found.asked - found.needed <= found.kills * 8, "a request is paid twice at most by each agent and kill"


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
