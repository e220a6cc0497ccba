"""What is not for everybody's eyes, and what must not go unnoticed: passwords, and switches that are for tests."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.base.config import Settings, checked_url, has_password
from holdfast.errors import UsageError
from holdfast.store import open_store
from tests.cli.commands import Commands
from tests.cli.test_worker import Worker

SECRET = "hunter"
HERE = "127.0.0.1:1/agents"  #: nobody listens there
#: Passwords as people write them, most of them wrongly.
URLS = {
    "plain": f"postgresql://me:{SECRET}@{HERE}",
    "question mark": f"postgresql://me:{SECRET}?{SECRET}@{HERE}",
    "question mark behind digits": f"postgresql://me:12?{SECRET}@{HERE}",
    "question mark in the user": f"postgresql://m?e:{SECRET}@{HERE}",
    "hash": f"postgresql://me:{SECRET}#{SECRET}@{HERE}",
    "slash": f"postgresql://me:{SECRET}/{SECRET}@{HERE}",
    "slash behind digits": f"postgresql://me:12/{SECRET}@{HERE}",
    "at": f"postgresql://me:{SECRET}@{SECRET}@{HERE}",
    "bracket": f"postgresql://me:[{SECRET}@{HERE}",
    "percent": f"postgresql://me:{SECRET}%zz@{HERE}",
    "colon": f"postgresql://me:{SECRET}:{SECRET}@{HERE}",
    "escaped": f"postgresql://me:{SECRET}%3F%23@{HERE}",
    "control": f"postgresql://me:{SECRET}\x1b\u200b@{HERE}",
    "option": f"postgresql://me@{HERE}?password={SECRET}",
    "option with and": f"postgresql://me@{HERE}?password=x&{SECRET}",
    "option with hash": f"postgresql://me@{HERE}?password=x#{SECRET}",
    "option with at": f"postgresql://me@{HERE}?password=x@{SECRET}",
    "option in disguise": f"postgresql://me@{HERE}?pass%77ord={SECRET}",
    "password of a key": f"postgresql://me@{HERE}?sslpassword={SECRET}&sslmode=prefer",
    "no slashes": f"postgresql:me:{SECRET}@{HERE}",
    "capitals": f"PostgreSQL://me:{SECRET}@{HERE}",
    "another driver": f"postgresql+asyncpg://me:{SECRET}@{HERE}",
}
COMMANDS = (["runs"], ["doctor"], ["doctor", "--json"], ["show", "x", "--json"], ["migrate"], ["run", "agents.py:echo"])


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_a_password_is_not_shown_however_it_is_written(hf: Commands, url: str) -> None:
    for command in COMMANDS:
        for ended in (hf(*command, HOLDFAST_URL=url), hf(*command, "--db", url)):
            assert ended.code in (1, 2, 3), ended
            assert SECRET not in ended.out + ended.err
            assert "Traceback" not in ended.err
    for arguments in ([url, "other.db"], [str(hf.folder / "none.db"), url]):
        ended = hf("copy", *arguments)
        assert ended.code in (1, 2, 3)
        assert SECRET not in ended.out + ended.err
    assert not [path for path in hf.folder.rglob("*") if SECRET in path.name]


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_nor_by_the_store_itself(url: str) -> None:
    try:
        shown = open_store(url, settings=Settings()).url
    except UsageError as error:
        shown = str(error)
    assert SECRET not in shown


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_neither_does_the_library_show_it(url: str) -> None:
    assert SECRET not in told_by_connect(url)


def told_by_connect(url: str) -> str:
    try:
        return repr(holdfast.connect(url))
    except holdfast.errors.UsageError as error:
        return f"{error} {error.__cause__!r}"


def test_what_can_be_read_is_left_as_it_is() -> None:
    for url in (
        "runs.db",
        "sqlite:///a?b#c@d.db",
        "postgresql://me:a%3Fb@h1:1,h2:2/db?target_session_attrs=read-write&schema=x",
        "postgresql:///db?host=/run/postgresql&user=me@here",
        "postgresql://me@h/db?password=a@b",
        "postgresql://h",
    ):
        assert checked_url(url) == url
    assert not has_password("postgresql://me@h/db?schema=x")
    assert not has_password("a:b@c.db")
    assert not has_password("postgresql://h:5432/db")


def test_a_password_on_the_command_line_is_warned_of(hf: Commands) -> None:
    def warns(*arguments: str, **environment: str) -> bool:
        return "can be read by all users of this machine" in hf(*arguments, **environment).err

    url = URLS["plain"]
    assert warns("runs", "--db", url)
    assert warns("--db", url, "runs", "--json")
    assert warns("copy", url, "other.db")
    assert warns("copy", "other.db", f"postgresql://me@{HERE}?password=x")
    assert not warns("runs", HOLDFAST_URL=url)
    assert not warns("runs", "--db", f"postgresql://me@{HERE}")
    assert not warns("runs", "--db", "a:b@c.db")


@contextmanager
def working(hf: Commands, *arguments: str, **environment: str) -> Iterator[Worker]:
    hf.environment |= environment
    worker = Worker(hf, *arguments)
    try:
        yield worker
    finally:
        worker.close()


def test_children_of_a_worker_have_the_url_where_others_cannot_read_it(hf: Commands) -> None:
    url = URLS["plain"]
    with working(hf, "agents.py", "--processes", "2", "--json", "--db", url) as worker:
        worker.events("store.away", 2)  # they are at work, and use it
        for event in worker.events("child.started", 2):
            process = Path("/proc") / str(event["pid"])
            assert SECRET.encode() not in (process / "cmdline").read_bytes()
            assert f"HOLDFAST_URL={url}".encode() in (process / "environ").read_bytes().split(b"\0")
        assert worker.stop(signal.SIGTERM) == 0
        assert SECRET not in "".join(worker.out + worker.err)


SWITCHES = {
    "HOLDFAST_FAULT": "prune.before_commit:kill@99",
    "HOLDFAST_FAULT_TRACE": "/dev/null",
    "HOLDFAST_TEST_CLOCK_SHIFT_S": "5",
}


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_for_tests_are_told_by_doctor_and_worker(hf: Commands, name: str) -> None:
    hf("run", "agents.py:echo")
    assert "\tenvironment\t" not in hf("doctor").out
    ended = hf("doctor", **{name: SWITCHES[name]})
    assert f"warning\tenvironment\t{name}={SWITCHES[name]}" in ended.out
    assert ended.code == 0
    with working(hf, "agents.py", **{name: SWITCHES[name]}) as worker:
        assert f"{name}={SWITCHES[name]} in the environment: for tests only" in worker.told("warning:")[0]
        worker.told("executes")


def test_children_leave_it_to_their_parent_to_tell(hf: Commands) -> None:
    with working(hf, "agents.py", "--processes", "1", "--json", HOLDFAST_FAULT="prune.before_commit:kill") as worker:
        worker.events("worker.started")
        told = [json.loads(line) for line in worker.out if "environment.for_tests" in line]
        assert [each["switches"] for each in told] == [["HOLDFAST_FAULT=prune.before_commit:kill"]]
