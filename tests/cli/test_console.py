"""`holdfast console`: which store, under which address, and what it leaves behind."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from pathlib import Path

from tests.cli.commands import Commands


def test_it_shows_a_store_and_leaves_nothing_beside_one_that_it_only_reads(hf: Commands) -> None:
    assert hf("run", "agents.py:research", "tides", "--id", "one").code == 0
    store = hf.folder / ".holdfast" / "holdfast.db"
    before = _files(store)
    process = hf.start("console", str(store), "--read-only", "--port", "0", "--json")
    try:
        assert process.stdout is not None
        address, _, token = json.loads(process.stdout.readline())["url"].partition("/#t=")
        port = int(address.rpartition(":")[2])
        assert _asked(port, "/", "")[0] == 200
        assert b'content="read-only"' in _asked(port, "/", "")[1]
        assert _asked(port, "/api/v1/runs", token)[0] == 200
        assert _asked(port, "/api/v1/runs", "")[0] == 401
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert {name for name in _files(store) if "token" in name} == {name for name in before if "token" in name}


def test_a_taken_port_is_no_reason_not_to_show_it_unless_it_was_asked_for(hf: Commands) -> None:
    assert hf("run", "agents.py:research", "tides", "--id", "one").code == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = hf("console", "--port", str(taken.getsockname()[1]))
        assert (refused.code, "is in use" in refused.err) == (2, True)


def test_it_makes_no_store_and_takes_one_name(hf: Commands) -> None:
    assert hf("console", "nowhere.db").code == 3
    assert not (hf.folder / "nowhere.db").exists()
    assert hf("console", "a.db", "--db", "b.db").code == 2


def _files(store: Path) -> set[str]:
    return {path.name for path in store.parent.iterdir()}


def _asked(port: int, path: str, token: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
