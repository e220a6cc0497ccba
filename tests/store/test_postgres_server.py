"""The PostgreSQL servers that tests run on: they start, die, come back and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.errors import HoldfastError
from holdfast.testing.postgres import VARIABLE, Databases, PostgresServer, as_somebody, free_port
from holdfast.testing.processes import environment
from holdfast.testing.watchdog import note_of
from tests.eventually import eventually, eventually_now


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def memory() -> set[str]:
    """Pieces of shared memory, by id."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def test_a_server_has_fsync_on(server: PostgresServer) -> None:
    assert server.ask("SHOW fsync") == server.ask("SHOW synchronous_commit") == "on"


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_what_was_committed_is_there_after_a_stop(server: PostgresServer, mode: Any) -> None:
    url = server.url(server.create_database(f"kept-{mode}"))

    async def write() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("create table kept(n int); insert into kept values (7)")
        connection.terminate()

    asyncio.run(write())
    before = server.pid
    if mode == "kill":
        server.kill()
        server.start()
    else:
        server.restart(mode)
    assert server.pid not in (before, None)
    assert server.ask("TABLE kept", f"kept-{mode}") == "7"


def test_a_server_is_reached_by_tcp_with_its_password_only_and_by_its_socket(server: PostgresServer) -> None:
    async def ask(url: str, **more: Any) -> object:
        connection = await asyncpg.connect(url, **more)
        try:
            return await connection.fetchval("select 1")
        finally:
            await connection.close()

    assert asyncio.run(ask(server.url())) == asyncio.run(ask(server.socket_url())) == 1
    with pytest.raises(asyncpg.InvalidPasswordError):
        asyncio.run(ask(server.url(), password="wrong"))


def test_a_database_is_made_from_a_template(server: PostgresServer) -> None:
    server.create_database("mould")
    server.ask("create table given(n int)", "mould")
    assert server.url(server.create_database("copy", template="mould")).endswith("/copy")
    assert server.ask("TABLE given", "copy") == ""
    server.drop_database("copy")
    with pytest.raises(HoldfastError, match="copy"):
        server.ask("TABLE given", "copy")


def test_a_standby_has_what_was_acknowledged_and_takes_over(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "primary") as primary, primary.standby(tmp_path / "standby") as standby:
        primary.ask("create table t(n int)")
        standby.stop("immediate")

        async def insert() -> None:
            connection = await asyncpg.connect(primary.url())
            try:
                waiting = asyncio.ensure_future(connection.execute("insert into t values (1)"))
                waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                await eventually(lambda: primary.ask(waits) == "1")
                assert not waiting.done(), "acknowledged, and the standby was away"
                await asyncio.to_thread(standby.start)
                await asyncio.wait_for(waiting, 60)
            finally:
                connection.terminate()

        asyncio.run(insert())
        primary.kill()
        assert standby.ask("TABLE t") == "1"
        with pytest.raises(HoldfastError, match="read-only"):
            standby.ask("insert into t values (2)")
        standby.promote()
        standby.ask("insert into t values (2)")
        assert standby.ask("TABLE t") == "1\n2"


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "server", settings={"max_connections": "'many'"})
    with pytest.raises(HoldfastError, match='invalid value for parameter "max_connections"'):
        server.start()
    server.close()


def test_a_closed_server_leaves_no_process_and_no_shared_memory(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "server")
    server.start()
    mine = note_of(server.data)[6].split()[1]
    assert mine in memory()
    server.kill()
    server.close()
    eventually_now(lambda: mine not in memory())


STARTS = """
import sys, time
from holdfast.testing.postgres import Databases
databases = Databases()
print(databases._server.folder if databases.fresh() and databases._server else "", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_when_its_process_dies_hard(number: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    with process.stdout:
        folder = Path(process.stdout.readline().strip())
    note = note_of(folder / "data")
    pid, piece = int(note[0]), note[6].split()[1]
    assert is_alive(pid)
    process.send_signal(number)
    process.wait()
    eventually_now(lambda: not is_alive(pid) and piece not in memory() and not folder.exists())


def test_a_database_on_a_given_server_is_removed_in_the_end(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, server.url())
    prepared: list[str] = []
    with Databases(prepared.append) as databases:
        first, second = databases.fresh(), databases.fresh()
        assert len({first, second, *prepared}) == 3
        assert f":{server.port}/" in first
        assert server.ask("select count(*) from pg_database where datname like 'holdfast_test_%'") == "3"
        databases.drop(first)
    assert server.ask("select count(*) from pg_database where datname like 'holdfast_test_%'") == "0"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_who_is_not_root_starts_a_server_too() -> None:
    code = STARTS.replace("time.sleep(60)", "databases.close()")
    command = [*as_somebody(), sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_free_port_is_not_one_of_those_that_clients_get() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert free_port() < low
