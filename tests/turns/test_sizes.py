"""What a loop stores grows with what is new, also if it leaves memory in each turn; and all of it can be read again."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import holdfast as hf
from holdfast.journal.blobs import blob_in
from holdfast.model import Kind, RunId
from holdfast.testing.reading import read, read_run
from tests.turns.many import make
from tests.turns.stage import RUN, Stage, word

_LOG = logging.getLogger(__name__)
SIZE = 2000


def text(seed: int) -> str:
    """What does not compress, and has nothing in common with another one."""
    chosen = random.Random(seed)
    return "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz ", k=SIZE))


@hf.step
async def think(history: list[str]) -> int:
    return len(history)


@hf.agent(signals=[word])
async def chat(window: int, turns: int) -> int:
    async for history in hf.turns([""]):
        history.append(await hf.receive(word))
        history[:-window] = []
        await think(history)
        if hf.this_run().turn == turns:
            return len(history)
    raise AssertionError


def stored(url: str) -> dict[str, int]:
    """How many bytes of large values there are, as they are stored, by whether they are whole."""
    row, records = read_run(url, RUN)
    names = {v[1:].partition(":")[0] for r in records for v in (r.args, r.payload) if v and v[0] == "@"}
    blobs = read(url, lambda store: store.blobs(row.id, sorted(names)))
    sizes = {"whole": 0, "differences": 0}
    for data in blobs.values():
        sizes["differences" if data.startswith(b"~") else "whole"] += len(data)
    return sizes


def check_bounds(url: str, raw: int) -> None:
    """The states take at most three times what was said; all tables six times, and pages twice what is in them."""
    row, records = read_run(url, RUN)
    heads = [each for each in records if each.kind == Kind.checkpoint]
    named = sorted({name for each in heads if (name := blob_in(each.args)) is not None})
    blobs = read(url, lambda store: store.blobs(row.id, named))
    states = sum(map(len, blobs.values())) + sum(len(each.args or "") + len(each.payload or "") for each in heads)
    assert states <= 3 * raw, states / raw
    values, pages = _taken(url)
    _LOG.info("states %.2f, values %.2f, pages %.2f times what was said", states / raw, values / raw, pages / raw)
    assert pages <= 6 * raw, pages / raw
    assert pages <= 2 * values, pages / values


_VALUES = """
SELECT (SELECT sum(coalesce(length(args), 0) + coalesce(length(payload), 0)) FROM records)
    + (SELECT coalesce(sum(length(data)), 0) FROM blobs) + (SELECT coalesce(sum(length(body)), 0) FROM mailbox)
"""
_PAGES = """
SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname = 'holdfast'
"""


def _taken(url: str) -> tuple[int, int]:
    """Bytes of values, as they are stored, and of the pages of all tables and indexes."""
    if url.startswith("postgres"):
        return asyncio.run(_taken_there(url))
    with apsw.Connection(url) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((values,),) = store.execute(_VALUES)
    return int(values), Path(url).stat().st_size


async def _taken_there(url: str) -> tuple[int, int]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET search_path = holdfast, public")
        await connection.execute("VACUUM")
        return int(await connection.fetchval(_VALUES)), int(await connection.fetchval(_PAGES))
    finally:
        await connection.close()


def live(stage: Stage, *, window: int, turns: int, at_once: int) -> Any:
    end: Any = None
    for first in range(0, turns, at_once):
        end = stage.go(chat(window, turns), *(text(n) for n in range(first, min(first + at_once, turns))))
    return end


@pytest.mark.parametrize(
    ("window", "turns", "at_once"),
    [
        (1000, 40, 40),
        (1000, 40, 5),
        (10, 40, 5),
        pytest.param(1000, 500, 20, marks=pytest.mark.prove),
        pytest.param(50, 500, 20, marks=pytest.mark.prove),
    ],
    ids=["growing", "resumed", "a window", "500", "a window of 500"],
)
def test_states_and_arguments_grow_with_what_is_new(tmp_path: Path, window: int, turns: int, at_once: int) -> None:
    stage = Stage(tmp_path / "store.db")
    assert live(stage, window=window, turns=turns, at_once=at_once) == min(window, turns + (window > turns))
    raw = turns * SIZE
    sizes = stored(stage.url)
    assert sizes["differences"] > 0
    assert sum(sizes.values()) <= 6 * raw, sizes  # states and arguments
    if turns == 500:
        check_bounds(stage.url, raw)
    assert stage.look(lambda run: run.verify_journal()).is_ok
    for turn in range(2, turns, max(1, turns // 20)):
        found = stage.look(lambda run, turn=turn: run.state(turn))
        assert found == ["", *map(text, range(turn - 1))][-window:]


def test_on_postgresql_too(postgres_url: str) -> None:
    stage = Stage(postgres_url)
    assert live(stage, window=1000, turns=12, at_once=4) == 13
    sizes = stored(stage.url)
    assert sizes["differences"] > 0
    assert sum(sizes.values()) <= 6 * 12 * SIZE, sizes
    assert stage.look(lambda run: run.verify_journal()).is_ok
    assert stage.look(lambda run: run.state(7)) == ["", *map(text, range(6))]
    assert [each.turn for each in stage.look(lambda run: run.checkpoints())] == [*range(1, 13)]
    assert [each.path for each in stage.look(lambda run: run.diff(7, 8))] == ["[7]"]
    loaded = read(stage.url, lambda store: store.load_many([RunId(RUN)]))
    assert len(loaded[0].records) < 15


@pytest.mark.prove
@pytest.mark.timeout(0)
@pytest.mark.parametrize("window", [1000, 50])
def test_five_hundred_turns_on_postgresql(postgres_url: str, window: int) -> None:
    stage = Stage(postgres_url)
    assert live(stage, window=window, turns=500, at_once=20) == min(window, 501)
    check_bounds(stage.url, 500 * SIZE)


def test_what_is_sent_ahead_is_not_stored_again_in_each_turn(tmp_path: Path) -> None:
    """All signals come before the first turn is over: a checkpoint that lists them has as much in each turn."""
    lengths = {}
    for turns in (200, 800):
        url = str(tmp_path / f"{turns}.db")
        asyncio.run(make(url, turns))
        with apsw.Connection(url, flags=apsw.SQLITE_OPEN_READONLY) as store:
            ((most, count),) = store.execute(
                "SELECT max(length(payload)), count(*) FROM records WHERE kind = 'checkpoint'"
            )
        lengths[turns] = most
        assert count == turns + 1
    assert lengths[800] <= lengths[200] + 20, lengths
