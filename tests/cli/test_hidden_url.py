"""`worker --hide-url`: what an agent, and what it starts, can see of the store's url. Real workers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf_
from holdfast.base.config import store_url
from holdfast.errors import UsageError
from tests.cli.commands import Commands
from tests.cli.test_worker import working
from tests.eventually import eventually_now

LOOKING = """
import json
import os
import subprocess
import sys

import holdfast as hf

AT_IMPORT = "HOLDFAST_URL" in os.environ


def shown(pid: int) -> str:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().decode() + open(f"/proc/{pid}/cmdline").read()


def ancestors() -> list[int]:
    found, pid = [], os.getpid()
    while pid != int(os.environ["LOOKS_UP_TO"]):
        found.append(pid)
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    return found


@hf.step
async def look() -> dict[str, object]:
    env = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    asked = subprocess.run([sys.executable, "-m", "holdfast", "runs"], capture_output=True, text=True, check=False)
    try:
        hf.connect()
        refused = ""
    except hf.UsageError as error:
        refused = str(error)
    return {
        "import": AT_IMPORT,
        "own": "HOLDFAST_URL" in os.environ,
        "child": "hidden.db" in env,
        "kernel": ["hidden.db" in shown(pid) for pid in ancestors()],
        "command": [asked.returncode, asked.stderr],
        "connect": refused,
    }


@hf.agent
async def looking() -> dict[str, object]:
    return await look()


async def setup(app):
    await app.start(looking(), id="look", delay=0)
"""


def seen(hf: Commands, *options: str) -> dict[str, Any]:
    (hf.folder / "looking.py").write_text(LOOKING)
    hf.environment |= {"HOLDFAST_URL": str(hf.folder / "hidden.db"), "LOOKS_UP_TO": str(os.getpid())}
    with working(hf, "looking.py", *options) as worker:
        found: dict[str, Any] = eventually_now(lambda: _result(hf))
        assert worker.stop() == 0
    assert not hf.store.exists(), "nothing else was opened"
    return found


def _result(hf: Commands) -> Any:
    ended = hf("show", "look", "--json")
    return ended.json["result"] if ended.code == 0 else None


def test_without_it_everything_that_an_agent_starts_knows_the_store(hf: Commands) -> None:
    found = seen(hf)
    assert (found["import"], found["own"], found["child"]) == (True, True, True)
    assert found["command"][0] == 0


@pytest.mark.parametrize("processes", [[], ["--processes", "2"]], ids=["alone", "supervised"])
def test_nobody_finds_the_url_in_an_environment_or_a_command_line(hf: Commands, processes: list[str]) -> None:
    found = seen(hf, "--hide-url", *processes)
    assert (found["import"], found["own"], found["child"]) == (False, False, False)
    assert found["kernel"] == [False] * (2 if processes else 1), "the worker, and the parent that supervises it"
    code, said = found["command"]
    assert code == 2
    assert said.startswith("error: Which store?")
    assert "Traceback" not in said
    assert found["connect"].startswith("Which store?")


def test_a_url_on_the_command_line_cannot_be_hidden(hf: Commands) -> None:
    ended = hf("worker", "agents.py", "--hide-url", "--db", "a.db")
    assert (ended.code, ended.out) == (2, "")
    assert "Set HOLDFAST_URL instead of --db." in ended.err


@hf_.step
async def environment() -> dict[str, str]:
    return dict(os.environ)


@hf_.agent
async def own() -> dict[str, str]:
    return await environment()


def test_an_app_of_ones_own_hides_it_once_the_store_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        app = hf_.connect(agents=[own], settings=hf_.Settings(hide_url=True))
        assert "HOLDFAST_URL" in os.environ
        async with app:
            found = await (await app.start(own())).result()
            assert "HOLDFAST_URL" not in found
            with pytest.raises(UsageError, match="Which store"):
                hf_.connect()
            assert store_url("another.db") == "another.db"

    monkeypatch.setenv("HOLDFAST_URL", str(tmp_path / "s.db"))
    monkeypatch.setenv("HOLDFAST_URL_HIDDEN", "")
    asyncio.run(main())
