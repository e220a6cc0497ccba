"""Frameworks change while runs wait for a person: those go on, and no request to a model is sent a second time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.model_server import ModelServer
from holdfast.testing.processes import environment
from tests.ext import renames
from tests.ext.adapters import ADAPTERS, WORDS, Adapter
from tests.ext.letters import letters
from tests.ext.living import notes
from tests.forkserver import ForkServer

pytestmark = pytest.mark.prove


@pytest.fixture
def env(folder: Path) -> Iterator[dict[str, str]]:
    with ModelServer(WORDS) as server:
        yield {"MODEL_URL": server.url, "HOLDFAST_TEST_FOLDER": str(folder)}
        assert len(server.requests) in (0, renames.RUNS)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=[each.name for each in ADAPTERS])
def test_a_hundred_runs_that_wait_go_on_when_all_coroutines_of_the_framework_have_other_names(
    url: str, folder: Path, env: dict[str, str], forkserver: ForkServer, adapter: Adapter
) -> None:
    pytest.importorskip(adapter.name, reason=f"{adapter.name} is not installed")
    module, agent = adapter.module, adapter.asks
    where: dict[str, Any] = {"url": url, "module": f"tests.ext.{module}", "agent": agent, "packages": adapter.packages}

    def live(fn: Any, told: str, **more: Any) -> Any:
        path = folder / told
        process = forkserver.start(
            fn, imports=[f"tests.ext.{module}"], log=folder / "log.txt", env=env, told=str(path), **where, **more
        )
        assert process.wait(600) == 0, (folder / "log.txt").read_text()[-4000:]
        return json.loads(path.read_text())

    assert live(renames.wait_asked, "asked.json") > 20
    before = Counter(line for line in notes(folder) if line.startswith("model"))
    found = live(renames.go_on, "found.json", answer=adapter.answer)
    after = Counter(line for line in notes(folder) if line.startswith("model"))
    assert [each for each in before if after[each] != before[each]] == [], "a request was sent a second time"
    assert [key for key in found["keys"] if "old_" in key or "new_" in key] == []
    assert len(found["ends"]) == renames.RUNS
    done = Counter(line for line in notes(folder) if line.startswith(("mail r", "refund")))
    if agent == "write_if_allowed":
        assert set(done.values()) == {1}
        assert {f"mail {letter}" for n in range(renames.RUNS) for letter in letters(f"r{n}", 1)} <= set(done)
    elif agent == "refunds":
        assert set(done.values()) == {renames.RUNS}


LIFE = """
import asyncio, sys
import holdfast as hf
from importlib.metadata import version
from tests.eventually import eventually
from tests.ext.openai_bots import refunds

async def main(answer):
    async with hf.connect(sys.argv[1], agents=[refunds]) as app:
        run = await app.start(refunds("refund"), id="r")
        (question,) = await eventually(app.questions)
        if answer:
            await question.answer(True)
            print(await run.result(timeout=60))

asyncio.run(main(len(sys.argv) > 2))
print(version("openai-agents"))
"""


def test_a_run_that_an_older_release_of_openai_agents_began_goes_on_with_this_one(
    url: str, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'holdfast[openai-agents]'")
    older = tmp_path / "older"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(older), "openai-agents==0.22.0"]
    if subprocess.run(pip, capture_output=True, check=False).returncode:
        pytest.skip("openai-agents 0.22.0 cannot be had from here")

    def lived(*arguments: str, path: str = "") -> list[str]:
        env = environment({"HOLDFAST_TEST_FOLDER": str(folder)})
        env["PYTHONPATH"] = f"{path}:{env.get('PYTHONPATH', '')}".strip(":")
        command = [sys.executable, "-c", LIFE, url, *arguments]
        return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")[:-1]

    assert lived(path=str(older)) == ["0.22.0"]
    assert notes(folder) == []
    end, release = lived("answered")
    assert (end, notes(folder)) == ("paid 500", ["refund 500"])
    assert release != "0.22.0"
