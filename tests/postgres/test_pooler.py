"""Through PgBouncer in transaction mode, where no session belongs to anybody for longer than a transaction."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.testing.postgres import PostgresServer, as_somebody, free_port, run_client
from tests.postgres.soak import Plan, seed, soak

pytestmark = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed")

_CONFIG = """
[databases]
* = host={host} port={port} user=postgres password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
ignore_startup_parameters = extra_float_digits,jit,search_path
"""


@contextmanager
def pooled(server: PostgresServer, folder: Path) -> Iterator[str]:
    """The address of a pooler in front of a server."""
    own = free_port()
    config = folder / "pgbouncer.ini"
    password = urlsplit(server.url()).password
    config.write_text(_CONFIG.format(host=server.host, port=server.port, password=password, own=own))
    config.chmod(0o644)
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([*as_somebody(), "pgbouncer", str(config)], stdout=log, stderr=log)
    try:
        give_up = time.monotonic() + 60
        while True:
            try:
                run_client("psql", "-d", f"postgresql://postgres@127.0.0.1:{own}/postgres", "-c", "SHOW fsync")
                break
            except Exception:
                assert time.monotonic() < give_up, (folder / "pgbouncer.log").read_text()
                time.sleep(0.05)
        yield f"postgresql://postgres@127.0.0.1:{own}"
    finally:
        process.kill()
        process.wait()


def test_workers_behind_a_transaction_pooler_lose_nothing(tmp_path: Path) -> None:
    plan = Plan(seed(), seconds=6, runs=40, workers=3, calm_s=45)
    with PostgresServer(tmp_path / "server") as server, pooled(server, tmp_path) as address:
        url = f"{address}/{server.create_database('soak')}?pooler=transaction"
        found = soak(plan, tmp_path / "trial", url)
    found.assert_well()
    assert found.kills >= 2
