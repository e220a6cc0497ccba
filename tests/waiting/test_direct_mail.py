"""Mail between runs of one process: handed over after its commit, without a look at the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import holdfast as hf
from holdfast.store.sqlite.store import SqliteStore

number = hf.Signal("number", int)
_COUNT = 30
_NO_SWEEP = hf.Settings(sweep_s=3600)


@contextmanager
def reads(app: hf.Holdfast) -> Iterator[list[str]]:
    """What is asked of the store meanwhile, by whomever: each is a trip to another thread."""
    store, asked = app._store, list[str]()
    assert isinstance(store, SqliteStore)
    assert store._database.reader is not None

    def note(_: apsw.Cursor, sql: str, bindings: object) -> bool:
        if sql not in ("BEGIN", "ROLLBACK"):
            asked.append(sql)
        return True

    store._database.reader.exec_trace = note
    try:
        yield asked
    finally:
        store._database.reader.exec_trace = None


@hf.agent(signals=[number])
async def collects(count: int) -> list[int]:
    return [await hf.receive(number) for _ in range(count)]


@pytest.mark.sqlite_alone("counts what is asked of SQLite")
def test_a_signal_to_a_run_in_memory_asks_the_store_nothing(tmp_path: Path) -> None:
    came = asyncio.Event()

    @hf.agent(signals=[number])
    async def listens() -> int:
        total = 0
        for _ in range(_COUNT):
            total += await hf.receive(number)
            came.set()
        return total

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[listens], settings=_NO_SWEEP) as app:
            run = await app.start(listens())
            with reads(app) as asked:
                for n in range(_COUNT):
                    came.clear()
                    await run.send(number, n)
                    await came.wait()
            assert await run.result(timeout=60) == sum(range(_COUNT))
            assert len(asked) < _COUNT  # a run that the machine was too slow for parks, and is taken up by looking

    asyncio.run(main())


def test_runs_of_one_process_hear_from_each_other_and_from_their_children(tmp_path: Path) -> None:
    """No sweep helps: whatever is not handed over, or rung for, is never heard."""

    @hf.agent
    async def child(n: int) -> int:
        return n

    @hf.agent
    async def sends(to: str) -> int:
        run: hf.Run[list[int]] = apps[0].get(to)
        for n in range(_COUNT):
            await run.send(number, n)
        return sum([await child(n) for n in range(5)])

    apps: list[hf.Holdfast] = []

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[collects, sends, child], settings=_NO_SWEEP) as app:
            apps.append(app)
            listener = await app.start(collects(_COUNT))
            sender = await app.start(sends(listener.id))
            assert await sender.result(timeout=60) == 10
            assert await listener.result(timeout=60) == list(range(_COUNT))

    asyncio.run(main())


def test_what_a_run_does_not_take_is_refused_to_a_sender_in_its_process(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[collects]) as app:
            run = await app.start(collects(1))
            with pytest.raises(hf.UsageError, match=r"\(collects\) takes no signal 'word'; it takes number"):
                await run.send("word", 1)
            with pytest.raises(hf.UsageError, match="does not fit signal 'number' of collects"):
                await run.send("number", "one")
            await run.send(number, 1)
            assert await run.result(timeout=60) == [1]
            with pytest.raises(hf.RunFinished):
                await run.send(number, 2)

    asyncio.run(main())
