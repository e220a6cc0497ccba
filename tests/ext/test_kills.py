"""Processes that are killed where it matters, twenty times at each place: each adapter, on both sorts of store.

No completed effect repeats, what was cut off follows its rule, the end is that of a run that nobody has killed, and one
request to a model is paid twice at most: the one that was under way.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.model_server import ModelServer
from tests.cli.commands import Commands
from tests.ext.adapters import ADAPTERS, LETTERS, WORDS, Adapter
from tests.ext.letters import all_letters, end
from tests.ext.living import doubt_once, live_once, notes
from tests.forkserver import ForkServer

KILLS = 20
NAME = "r"

#: Which agent is killed, and where (nothing: found out when it is not killed), and how many requests are paid twice.
PLACES: dict[str, tuple[str, list[str], int]] = {
    "in a model call": ("writes", [], 1),
    "after an effect and before its record": ("writes", [f"mail {letter}" for letter in all_letters(NAME)], 0),
    "in each of two parallel tools": ("writes", [f"both {letter}" for letter in all_letters(NAME)], 0),
    "in the middle of a stream": ("streams", [], 1),
    "while a person is asked": ("asks", ["asked"], 0),
    "after the answer": ("asks", ["answered"], 0),
}

pytestmark = pytest.mark.prove


@pytest.fixture(params=ADAPTERS, ids=[each.name for each in ADAPTERS])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    pytest.importorskip(found.name, reason=f"{found.name} is not installed")
    return found


class Lives:
    """The lives of one agent, each run with a folder of its own, where it notes what it does."""

    def __init__(self, forkserver: ForkServer, url: str, adapter: Adapter, agent: str, server: ModelServer) -> None:
        self._forkserver, self._adapter, self._agent, self._server = forkserver, adapter, agent, server
        self._where: dict[str, Any] = {"url": url, "module": f"tests.ext.{adapter.module}", "agent": agent}

    def start(self, folder: Path, fn: Any = live_once, *, kill: str = "", **more: Any) -> Any:
        env = {"HOLDFAST_TEST_FOLDER": str(folder), "HOLDFAST_TEST_KILL": kill, "MODEL_URL": self._server.url}
        env |= {"HOLDFAST_TEST_MEET": "1"} if kill.startswith("both") else {}
        arguments = [] if self._agent == self._adapter.streams and self._adapter.name != "openai" else [NAME]
        return self._forkserver.start(
            fn, imports=[self._where["module"]], log=folder / "log.txt", env=env, run_id=folder.name,
            arguments=arguments, **self._where, **more,
        )  # fmt: skip

    def live(self, folder: Path, *, kill: str = "") -> Any:
        """What the run comes to; None if it was killed."""
        folder.mkdir(exist_ok=True)
        told = folder / "told.json"
        code = self.start(folder, kill=kill, answer=self._adapter.answer, told=str(told)).wait()
        assert code == (-9 if kill else 0), f"{kill}: {code} {(folder / 'log.txt').read_text()[-4000:]}"
        return None if kill else json.loads(told.read_text())

    def paid(self, folder: Path) -> int:
        """How many requests a model was sent."""
        heard, self._server.requests[:] = len(self._server.requests), []
        return heard or len([line for line in notes(folder) if line.startswith("model")])


def effects(folder: Path) -> Counter[str]:
    return Counter(line for line in notes(folder) if line.startswith(("mail", "refund", "paid", "look")))


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[ModelServer]:
    with ModelServer(LETTERS) as server:
        yield server


@pytest.mark.parametrize("place", PLACES)
def test_what_is_killed_twenty_times_comes_to_the_end_of_what_is_not_killed(
    url: str, folder: Path, adapter: Adapter, place: str, server: ModelServer, forkserver: ForkServer
) -> None:
    sort, points, repeated = PLACES[place]
    agent = str(getattr(adapter, sort))
    if not agent or (place == "in a model call" and not adapter.has_model):
        pytest.skip(f"{adapter.name} has none")
    if sort != "writes":
        server._turns = WORDS
    lives = Lives(forkserver, url, adapter, agent, server)
    expected = lives.live(folder / "whole")
    once, needed = effects(folder / "whole"), lives.paid(folder / "whole")
    assert sort != "writes" or expected == end(NAME)
    if not points:
        asked = [line for line in notes(folder / "whole") if line.startswith("model")]
        points = asked if sort == "writes" else [f"part@{number}" for number in range(1, adapter.parts + 1)]
    for number, point in zip(range(KILLS), itertools.cycle(points), strict=False):
        here = folder / f"killed{number}"
        lives.live(here, kill=point)
        assert lives.live(here) == expected
        assert effects(here) == once
        assert lives.paid(here) - needed == repeated, "paid twice"


def test_a_person_settles_calls_in_doubt_with_what_their_tools_return(
    url: str, folder: Path, adapter: Adapter, server: ModelServer, forkserver: ForkServer
) -> None:
    lives, here = Lives(forkserver, url, adapter, adapter.writes, server), folder / "run"
    lives.live(here, kill=f"mail {NAME}-1a")
    assert lives.start(here, doubt_once).wait() == 0, (here / "log.txt").read_text()[-4000:]
    holdfast = Commands(folder, forkserver, writes_agents=False)
    doubts = holdfast("in-doubt", "--json", HOLDFAST_URL=url).json["items"]
    assert doubts
    for doubt in doubts:
        to = doubt["args"]["to"]
        said = ["--happened", json.dumps(f"sent {to}")] if f"mail {to}" in notes(here) else ["--not-happened"]
        settled = holdfast("resolve", here.name, doubt["key"], *said, "--yes", HOLDFAST_URL=url)
        assert settled.code == 0, settled.err
    assert lives.live(here) == end(NAME)
    assert effects(here) == Counter(f"mail {letter}" for letter in all_letters(NAME))
    shown = holdfast.on_terminal("show", here.name, columns=100, HOLDFAST_URL=url).out
    assert max(map(len, shown.splitlines())) <= 100
