"""What people come for, with the programs of README, docs and examples as they are, and a real `kill -9` in the middle.

Two more are in tests/test_docs.py: two workers on PostgreSQL (examples/two_workers.py kills one of them), and testing
an agent (docs/testing.md, which runs pytest and kills at every crash point).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

import holdfast as hf
from tests.eventually import eventually_now
from tests.test_docs import EXAMPLES, ROOT, SRC, blocks

T = TypeVar("T")


class Desk:
    """A folder in which somebody works: files out of the pages, processes that are killed, the store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
        self._environment = kept | {"PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def take(self, page: str, *names: str, version: int = 0) -> None:
        """Write files as a page has them; `version`: which, if a page has several of a name."""
        for name in names:
            found = [each.text for each in blocks(ROOT / page) if each.mark == "file" and each.what == name]
            (self.folder / name).write_text(found[version])

    def start(self, *arguments: str, fault: str = "") -> subprocess.Popen[str]:
        """A process of Python, which says what it says to a file of its own; `fault`: where it is killed."""
        log = self.folder / f"said-{len(self._started)}.txt"
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self._environment | ({"HOLDFAST_FAULT": fault} if fault else {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._started.append(process)
        return process

    def worker(self, *arguments: str) -> subprocess.Popen[str]:
        return self.start("-m", "holdfast", "worker", *arguments)

    def said(self, process: subprocess.Popen[str]) -> str:
        return (self.folder / f"said-{self._started.index(process)}.txt").read_text()

    def finish(self, *arguments: str) -> str:
        """Run it to its end; what it said."""
        process = self.start(*arguments)
        code = process.wait()
        assert code == 0, self.said(process)
        return self.said(process)

    def holdfast(self, *arguments: str) -> str:
        return self.finish("-m", "holdfast", *arguments)

    def ask(self, look: Callable[[hf.Holdfast], Awaitable[T]]) -> T:
        """Look at the store, as a client."""

        async def connected() -> T:
            async with hf.connect(str(self.folder / ".holdfast" / "holdfast.db")) as app:
                return await look(app)

        return asyncio.run(connected())

    def run_is(self, run_id: str, condition: Callable[[hf.RunInfo], bool]) -> None:
        """Wait until a run is so."""

        async def look(app: hf.Holdfast) -> bool:
            return condition(await app.get(run_id).info())

        eventually_now(lambda: self.ask(look))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Of a table next to the runs."""
        connection = apsw.Connection(str(self.folder / ".holdfast" / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return list(connection.execute(query))
        finally:
            connection.close()

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def is_done(info: hf.RunInfo) -> bool:
    return info.status is hf.Status.done


def is_waiting(info: hf.RunInfo) -> bool:
    return info.status is hf.Status.waiting


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it had ended by itself"


def test_research_that_is_killed_while_it_mails(desk: Desk) -> None:
    desk.take("README.md", "newsletter.py")
    first = desk.start("newsletter.py")
    eventually_now(lambda: (desk.folder / "outbox.jsonl").exists())
    kill(first)
    assert "researching part 3" in desk.said(first)
    assert desk.finish("newsletter.py") == "sent 41 characters\n"
    assert len((desk.folder / "outbox.jsonl").read_text().splitlines()) == 1


def test_a_chat_whose_worker_is_killed_after_each_message(desk: Desk) -> None:
    desk.take("docs/chat.md", "chat.py")
    begun = desk.start("-m", "holdfast", "run", "chat.py", "ada", "--id", "chat-ada")
    assert begun.wait() == 7, desk.said(begun)
    for number, text in enumerate(("Hello", "My boat is called Tern.", "What is it called?"), 1):
        worker = desk.worker("chat.py")
        eventually_now(lambda worker=worker: "executes chat" in desk.said(worker))  # type: ignore[misc]
        desk.holdfast("send", "chat-ada", "said", json.dumps(text))
        kill(worker)  # before, while or after it answers
        worker = desk.worker("chat.py")
        desk.run_is("chat-ada", lambda info, number=number: is_waiting(info) and info.effects == number)  # type: ignore[misc]
        kill(worker)
    desk.worker("chat.py")
    desk.holdfast("send", "chat-ada", "said", '"bye"')
    desk.run_is("chat-ada", is_done)
    assert [row[0] for row in desk.rows("SELECT number FROM messages ORDER BY number")] == [1, 2, 3]
    assert len((desk.folder / "thoughts.txt").read_text().splitlines()) >= 3
    assert "My boat" in desk.rows("SELECT text FROM messages WHERE number = 2")[0][0]


def test_a_refund_that_somebody_approves_while_no_worker_lives(desk: Desk) -> None:
    desk.take("docs/fastapi.md", "refunds.py")
    first = desk.start("-m", "holdfast", "run", "refunds.py", "ada", "40", "--id", "case-3")
    assert first.wait() == 7, desk.said(first)
    worker = desk.worker("refunds.py")
    eventually_now(lambda: "executes refund" in desk.said(worker))
    kill(worker)
    desk.holdfast("answer", "case-3", "--yes", "--by", "eva")
    desk.worker("refunds.py")
    desk.run_is("case-3", is_done)
    assert desk.rows("SELECT * FROM payments") == [("ada", 40)]


def test_a_nightly_job_whose_backfill_is_killed(desk: Desk) -> None:
    (nightly,) = [path for path in EXAMPLES if path.name == "nightly.py"]
    first = desk.start(str(nightly), fault="land.before_commit:kill@9")
    assert first.wait() == -signal.SIGKILL, desk.said(first)
    assert desk.said(first) == "30 nights to make up for\n"
    assert desk.rows("SELECT count(*) FROM visitors") == [(8,)]
    assert desk.finish(str(nightly)).splitlines()[-1] == "30 nights, the first is 2026-01-01: 101"
    days = [row[0] for row in desk.rows("SELECT day FROM visitors ORDER BY day")]
    assert days == [f"2026-01-{day:02}" for day in range(1, 31)]


def test_a_migration_that_is_killed_three_times(desk: Desk) -> None:
    (migration,) = [path for path in EXAMPLES if path.name == "migration.py"]
    # The first transaction of all makes the tables, each other one moves 250 rows.
    kills = {"before_commit:kill@6": 1_000, "after_commit:kill@4": 2_000, "before_commit:kill@9": 4_000}
    for fault, moved in kills.items():
        process = desk.start(str(migration), fault=f"land.{fault}")
        assert process.wait() == -signal.SIGKILL, desk.said(process)
        assert desk.rows("SELECT count(*) FROM people") == [(moved,)]
    assert desk.finish(str(migration)) == "10000 rows moved\n"
    assert desk.rows("SELECT count(*), count(DISTINCT customer), max(first) FROM people") == [
        (10_000, 10_000, "First9999")
    ]


def test_a_web_app_that_is_killed_twice(desk: Desk) -> None:
    desk.take("docs/fastapi.md", "refunds.py", "web.py")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def is_up() -> bool:
        try:
            call("GET", "/openapi.json")
        except urllib.error.URLError:
            return False
        return True

    def serve() -> subprocess.Popen[str]:
        server = desk.start("-m", "uvicorn", "web:api", "--port", str(port))
        eventually_now(is_up)
        return server

    server = serve()
    assert call("PUT", "/refunds/7", {"customer": "ada", "amount": 40}) == {"run": "refund-7"}
    kill(server)
    server = serve()
    (question,) = eventually_now(lambda: call("GET", "/refunds/7")["questions"])
    decision = {"question": question["id"], "ok": True, "by": "eva"}
    assert call("POST", "/refunds/7/decision", decision) == {"decided": True}
    kill(server)
    serve()
    found = eventually_now(lambda: (now := call("GET", "/refunds/7"))["status"] == "done" and now)
    assert found == {"status": "done", "questions": [], "result": "40 paid to ada"}
    assert desk.rows("SELECT * FROM payments") == [("ada", 40)]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL], ids=["told to stop", "killed"])
def test_a_deploy_while_a_run_waits(desk: Desk, by: signal.Signals) -> None:
    desk.take("docs/code-changes.md", "onboarding.py", version=0)
    first = desk.start("-m", "holdfast", "run", "onboarding.py", "ada", "--id", "ada")
    assert first.wait() == 7, desk.said(first)
    old = desk.worker("onboarding.py")
    eventually_now(lambda: "executes onboarding" in desk.said(old))
    desk.take("docs/code-changes.md", "onboarding.py", version=1)
    new = desk.worker("onboarding.py")
    eventually_now(lambda: "executes onboarding" in desk.said(new))
    old.send_signal(by)
    assert old.wait() == (0 if by is signal.SIGTERM else -by), desk.said(old)
    desk.holdfast("answer", "ada", "--yes", "--by", "eva")
    desk.run_is("ada", is_done)

    async def result(app: hf.Holdfast) -> object:
        return await app.get("ada").result()

    assert desk.ask(result) == "Welcome ada. A desk by the window. Here is a key. A laptop is ordered."
