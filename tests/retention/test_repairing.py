"""Runs that somebody changed by SQL: quarantined, and signed anew in another store; what is lost is said to be."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import holdfast as hf
from holdfast.errors import CorruptJournal, HoldfastError
from holdfast.model import NoteKind, RunId
from holdfast.testing import check_history
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.store.test_damaged_columns import damage

pytestmark = pytest.mark.corrupts

number = hf.Signal("number", int)


@hf.effect
async def post(text: str) -> str:
    with open("world.txt", "a") as world:
        world.write(f"{text}\n")
    return text


@hf.step
async def price() -> int:
    return 3


@hf.agent(signals=[number])
async def buyer(large: int = 0) -> int:
    paid = await price()
    await post("bought" + "!" * large)
    return paid * await hf.receive(number)


@hf.agent(signals=[number])
async def counter() -> int:
    await post("begun")
    async for state in hf.turns({"sum": 0}):
        state["sum"] += await price() * await hf.receive(number)
        await post(f"turn {state['sum']}")
        if state["sum"] > 20:
            break
    return state["sum"]


@hf.agent
async def parent() -> int:
    await price()
    return await buyer()


AGENTS: list[Any] = [buyer, counter, parent]


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "world.txt"


def go(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def sql(url: str, text: str) -> None:
    """What an operator does by hand."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute(text)
        connection.close()
        return

    async def execute() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(f"SET search_path = holdfast; {text}")
        await connection.close()

    go(execute())


async def park(url: str, call: hf.Call[Any], *values: int) -> None:
    """Run r, parked for a signal; nobody has it."""
    async with hf.connect(url, agents=AGENTS) as app:
        run = await app.start(call, id="r")
        for value in values:
            await run.send(number, value)

        async def is_parked() -> bool:
            row = await app._here.store.run(RunId("r"))
            info = await run.info()
            unread = len(values) - str(await run.history()).count("hf:receive")
            return row is not None and row.owner is None and info.status == "waiting" and unread < 0

        await eventually(is_parked)


async def quarantine(url: str) -> None:
    async with hf.connect(url, agents=AGENTS) as app:
        await app.get("r").send(number, 1)

        async def is_found() -> bool:
            return (await app.get("r").info()).status == "quarantined"

        await eventually(is_found)


async def finish(url: str, *values: int) -> Any:
    async with hf.connect(url, agents=AGENTS) as app:
        for value in values:
            await app.get("r").send(number, value)
        await app.get("r").resume(by="ann")
        return await app.get("r").result(timeout=60)


PRICE = "UPDATE records SET payload = '7' WHERE name = 'price' AND kind = 'done'"


def test_a_run_that_was_changed_by_hand_goes_on_with_what_it_says_now_and_says_so(
    url: str, world: Path, commands: Commands
) -> None:
    go(park(url, buyer()))
    sql(url, PRICE)
    go(quarantine(url))
    assert commands("repair", "new.db", "r", "--by", "ann", "--note", "typed in", "--db", url).code == 0
    assert commands("verify", "--db", url).code == 6, "the first store is as it was"
    assert commands("verify", "--db", "new.db").code == 0
    (repaired,) = commands("show", "r", "--db", "new.db", "--json").json["timeline"][-1:]
    assert (repaired["name"], "record 3" in repaired["detail"]) == (NoteKind.repaired, True)
    assert "typed in" in repaired["detail"]
    (act,) = commands("activity", "--db", "new.db", "--json").json["items"]
    assert (act["what"], act["by"], act["note"], act["via"]) == ("repair", "ann", "typed in", "cli")
    again = commands("repair", "new.db", "--db", url)
    assert (again.code, "there already" in again.out) == (0, True)
    assert commands("show", "r", "--db", "new.db", "--json").json["run"]["status"] == "paused", "nobody takes it up"
    assert go(finish("new.db")) == 7 * 1, "the signal that came before"
    assert world.read_text() == "bought\n"
    assert check_history("new.db") == []


def test_a_run_with_turns_is_signed_in_all_its_parts(tmp_path: Path, world: Path, commands: Commands) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    go(park(url, counter(), 1, 2))
    sql(url, PRICE)
    go(quarantine(url))
    assert commands("repair", "new.db", "--db", url).code == 0
    assert commands("verify", "--db", "new.db").code == 0
    go(finish("new.db", 4))
    assert world.read_text().splitlines()[:3] == ["begun", "turn 3", "turn 9"]
    assert check_history("new.db") == []


def proved(*case: str) -> Any:
    return pytest.param(*case, marks=pytest.mark.prove)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("DELETE FROM records WHERE kind = 'intent'", "record 4"),
        proved("UPDATE records SET payload = '[1' WHERE name = 'price'", "what record 3 says"),
        proved("UPDATE records SET payload = '7' WHERE kind = 'created'", "what record 1 says"),
        ("UPDATE runs SET nonce = 'x'", "the nonce"),
        ("DELETE FROM blobs", "the value of record 5"),
        (f"{PRICE}; DELETE FROM mailbox", "mail 1"),
        proved("UPDATE runs SET head_seq = 99", "to 99"),
    ],
)
def test_a_run_that_has_lost_something_is_saved_and_never_called_sound(
    tmp_path: Path, world: Path, commands: Commands, change: str, lost: str
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    go(park(url, buyer(100_000)))
    go(_mail(url))
    before = _records(url)
    sql(url, change)
    left = _records(url)
    ended = commands("repair", "new.db", "r", "--db", url)
    assert ended.code == 6, ended.err
    assert lost in ended.out
    assert commands("verify", "--db", "new.db").code == 6
    assert _records("new.db") == left, "all that can be read is there, as it is stored"
    assert len(left) <= len(before)
    with pytest.raises(CorruptJournal, match="lost"):
        go(finish("new.db"))
    assert world.read_text().count("bought") == 1


async def _mail(url: str) -> None:
    async with hf.connect(url) as app:
        await app.get("r").send(number, 5)


def _records(url: str) -> list[tuple[object, ...]]:
    async def read() -> list[tuple[object, ...]]:
        async with hf.connect(url) as app:
            return [tuple(record) for record in await app._here.store.records(RunId("r"))]

    found: list[tuple[object, ...]] = go(read())
    return found


@pytest.mark.parametrize(("table", "column"), [("records", "tick"), proved("runs", "nonce"), proved("mailbox", "body")])
def test_what_cannot_be_read_hides_nothing_else(tmp_path: Path, commands: Commands, table: str, column: str) -> None:
    url = str(tmp_path / "store.db")
    go(park(url, buyer()))
    go(_mail(url))
    damage(tmp_path / "store.db", table, column, b"\xff" if table == "runs" else None)
    ended = commands("repair", "new.db", "--db", url)
    assert ended.code == 6, ended.out
    connection = apsw.Connection("new.db")
    assert connection.execute("SELECT status FROM runs").get == "quarantined"
    if table != "records":
        assert connection.execute("SELECT count(*) FROM records").get > 4
    connection.close()


def test_nobody_executes_a_run_in_two_stores_because_it_was_repaired(tmp_path: Path, commands: Commands) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    go(park(url, buyer()))
    sql(url, PRICE)
    assert "frozen" in commands("repair", "new.db", "--db", url).out, "its store does not know yet that it is damaged"
    with pytest.raises(HoldfastError, match="frozen copy"):
        go(finish("new.db"))


def test_a_member_of_a_family_is_frozen_since_the_others_stay(tmp_path: Path, commands: Commands) -> None:
    url = str(tmp_path / "store.db")

    async def live() -> None:
        async with hf.connect(url, agents=AGENTS) as app:
            await app.start(parent(), id="r")

            async def are_parked() -> bool:
                rows = [await app._store.run(RunId(info.id)) for info in await app.runs()]
                return len(rows) == 2 and all(row is not None and row.status == "waiting" for row in rows)

            await eventually(are_parked)

    async def found() -> list[str]:
        async with hf.connect(url) as app:
            for info in await app.runs():
                await app._store.quarantine(RunId(info.id), "the record does not fit its hash")
            return [info.id for info in await app.runs()]

    go(live())
    sql(f"sqlite:///{url}", PRICE)
    ids = go(found())
    ended = commands("repair", "new.db", "--db", url)
    assert (ended.code, ended.out.count("frozen")) == (0, len(ids)), ended.out


@pytest.mark.parametrize("point", [proved("copy.before_commit"), "copy.after_commit"])
def test_a_repair_that_is_killed_is_finished_by_the_same_command(
    point: str, tmp_path: Path, commands: Commands
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    go(park(url, buyer()))
    sql(url, PRICE)
    go(quarantine(url))
    repair = ("repair", "new.db", "r", "--db", url)
    assert commands(*repair, HOLDFAST_FAULT=f"{point}:kill").code == -signal.SIGKILL
    assert commands(*repair).code == 0
    assert commands("verify", "--db", "new.db").code == 0
    assert go(finish("new.db")) == 7
    assert len(commands("activity", "--db", "new.db", "--json").json["items"]) == 1


def test_sound_runs_are_left_alone_and_so_is_a_run_of_that_name(tmp_path: Path, commands: Commands) -> None:
    url = str(tmp_path / "store.db")
    go(park(url, buyer()))
    assert "No run is damaged" in commands("repair", "new.db", "--db", url).err
    refused = commands("repair", "new.db", "r", "--db", url)
    assert (refused.code, "it is not damaged" in refused.out) == (5, True)
    assert commands("repair", url, "r", "--db", url).code == 2, "the same store"
    assert commands("repair", "new.db", "x", "--db", url).code == 3
    go(park(str(tmp_path / "new.db"), buyer()))
    sql(f"sqlite:///{url}", PRICE)
    taken = commands("repair", "new.db", "r", "--db", url)
    assert (taken.code, "nothing was written" in taken.out) == (5, True)
