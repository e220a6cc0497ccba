"""Before a deploy: which unfinished runs go on with the code as it is now. Nothing is executed, nothing is written."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.stores import opened
from holdfast.model import RunId
from holdfast.worker.checking import forecasts
from tests.cli.commands import Commands, Ended
from tests.eventually import eventually
from tests.forkserver import ForkServer

_LOG = logging.getLogger(__name__)

CODE = """
import asyncio
import os

import holdfast as hf
from holdfast.model import RunId

go = hf.Signal("go", int)


def world(text):
    with open(os.environ["WORLD"], "a") as file:
        file.write(text + "\\\\n")


@hf.step
async def think(n: int) -> int:
    world("think")
    return n


@hf.effect
async def pay(n: int) -> int:
    world("pay")
    return n


@hf.effect(settle=0)
async def doubtful(n: int) -> int:
    world("doubtful")
    raise OSError("lost")


@doubtful.verify
async def find(n: int) -> hf.Verdict[int]:
    world("find")
    raise OSError("nobody can tell")


@hf.agent(signals=[go])
async def letter(n: int) -> int:
    print("the agent prints")
    await asyncio.gather(think(n), think(n + 1))
    await pay(n)
    async with hf.timeout(days=3):
        got = await hf.receive(go)
    return await pay(got)


@hf.agent(signals=[go])
async def loops(n: int) -> int:
    await pay(n)
    async for state in hf.turns({"total": 0}):
        state["total"] += await hf.receive(go)
        await think(state["total"])
        if state["total"] > 100:
            return await pay(state["total"])


@hf.agent
async def asks(n: int) -> bool:
    await pay(n)
    return await hf.ask("Really?")


@hf.agent
async def sleeps(n: int) -> int:
    await hf.race(think(n), hf.sleep(days=1))
    await hf.sleep(days=3)
    return await pay(n)


@hf.agent
async def small(n: int) -> bool:
    return await asks(n)


@hf.agent
async def doubts(n: int) -> int:
    await think(n)
    return await doubtful(n)


@hf.agent
async def trip(n: int) -> int:
    async with hf.saga():
        await pay(n)
        await hf.sleep(days=2)
    return n
""".replace("\\\\n", "\\n")

AGENTS = ("letter", "loops", "asks", "sleeps", "small", "doubts", "trip")


@pytest.fixture
def commands(tmp_path: Path, forkserver: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("WORLD", str(tmp_path / "world.txt"))
    made = Commands(tmp_path, forkserver, writes_agents=False)
    made.environment["WORLD"] = str(tmp_path / "world.txt")
    return made


def loaded(folder: Path, code: str) -> ModuleType:
    path = folder / "letters.py"
    path.write_text(code)
    spec = util.spec_from_file_location("letters", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["letters"] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lived(url: str, folder: Path, work: Callable[[hf.Holdfast, ModuleType], Coroutine[Any, Any, None]]) -> None:
    module = loaded(folder, CODE)

    async def go() -> None:
        async with hf.connect(url, agents=[getattr(module, name) for name in AGENTS]) as app:
            await work(app, module)

    asyncio.run(asyncio.wait_for(go(), 60))


async def parked(app: hf.Holdfast, *wanted: str) -> None:
    async def are_parked() -> bool:
        rows = [await app._here.store.run(RunId(run.id)) for run in await app.runs(limit=1000)]
        return all(row is not None and row.owner is None and row.status in wanted for row in rows)

    await eventually(are_parked)


async def all_sorts(app: hf.Holdfast, module: ModuleType) -> None:
    """Runs that wait for a signal, a person, a time and a child; one is in doubt, one paused, one has not begun."""
    await asyncio.gather(*(app.start(getattr(module, name)(1), id=name) for name in AGENTS))
    paused = await app.start(module.letter(2), id="paused")
    await eventually(lambda: _is(paused, hf.Status.waiting))
    await paused.pause()
    await app.start(module.letter(3), id="delayed", delay=1000)
    for _ in range(3):
        await app.get("loops").send("go", 5)
    await eventually(lambda: _is_in_turn(app.get("loops"), 4))
    await parked(app, "waiting", "sleeping", "in_doubt", "paused", "queued")


async def _is_in_turn(run: hf.Run[Any], turn: int) -> bool:
    return len(await run.checkpoints()) == turn


async def _is(run: hf.Run[Any], status: hf.Status) -> bool:
    return await run.status() is status


def contents(url: str) -> str:
    return hashlib.sha256(Path(url).read_bytes()).hexdigest()


def checked(commands: Commands, url: str, code: str, *more: str) -> Ended:
    """What is said of the runs, with this code; and that nothing was done to them."""
    world, before = (commands.folder / "world.txt").read_text(), contents(url)
    (commands.folder / "changed.py").write_text(code)
    ended = commands("check", "changed.py", "--db", url, *more)
    assert (commands.folder / "world.txt").read_text() == world, "a body was executed"
    assert contents(url) == before, "something was written"
    assert "the agent prints" not in ended.out
    return ended


def line_in(code: str, text: str) -> int:
    return next(number for number, line in enumerate(code.splitlines(), 1) if text in line)


def replaced(*changes: tuple[str, str]) -> str:
    code = CODE
    for old, new in changes:
        assert old in code, old
        code = code.replace(old, new)
    return code


#: What is changed, and what becomes of runs then: the run, what would become of it, the call, and the text at the line.
INCOMPATIBLE: dict[str, tuple[str, set[tuple[str, str, str]], str]] = {
    "an effect has another name": (
        replaced(("async def pay", "async def charge"), ("await pay(", "await charge(")),
        {(each, "would block", "charge") for each in ("letter", "loops", "asks", "asks-child", "paused", "trip")},
        "await charge(n)",
    ),
    "an effect is gone": (
        replaced(("    await pay(n)\n    return await hf.ask", "    return await hf.ask")),
        {(each, "may block", "hf:ask#1") for each in ("asks", "asks-child")},
        "return await hf.ask",
    ),
    "a result has another type": (
        replaced(("async def pay(n: int) -> int", "async def pay(n: int) -> list[str]")),
        {(each, "would block", "pay#1") for each in ("letter", "loops", "asks", "asks-child", "paused", "trip")},
        "await pay(n)",
    ),
    "the input has another type": (
        replaced(("async def sleeps(n: int)", "async def sleeps(n: list[str])")),
        {("sleeps", "would block", "sleeps")},
        "@hf.agent",
    ),
    "the code raises": (
        replaced(("    await hf.sleep(days=3)", "    nonsense()\n    await hf.sleep(days=3)")),
        {("sleeps", "would fail", "")},
        "    nonsense()",
    ),
    "an open effect is gone": (
        replaced(("    return await doubtful(n)", "    return n")),
        {("doubts", "would block", "the end of the run")},
        "@hf.agent",
    ),
}

COMPATIBLE = {
    "nothing": CODE,
    "a step is new": replaced(
        ("    await pay(n)\n    async with", "    await think(7)\n    await pay(n)\n    async with")
    ),
    "a step is gone": replaced(("await asyncio.gather(think(n), think(n + 1))", "pass")),
    "a wait is longer": replaced(("hf.timeout(days=3)", "hf.timeout(days=4)")),
    "new code is guarded": replaced(
        ("    return await hf.ask", '    if hf.patched("more"):\n        await pay(5)\n    return await hf.ask')
    ),
    "an effect is new at the end": replaced(
        ("    return await pay(got)", "    await pay(9)\n    return await pay(got)")
    ),
    "an optional argument": replaced(("async def letter(n: int)", "async def letter(n: int, more: bool = False)")),
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


def test_it_names_run_call_and_line_of_what_would_block_and_is_silent_otherwise(
    url: str, tmp_path: Path, commands: Commands
) -> None:
    lived(url, tmp_path, all_sorts)
    for what, code in COMPATIBLE.items():
        ended = checked(commands, url, code)
        assert (ended.code, ended.out, ended.err) == (0, "", ""), what
    (letter,) = [
        each
        for each in checked(commands, url, COMPATIBLE["a step is new"], "--json").json["items"]
        if each["run_id"] == "letter"
    ]
    line = line_in(COMPATIBLE["a step is new"], "think(7)")
    assert (letter["anew"], letter["unseen"]) == ([f"think  {tmp_path / 'changed.py'}:{line}"], 1)
    for what, (code, expected, text) in INCOMPATIBLE.items():
        ended = checked(commands, url, code, "--json")
        assert ended.code == 5, f"{what}: {ended.err}"
        items = ended.json["items"]
        found = [each for each in items if each["prospect"] != "goes on"]
        named = {(_name(each), each["prospect"], each["call"]) for each in found}
        assert named == expected, what
        for each in found:
            path, _, line = each["where"].rpartition(":")
            assert Path(path).name == "changed.py", f"{what}: {each}"
            assert text in code.splitlines()[int(line) - 1], f"{what}: {each}"
        assert len(items) == 10, "all of them were looked at"


def _name(item: dict[str, Any]) -> str:
    return "asks-child" if item["run_id"].startswith("small.") else str(item["run_id"])


def test_it_tells_people_what_to_do_and_pipes_a_line_for_each(url: str, tmp_path: Path, commands: Commands) -> None:
    async def many(app: hf.Holdfast, module: ModuleType) -> None:
        await asyncio.gather(*(app.start(module.letter(n), id=f"l{n}") for n in range(30)))
        await parked(app, "waiting")

    lived(url, tmp_path, many)
    code = INCOMPATIBLE["an effect has another name"][0]
    piped = checked(commands, url, code)
    place = f"{tmp_path / 'changed.py'}:{line_in(code, 'await charge(n)')}"
    lines = [line.split("\t") for line in piped.out.splitlines()]
    assert len(lines) == 30
    assert ["l7", "would block", "letter", "waiting", "charge", place] in [line[:6] for line in lines]
    shown = commands.on_terminal("check", "changed.py", "--db", url)
    assert shown.code == 5
    assert "30 runs of letter would block at charge: replay mismatch" in shown.out
    assert "and 27 more" in shown.out
    assert "hf.patched(" in shown.out
    (tmp_path / "other.py").write_text("import holdfast as hf\n\n@hf.agent\nasync def other() -> None: ...\n")
    unknown = commands("check", "other.py", "--db", url, "--json")
    assert (unknown.code, unknown.json["unknown"], unknown.json["items"]) == (0, {"letter": 30}, [])
    assert checked(commands, url, code, "--agent", "nobody").code == 2
    assert commands("check", "--db", url).code == 2


@pytest.mark.prove
def test_the_one_that_would_block_is_found_among_a_thousand(url: str, tmp_path: Path, commands: Commands) -> None:
    async def many(app: hf.Holdfast, module: ModuleType) -> None:
        for first in range(0, 999, 111):
            calls = [getattr(module, AGENTS[n % 4])(n) for n in range(first, first + 111)]
            await asyncio.gather(*(app.start(call, id=f"r{n}") for n, call in enumerate(calls, first)))
        await app.start(module.trip(1), id="the-one")
        await parked(app, "waiting", "sleeping")

    lived(url, tmp_path, many)
    ended = checked(commands, url, CODE)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    charge = "@hf.effect\nasync def charge(n: int) -> int: ...\n\n\n"
    first, then = "        await pay(n)\n", "        await hf.sleep(days=2)"
    code = replaced(
        ("@hf.agent\nasync def trip", f"{charge}@hf.agent\nasync def trip"),
        (first + then, first.replace("pay", "charge") + then),
    )
    ended = checked(commands, url, code)
    assert ended.code == 5
    (line,) = ended.out.splitlines()
    place = f"{tmp_path / 'changed.py'}:{line_in(code, 'await charge(n)')}"
    assert line.split("\t")[:6] == ["the-one", "would block", "trip", "sleeping", "charge", place]
    module = loaded(tmp_path, code)

    async def look() -> tuple[int, float]:
        async with opened(url, read_only=True) as store:
            began = time.process_time()
            agents = {name: getattr(module, name) for name in AGENTS}
            found = [each async for each in forecasts(store, agents, agent=None, unknown=Counter())]
            return len(found), time.process_time() - began

    count, took = asyncio.run(look())
    _LOG.info("%s runs in %.2f s of CPU", count, took)
    assert (count, took <= 10) == (1000, True)


@pytest.mark.corrupts
def test_what_is_damaged_is_told_and_the_rest_is_looked_at(url: str, tmp_path: Path, commands: Commands) -> None:
    async def two(app: hf.Holdfast, module: ModuleType) -> None:
        await asyncio.gather(*(app.start(module.letter(n), id=f"l{n}") for n in range(2)))
        await parked(app, "waiting")

    lived(url, tmp_path, two)
    update = "UPDATE records SET name = 'x' WHERE run_id = 'l1' AND seq = 3"
    assert commands.execute(f"import apsw; apsw.Connection('runs.db').execute({update!r})").code == 0
    ended = checked(commands, url, CODE, "--json")
    assert ended.code == 6
    assert {each["run_id"]: each["prospect"] for each in ended.json["items"]} == {"l0": "goes on", "l1": "damaged"}
