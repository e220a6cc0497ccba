"""`backup`, `migrate` and `doctor`: what people do to a store as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.model import RunId
from holdfast.store import migrate, open_store
from holdfast.testing import check_history
from holdfast.testing.postgres import Databases, binaries
from tests.cli.commands import Commands
from tests.retention.agents import ALL, adder, collector, number
from tests.workers import until


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORLD", str(tmp_path / "world.txt"))
    return tmp_path / "world.txt"


def lines(world: Path) -> list[str]:
    return world.read_text().splitlines() if world.exists() else []


# backup and restore


def test_a_backup_made_while_runs_execute_is_whole_and_can_be_put_in_place(tmp_path: Path, commands: Commands) -> None:
    store = tmp_path / "runs.db"

    async def work() -> None:
        async with hf.connect(str(store), agents=ALL) as app:
            runs = [await app.start(adder(n), id=f"r{n}") for n in range(20)]
            backup = asyncio.create_task(
                asyncio.to_thread(commands, "backup", str(tmp_path / "backup.db"), "--db", str(store), "--json")
            )
            more = [await app.start(adder(n), id=f"s{n}") for n in range(20)]
            for run in (*runs, *more):
                await run.result()
            ended = await backup
            assert ended.code == 0, ended.err
            assert ended.json["bytes"] == (tmp_path / "backup.db").stat().st_size

    asyncio.run(work())
    backup = tmp_path / "backup.db"
    assert backup.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.unfinished"))
    assert check_history(backup) == []
    for file in tmp_path.glob("runs.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copy(backup, store)

    async def go_on() -> None:
        async with hf.connect(str(store), agents=ALL) as app:
            for run in await app.runs(limit=200):
                with contextlib.suppress(hf.NeedsHuman):  # its effect was under way when the backup was made
                    await app.get(run.id).result(timeout=60)

    asyncio.run(go_on())


def test_effects_that_a_restored_store_does_not_know_are_done_again_under_the_same_key(
    tmp_path: Path, world: Path, commands: Commands
) -> None:
    store = tmp_path / "runs.db"

    async def keys(at: Path) -> dict[str, str | None]:
        opened = open_store(str(at), settings=hf.Settings())
        await opened.open(read_only=True)
        try:
            return {r.key: r.payload for r in await opened.records(RunId("one")) if r.kind == "intent"}
        finally:
            await opened.close()

    async def start() -> None:
        async with hf.connect(str(store), agents=ALL) as app:
            await app.start(collector(1), id="one")
            await until(app.get("one"), "waiting")

    async def finish() -> None:
        async with hf.connect(str(store), agents=ALL) as app:
            await app.get("one").send(number, 1)
            await app.get("one").result(timeout=60)

    asyncio.run(start())
    assert commands("backup", "backup.db", "--db", str(store)).code == 0
    asyncio.run(finish())
    first = asyncio.run(keys(store))
    for file in tmp_path.glob("runs.db-*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copy(tmp_path / "backup.db", store)
    asyncio.run(finish())
    assert lines(world) == ["collect 1", "collected [1]", "collected [1]"], "what the backup knew was not repeated"
    assert asyncio.run(keys(store)) == first, "the target can tell that it is the same"


def test_a_backup_never_replaces_a_file_and_leaves_nothing_half(tmp_path: Path, commands: Commands) -> None:
    commands("run", "kept.py:adder", "1", "--id", "one")
    (tmp_path / "there.db").write_text("mine")
    ended = commands("backup", "there.db")
    assert ended.code == 2
    assert (tmp_path / "there.db").read_text() == "mine"
    ended = commands("backup", "no/such/folder/x.db")
    assert ended.code == 1
    assert "Traceback" not in ended.err
    (tmp_path / "new.db.unfinished").write_text("what a killed backup left")
    assert commands("backup", "new.db").code == 0
    assert commands("verify", "--db", "new.db").code == 0
    assert commands("backup", "x.db", "--db", "missing.db").code == 3


def test_a_backup_has_no_free_space_in_it(tmp_path: Path, commands: Commands) -> None:
    commands("run", "kept.py:noisy", "1000000", "--id", "one")
    before = commands.store.stat().st_size
    ended = commands("prune", "--older-than", "0s", "--yes")
    assert "is free for new runs" in ended.out
    assert commands.store.stat().st_size >= before, "the file keeps its size"
    assert commands("backup", "small.db").code == 0
    assert (tmp_path / "small.db").stat().st_size < before / 5


def test_postgres_is_backed_up_by_its_own_programs(postgres_url: str, commands: Commands) -> None:
    ended = commands("backup", "x.db", "--db", postgres_url)
    assert ended.code == 2
    assert "pg_dump" in ended.err
    assert "pg_basebackup" in ended.err


def test_a_dump_of_postgres_is_put_back_whole(postgres_url: str, postgres_databases: Databases, tmp_path: Path) -> None:
    asyncio.run(_one_run(postgres_url))
    dump, other = tmp_path / "holdfast.dump", postgres_databases.fresh()
    try:
        take = [str(binaries() / "pg_dump"), "--format=custom", "--schema=holdfast", f"--file={dump}", postgres_url]
        subprocess.run(take, check=True)
        put_back = [
            str(binaries() / "pg_restore"),
            "--clean",
            "--if-exists",
            "--exit-on-error",
            f"--dbname={other}",
            str(dump),
        ]
        subprocess.run(put_back, check=True)
        assert check_history(other) == []

        async def read() -> None:
            async with hf.connect(other, agents=ALL) as app:
                assert await app.get("one").result() == 2
                assert await (await app.start(adder(2), id="two")).result() == 3

        asyncio.run(read())
    finally:
        postgres_databases.drop(other)


# migrate


def old_store(path: Path) -> None:
    """A store as the first migration made it, with a run in it."""
    asyncio.run(_one_run(str(path)))
    connection = apsw.Connection(str(path))
    connection.execute("DROP INDEX runs_ended; DROP INDEX runs_pruned; ALTER TABLE runs DROP COLUMN pruned_at")
    connection.execute("DROP INDEX runs_moved; ALTER TABLE runs DROP COLUMN moved; DROP INDEX questions_newest")
    connection.execute(
        "DROP TABLE tags; DROP TABLE chunks; DROP TABLE acts; DROP TABLE thread_heads; DROP TABLE thread_messages"
    )
    for table in ("runs", "records"):
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN turn TO generation")
    connection.execute("DELETE FROM migrations WHERE number > 1")
    connection.close()


async def _one_run(url: str) -> None:
    async with hf.connect(url, agents=ALL) as app:
        await (await app.start(adder(1), id="one")).result()


def test_migrate_tells_what_is_to_do_and_does_it(tmp_path: Path, commands: Commands) -> None:
    old_store(tmp_path / "old.db")
    db = ("--db", "old.db")
    ended = commands("migrate", "--check", *db)
    steps = migrate.migrations("sqlite")
    names = ", ".join(f"{step.number} {step.name}" for step in steps[1:])
    assert names.startswith("2 retention, 3 tags")
    assert (ended.code, ended.out) == (1, f"To do: {names}. `holdfast migrate` does it.\n")
    assert commands("runs", *db).code == 0, "it can be read as it is"
    assert commands("migrate", "--check", "--json", *db).json == {
        "applied": [1],
        "done": [],
        "pending": [{"number": step.number, "name": step.name} for step in steps[1:]],
        "is_up_to_date": False,
    }
    ended = commands("migrate", *db, HOLDFAST_FAULT="migrate.before_commit:kill@1")
    assert ended.code == -signal.SIGKILL
    assert commands("migrate", "--check", *db).code == 1
    ended = commands("migrate", *db)
    assert ended.out == f"Applied {len(steps) - 1} migrations: {names}.\n", ended.err
    assert commands("migrate", *db).out == f"Up to date: {len(steps)} migrations.\n"
    assert commands("migrate", "--check", "--json", *db).json["is_up_to_date"]
    assert commands("prune", "--older-than", "0s", "--yes", *db).code == 0
    schema = migrate.schema()
    assert "pruned_at" in schema
    assert commands("migrate", "--db", "missing.db").code == 3


def test_migrate_makes_the_tables_of_a_new_database(postgres_databases: Databases, commands: Commands) -> None:
    url = postgres_databases.fresh() + "?schema=new_one"
    steps = migrate.migrations("postgres")
    names = ", ".join(f"{step.number} {step.name}" for step in steps)
    try:
        ended = commands("migrate", "--check", "--db", url)
        assert (ended.code, ended.out) == (1, f"To do: {names}. `holdfast migrate` does it.\n")
        assert commands("migrate", "--db", url).out == f"Applied {len(steps)} migrations: {names}.\n"
        assert commands("migrate", "--check", "--db", url).out == f"Up to date: {len(steps)} migrations.\n"
    finally:
        postgres_databases.drop(url.partition("?")[0])


# doctor


def test_doctor_looks_at_a_server(postgres_url: str, commands: Commands) -> None:
    asyncio.run(_one_run(postgres_url))
    ended = commands("doctor", "--db", postgres_url)
    assert ended.code in (0, 1), ended.out + ended.err
    report = {line.split("\t")[1]: line.split("\t") for line in ended.out.splitlines()}
    assert {"postgres", "store", "schema", "durability", "settings", "role", "connections", "clock"} <= report.keys()
    assert report["contents"][2].startswith("1 run, ")
    assert report["integrity"][0] == "ok"
    password = postgres_url.partition("@")[0].rpartition(":")[2]
    told = ended.out + ended.err + commands("doctor", "--json", "--db", postgres_url).out
    assert password not in told
    assert "space" not in report
    assert commands("verify", "--db", postgres_url).code == 0, "how a server is set up is no damage"


def test_a_store_knows_how_it_is_not_backed_up(postgres_url: str, tmp_path: Path) -> None:
    async def ask() -> None:
        store: Any = open_store(postgres_url, settings=hf.Settings())
        with pytest.raises(UsageError, match="pg_dump"):
            await store.backup(os.fspath(tmp_path / "x"))

    asyncio.run(ask())
