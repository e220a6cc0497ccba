"""A damaged page can say anything: a value that is missing, or of another kind than its column can hold.

No database stores that, so the schema is changed to let it in, and changed back.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import apsw
import pytest

import holdfast as hf
from holdfast.errors import HoldfastError
from tests.eventually import eventually

TABLES = tuple(
    "runs records blobs mailbox questions definitions workers tags thread_heads thread_messages migrations".split()
)
#: What differs there changes no value of a run: it is not found by its tag.
UNSEEN = ("tags", "migrations")

said = hf.Signal("said", str)


@hf.step
async def big() -> str:
    return "large " * 20_000


@hf.agent(signals=[said])
async def asker() -> str:
    await big()
    await hf.thread(str).append("hello")
    await hf.thread(str).recent()
    await hf.receive(said)
    return await hf.ask("Go on?", str)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a row in each table, copied while a worker has it open."""
    path = tmp_path_factory.mktemp("damaged") / "store.db"

    async def make() -> None:
        async with hf.connect(str(path), agents=[asker]) as app:
            await app.queue("few", concurrency=2)
            run = await app.start(asker(), id="r", thread_id="t", tags={"sort": "odd"})
            await run.send(said, "hello")
            await eventually(run.questions)
            await run.send(said, "unread")
            source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            copy = apsw.Connection(str(path.with_name("copy.db")))
            with copy.backup("main", source, "main") as copying:
                copying.step()
            source.close()
            copy.close()

    asyncio.run(make())
    return path.with_name("copy.db")


def columns(path: Path, table: str) -> list[tuple[str, str]]:
    connection = apsw.Connection(str(path))
    try:
        assert connection.execute(f"SELECT count(*) FROM {table}").get, f"nothing is stored in {table}"
        return [(str(name), str(kind)) for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")]
    finally:
        connection.close()


def damage(path: Path, table: str, column: str, value: object) -> None:
    """Set a column to what it cannot hold."""
    connection = apsw.Connection(str(path))
    version = connection.execute("PRAGMA schema_version").get
    schema = list(connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
    loose = "replace(replace(replace(replace(sql, ' TEXT', ''), 'NOT NULL', ''), 'STRICT, ', ''), 'STRICT', '')"
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(f"UPDATE sqlite_schema SET sql = {loose} WHERE type = 'table' AND name = ?", (table,))
    connection.execute("PRAGMA writable_schema = RESET")
    connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    connection.execute("PRAGMA writable_schema = ON")
    for name, sql in schema:
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))
    connection.execute(f"PRAGMA schema_version = {version}")
    connection.close()


async def use(path: Path) -> list[str]:
    """Whatever a person and a worker do with a store: what was refused."""
    refused: list[str] = []

    async def look(app: hf.Holdfast) -> None:
        for info in await app.runs():
            try:
                run = app.get(info.id)
                await run.info()
                await run.history()
                refused.extend(filter(None, [(await run.verify_journal()).problem]))
            except HoldfastError as error:
                refused.append(str(error))
        for read in (app.questions, app.in_doubt, app.workers, app.queues, app.thread("t", str).recent):
            try:
                await read()
            except HoldfastError as error:
                refused.append(str(error))
        await app.runs(tags={"sort": "odd"})

    try:
        async with hf.connect(str(path), agents=[asker]) as app:
            await look(app)
            run = app.get("r")
            await run.resume()
            for question in await run.questions():
                await question.answer("yes", by="a person")
            await look(app)
    except HoldfastError as error:
        refused.append(str(error))
    return refused


@pytest.mark.corrupts
@pytest.mark.parametrize("table", TABLES)
def test_a_value_that_its_column_cannot_hold_is_damage_and_no_mistake_of_ours(
    store: Path, tmp_path: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, noticed = [], 0
    for column, kind in columns(store, table):
        for value in (None, 7 if kind == "TEXT" else "no number"):
            path = tmp_path / f"{column}-{value}.db"
            shutil.copy(store, path)
            try:
                damage(path, table, column, value)
            except (apsw.ConstraintError, apsw.MismatchError):
                continue  # of several rows it would make one; SQLite's own row numbers
            caplog.clear()
            with caplog.at_level(logging.ERROR):
                try:
                    noticed += bool(asyncio.run(use(path)))
                except Exception as error:
                    wrong.append(f"{column} = {value!r}: {type(error).__name__}: {error}")
            wrong += [
                f"{column} = {value!r}: logged {record.exc_info[0].__name__}: {record.exc_info[1]}"
                for record in caplog.records
                if record.exc_info and record.exc_info[0] and not issubclass(record.exc_info[0], HoldfastError)
            ]
            path.unlink()
    assert not wrong, "\n".join(wrong)
    assert noticed or table in UNSEEN, "nothing was damaged"
