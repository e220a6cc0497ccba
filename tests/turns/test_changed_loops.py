"""A run with turns is taken up with other code: before the loop, in it, or of its state."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pydantic
import pytest

import holdfast as hf
from holdfast.journal.blobs import blob_in, with_bases
from holdfast.testing.reading import read_run
from tests.turns.stage import RUN, Stage, word

log: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "store.db")


@hf.step
async def look(n: int) -> int:
    log.append(f"look {n}")
    return n


@hf.effect(settle=0, on_doubt="retry")
async def pay(n: int) -> int:
    log.append(f"pay {n}")
    return n


@hf.effect(settle=0, on_doubt="retry")
async def mail(text: str) -> str:
    log.append(f"mail {text}")
    return text


Body = Callable[[], Coroutine[Any, Any, None]]
InTurn = Callable[[], Coroutine[Any, Any, None]]


async def nothing() -> None:
    pass


def loop(before: Body, inside: InTurn) -> hf.Agent[[], list[str]]:
    """An agent that does this before its loop, and that in each turn, after its word."""

    @hf.agent(name="loop", signals=[word])
    async def looping() -> list[str]:
        await before()
        async for state in hf.turns({"words": [""]}):
            state["words"].append(await hf.receive(word))
            await inside()
            if state["words"][-1] == "last":
                return state["words"]
        raise AssertionError

    return looping


def before_and_after(
    stage: Stage, old: tuple[Body, InTurn], new: tuple[Body, InTurn], *, words: tuple[str, ...] = ("b", "last")
) -> Any:
    """The old code lives for a turn, the new one goes on; how that ends."""
    assert stage.go(loop(*old)(), "a").status is hf.Status.waiting
    log.clear()
    return stage.go(loop(*new)(), *words)


def detail_of(info: hf.RunInfo) -> str:
    assert info.status is hf.Status.blocked, info
    return str(info.reason)


def patched(name: str) -> Body:
    async def body() -> None:
        if hf.patched("new"):
            await pay(len(name))
        log.append(f"{name} {hf.patched('new')}")

    return body


def calling(*calls: Callable[[], Coroutine[Any, Any, Any]]) -> Body:
    async def body() -> None:
        for call in calls:
            await call()

    return body


PAY, MAIL, LOOK = (lambda: pay(1)), (lambda: mail("x")), (lambda: look(1))


def test_a_patch_in_the_loop_is_taken_from_the_next_turn_on(stage: Stage) -> None:
    assert before_and_after(stage, (nothing, nothing), (nothing, patched("in"))) == ["", "a", "b", "last"]
    assert log == ["pay 2", "in True", "pay 2", "in True"]


def test_a_turn_that_was_begun_on_the_old_path_ends_on_it(stage: Stage) -> None:
    async def old() -> None:
        await look(1)
        await hf.receive(word)

    async def new() -> None:
        if hf.patched("new"):
            await pay(1)
        log.append(f"{hf.patched('new')}")
        await look(1)
        await hf.receive(word)

    assert before_and_after(stage, (nothing, old), (nothing, new), words=("x", "b", "y", "last", "z"))[1:] == [
        "a",
        "b",
        "last",
    ]
    assert log == ["False", "pay 1", "True", "look 1", "pay 1", "True", "look 1"]


def test_a_patch_before_the_loop_is_not_taken_once_it_has_begun(stage: Stage) -> None:
    assert before_and_after(stage, (nothing, nothing), (patched("before"), nothing))[1:] == ["a", "b", "last"]
    assert set(log) == {"before False"}


def test_a_patch_in_both_is_taken_in_the_loop_alone(stage: Stage) -> None:
    before_and_after(stage, (nothing, nothing), (patched("before"), patched("in")))
    assert "before True" not in log
    assert log[-2:] == ["pay 2", "in True"]


def test_an_effect_that_is_not_made_before_the_loop_any_more_is_passed_by(stage: Stage) -> None:
    ended = before_and_after(stage, (calling(PAY), nothing), (nothing, calling(MAIL)))
    assert ended == ["", "a", "b", "last"]
    assert log == ["mail x", "mail x"]


def test_one_that_moved_into_the_loop_blocks(stage: Stage) -> None:
    blocked = before_and_after(stage, (calling(PAY), nothing), (nothing, calling(PAY)))
    assert "pay#1" in detail_of(blocked)
    assert log == []


@pytest.mark.parametrize(
    ("new", "named"),
    [
        (MAIL, "mail"),
        (lambda: hf.receive(word), "hf:receive.word"),
        (lambda: hf.sleep(0.01), "hf:sleep"),
        (lambda: hf.ask("May I?"), "hf:ask"),
    ],
    ids=["effect", "signal", "sleep", "question"],
)
def test_what_is_new_before_the_loop_blocks(stage: Stage, new: Any, named: str) -> None:
    blocked = before_and_after(stage, (calling(LOOK), nothing), (calling(LOOK, new), nothing))
    told = detail_of(blocked)
    assert named in told
    assert f"{Path(__file__).name}:" in told
    assert "in turn 2 of its loop" in told
    assert log == []


def test_a_step_that_is_new_before_the_loop_runs_at_each_resume_and_is_told(stage: Stage) -> None:
    before_and_after(stage, (nothing, nothing), (calling(LOOK), nothing), words=("b",))
    stage.go(loop(calling(LOOK), nothing)(), "last")
    assert log.count("look 1") >= 2
    notes = [item for item in stage.look(lambda run: run.history()) if item.status == "new before the loop"]
    assert notes


def test_code_that_has_lost_its_loop_blocks(stage: Stage) -> None:
    @hf.agent(name="loop", signals=[word])
    async def looping() -> list[str]:
        return []

    stage.go(loop(nothing, nothing)(), "a")

    async def resumed() -> hf.RunInfo:
        async with hf.connect(stage.url, agents=[looping]) as app:
            with pytest.raises(hf.RunBlocked):
                await (await app.resume(run_id=RUN)).result()
            return await app.get(RUN).info()

    assert "without coming to it" in detail_of(asyncio.run(resumed()))


# the state


@dataclass
class Old:
    """What was stored."""

    words: list[str] = field(default_factory=list)
    gone: int = 7


@dataclass
class More:
    """With a field that was not there, and without one that was."""

    words: list[str] = field(default_factory=list)
    count: int = 5


class Renamed(pydantic.BaseModel):
    """The same under another name."""

    texts: list[str]


def keeper(state: Any, migrate: Any = None) -> hf.Agent[[], str]:
    @hf.agent(name="keeper", signals=[word])
    async def keeping() -> str:
        async for kept in hf.turns(state, migrate=migrate):
            said = await hf.receive(word)
            if said == "last":
                return repr(kept)
            getattr(kept, "words", []).append(said)
        raise AssertionError

    return keeping


def test_a_missing_field_takes_its_default_and_an_unknown_one_is_told(stage: Stage) -> None:
    stage.go(keeper(Old())(), "a")
    assert stage.go(keeper(More())(), "last") == "More(words=['a'], count=5)"
    assert "gone" in str([item for item in stage.look(lambda run: run.history()) if item.status == "state"])


def test_a_state_that_does_not_fit_blocks_and_nothing_is_executed(stage: Stage) -> None:
    stage.go(keeper(Old())(), "a")
    blocked = stage.go(keeper(Renamed(texts=[]))(), "last")
    told = detail_of(blocked)
    assert "state does not fit" in told
    assert all(each in told for each in ("texts", "words: list, gone: int", "Renamed: texts list[str]", "migrate="))


def test_migrate_is_asked_if_the_shape_differs_and_only_then(stage: Stage) -> None:
    def migrate(stored: dict[str, Any]) -> Renamed:
        log.append(f"migrate {stored}")
        return Renamed(texts=stored["words"])

    def never(stored: Any) -> Any:
        raise AssertionError

    stage.go(keeper(Old(), never)(), "a")
    assert stage.go(keeper(Old(), never)(), "b").status is hf.Status.waiting
    assert stage.go(keeper(Renamed(texts=[]), migrate)(), "last") == "Renamed(texts=['a', 'b'])"
    assert log == ["migrate {'words': ['a', 'b'], 'gone': 7}"]


def test_a_migration_that_raises_blocks(stage: Stage) -> None:
    stage.go(keeper(Old())(), "a")
    blocked = stage.go(keeper(Renamed(texts=[]), lambda stored: stored["nothing"])(), "last")
    assert "migrate= raised KeyError" in detail_of(blocked)


# damage


def large(stage: Stage, *said: str) -> Any:
    return stage.go(keeper(Old(["x" * 3000]))(), *said)


@pytest.mark.corrupts
@pytest.mark.parametrize("what", ["state", "past", "before", "blob", "base", "cut"])
def test_a_flipped_byte_quarantines_the_run_before_code_sees_a_value(stage: Stage, what: str) -> None:
    for n in range(4):
        large(stage, f"{n}")
    _, records = read_run(stage.url, RUN)
    head = max(record.seq for record in records if record.kind == "checkpoint")
    record = f"WHERE run_id = '{RUN}' AND seq = {head}"
    blob = f"WHERE run_id = '{RUN}' AND digest LIKE"
    statement = {
        "state": f"UPDATE records SET args = replace(args, '~', '-') {record}",
        "past": f"UPDATE records SET payload = payload || ' ' {record}",
        "before": f"UPDATE records SET name = name || 'x' {record.replace(str(head), '2')}",
        "blob": f"UPDATE blobs SET data = CAST(substr(data, 1, length(data) - 1) || X'00' AS BLOB) {blob} '%~%'",
        "base": f"DELETE FROM blobs {blob} '%' AND digest NOT LIKE '%~%'",
        "cut": f"UPDATE runs SET summary = replace(summary, '\"cut\":[', '\"cut\":[1') WHERE id = '{RUN}'",
    }[what]
    connection = apsw.Connection(stage.url)
    connection.execute(statement)
    assert connection.changes()
    connection.close()

    async def resumed() -> hf.Status:
        async with hf.connect(stage.url, agents=[keeper(Old(["x" * 3000]))]) as app:
            with pytest.raises(hf.CorruptJournal):
                await app.resume(run_id=RUN)
            return await app.get(RUN).status()

    assert asyncio.run(resumed()) is hf.Status.quarantined


@pytest.mark.prove
@pytest.mark.corrupts
@pytest.mark.timeout(0)
def test_one_flipped_byte_of_anything_that_a_resume_reads_quarantines_the_run(stage: Stage, tmp_path: Path) -> None:
    """Of each text of each record, and of each blob, at three places."""
    for n in range(4):
        large(stage, f"{n}")
    texts = ("key", "kind", "name", "args_digest", "args", "payload", "hash")
    loaded = stage.resumable().records
    places = [("records", column, f"seq = {record.seq}") for record in loaded for column in texts]
    connection = apsw.Connection(stage.url)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    blobs = dict(connection.execute("SELECT digest, data FROM blobs WHERE chunk = 0"))
    connection.close()
    read = with_bases(blobs, filter(None, (blob_in(record.args) for record in loaded)))
    assert len(read) > 1, "a difference, and what it is one to"
    places += [("blobs", "data", f"digest = '{name}'") for name in read]
    flips = 0
    for table, column, which in places:
        for third in range(3):
            copy = tmp_path / f"flip-{flips}" / "store.db"
            copy.parent.mkdir()
            shutil.copy(stage.url, copy)
            if _flip(copy, f"{table} WHERE run_id = '{RUN}' AND {which}", column, third):
                flips += 1
                assert _resumed(copy) is hf.Status.quarantined, (table, column, which, third)
            shutil.rmtree(copy.parent)
    assert flips > len(places)
    assert log == [], "code saw a value"


def _flip(store: Path, place: str, column: str, third: int) -> bool:
    """Change a bit of the first, the middle or the last byte of a cell; False: it has none."""
    table, _, where = place.partition(" ")
    connection = apsw.Connection(str(store))
    try:
        cell = connection.execute(f"SELECT {column} FROM {table} {where}").get
        if not cell:
            return False
        data = bytearray(cell if isinstance(cell, bytes) else cell.encode())
        data[(0, len(data) // 2, len(data) - 1)[third]] ^= 1
        changed = bytes(data) if isinstance(cell, bytes) else data.decode()
        connection.execute(f"UPDATE {table} SET {column} = ? {where}", (changed,))
        return True
    finally:
        connection.close()


def _resumed(store: Path) -> hf.Status:
    @hf.agent(name="keeper", signals=[word])
    async def keeping() -> str:
        async for kept in hf.turns(Old(["x" * 3000])):
            log.append(f"saw {kept}")
            await hf.receive(word)
        raise AssertionError

    async def resumed() -> hf.Status:
        async with hf.connect(str(store), agents=[keeping]) as app:
            with contextlib.suppress(hf.CorruptJournal, hf.RunBlocked):
                await app.resume(run_id=RUN)
            return await app.get(RUN).status()

    return asyncio.run(resumed())
