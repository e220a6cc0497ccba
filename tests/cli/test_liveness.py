"""Signs of life: a file, systemd's watchdog, a parent that makes one of its children's. Real workers, real SIGSTOP."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.base.clock import boot_id, monotonic_us
from holdfast.cli.heartbeat import Beat
from holdfast.testing.postgres import PostgresServer
from tests.cli.commands import Commands
from tests.cli.test_worker import Worker, working
from tests.eventually import eventually_now
from tests.stopped import is_stopped

_STALE = "5s"  #: more than two renewals


def health(hf: Commands, file: str = "beat", max_age: str = "60s", **environment: str) -> tuple[int, str]:
    ended = hf("health", file, "--max-age", max_age, **environment)
    assert ended.err == ""
    return ended.code, ended.out


def is_healthy(hf: Commands, max_age: str = "60s") -> bool:
    return health(hf, max_age=max_age)[0] == 0


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually_now(lambda: is_stopped(pid))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Manager:
    """What a manager of services hears."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.heard: list[str] = []

    def listen(self) -> list[str]:
        """What has come since the last time."""
        new: list[str] = []
        while True:
            try:
                new.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                break
        self.heard += new
        return new

    def hears(self) -> list[str]:
        return eventually_now(self.listen)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, hf: Commands) -> Iterator[Manager]:
    address = str(hf.folder / "notify") if request.param == "path" else f"@holdfast-{os.getpid()}-{monotonic_us()}"
    hf.environment["NOTIFY_SOCKET"] = address
    made = Manager(address)
    yield made
    made.close()


def test_a_worker_that_is_stopped_gives_no_sign_until_it_goes_on(hf: Commands) -> None:
    with working(hf, "agents.py", "--heartbeat", "beat") as worker:
        worker.told(" executes ")
        eventually_now(lambda: is_healthy(hf))
        with stopped(worker.process.pid):
            eventually_now(lambda: not is_healthy(hf, _STALE))
            code, said = health(hf, max_age=_STALE)
            assert code == 1
            assert said.startswith(f"no sign of life of pid {worker.process.pid} for ")
        eventually_now(lambda: is_healthy(hf, _STALE))
        assert health(hf)[1].startswith(f"alive: pid {worker.process.pid}, a sign of life ")
        assert worker.stop() == 0
    assert health(hf) == (1, "there is no beat: no worker writes it, or it has ended\n")


def test_what_a_killed_worker_left_grows_old(hf: Commands) -> None:
    with working(hf, "agents.py", "--heartbeat", "beat") as worker:
        worker.told(" executes ")
        eventually_now(lambda: is_healthy(hf))
        worker.process.kill()
        worker.wait()
        eventually_now(lambda: not is_healthy(hf, "1s"))
        with working(hf, "agents.py", "--heartbeat", "beat") as again:
            again.told(" executes ")
            eventually_now(lambda: f"pid {again.process.pid}," in health(hf)[1])


def test_systemd_hears_that_it_is_ready_and_then_that_it_lives(hf: Commands, manager: Manager) -> None:
    hf.environment |= {"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}
    (hf.folder / "looking.py").write_text(
        "import os, holdfast as hf\n@hf.agent\nasync def look() -> list[str]:\n"
        "    return [name for name in os.environ if 'NOTIFY' in name or 'WATCHDOG' in name]\n"
        "async def setup(app):\n    await app.start(look(), id='look', delay=0)\n"
    )
    with working(hf, "looking.py", "--heartbeat", "beat") as worker:
        assert manager.hears()[0] == "READY=1\nWATCHDOG=1"
        assert manager.hears()[0] == "WATCHDOG=1"
        with stopped(worker.process.pid):
            manager.listen()
            eventually_now(lambda: not is_healthy(hf, _STALE))
            assert manager.listen() == []
        assert manager.hears()[0] == "WATCHDOG=1"
        assert worker.stop() == 0
    assert manager.heard.count("READY=1\nWATCHDOG=1") == 1
    assert hf("show", "look", "--json").json["result"] == [], "what an agent starts is not the service"


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_a_parent_is_as_alive_as_its_most_silent_child(hf: Commands, manager: Manager) -> None:
    with working(hf, "agents.py", "--processes", "2", "--json", "--heartbeat", "beat") as worker:
        pids = [each["pid"] for each in worker.events("worker.started", 2)]
        assert manager.hears()[0] == "READY=1\nWATCHDOG=1"
        eventually_now(lambda: f"pid {worker.process.pid}," in health(hf)[1])
        with stopped(pids[1]):
            eventually_now(lambda: not is_healthy(hf, _STALE))
            manager.listen()
            eventually_now(lambda: not is_healthy(hf, "8s"))
            assert manager.listen() == []
        eventually_now(lambda: is_healthy(hf, _STALE))
        os.kill(pids[0], signal.SIGSTOP)
        eventually_now(lambda: not is_healthy(hf, _STALE))
        os.kill(pids[0], signal.SIGKILL)  # one that is dead is replaced, and says nothing about the others
        worker.events("worker.started", 3)
        eventually_now(lambda: is_healthy(hf, _STALE))
        assert worker.stop() == 0
    assert not (hf.folder / "beat").exists()
    assert manager.heard.count("READY=1\nWATCHDOG=1") == 1


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_a_server_that_is_away_is_no_reason_to_replace_the_worker(hf: Commands, manager: Manager) -> None:
    def sign_us() -> int:
        return Beat.read(hf.folder / "beat").sign_us

    def signs_go_on(worker: Worker) -> bool:
        now = monotonic_us()
        eventually_now(lambda: sign_us() > now)
        return worker.process.poll() is None

    with PostgresServer(hf.folder / "server", fsync=False) as server:
        hf.environment["HOLDFAST_URL"] = server.url(server.create_database("away"))
        server.stop()
        with working(hf, "agents.py", "--heartbeat", "beat") as worker:
            worker.told("waiting for the store")
            assert manager.hears()[0] == "READY=1\nWATCHDOG=1"
            assert signs_go_on(worker)
            server.start()
            worker.told(" executes ")
            assert signs_go_on(worker)
            server.stop()
            worker.told("lease.not_renewed")
            assert signs_go_on(worker)
            server.start()
            assert signs_go_on(worker)
            assert worker.stop() == 0


# the file


def write(hf: Commands, **changed: Any) -> None:
    beat = {"pid": 7, "boot_id": boot_id(), "sign_us": monotonic_us()}
    (hf.folder / "beat").write_text(json.dumps(beat | changed))


def test_a_wall_clock_that_jumps_makes_nobody_look_dead(hf: Commands) -> None:
    write(hf)
    for shift_s in ("-100000", "100000"):
        assert health(hf, HOLDFAST_TEST_CLOCK_SHIFT_S=shift_s)[0] == 0
    os.utime(hf.folder / "beat", (0, 0))
    assert health(hf)[0] == 0


def test_a_file_of_an_earlier_boot_says_nothing(hf: Commands) -> None:
    write(hf, boot_id="another")
    assert health(hf) == (1, "the last sign of life of pid 7 is from before the machine was started\n")


@pytest.mark.parametrize("text", ["", "hello", "[1]", '{"pid": 1}', '{"pid": "x", "boot_id": "b", "sign_us": 1}'])
def test_a_file_that_no_worker_wrote_is_no_sign_of_life(hf: Commands, text: str) -> None:
    (hf.folder / "beat").write_text(text)
    code, said = health(hf)
    assert code == 1
    assert said.startswith("beat cannot be read: ")


def test_health_in_json(hf: Commands) -> None:
    write(hf)
    found = hf("health", "beat", "--json").json
    assert (found["is_alive"], found["pid"], found["problem"]) == (True, 7, None)
    write(hf, sign_us=0)
    ended = hf("health", "beat", "--json", "--max-age", "1ms")
    assert (ended.code, ended.json["is_alive"]) == (1, False)
    assert "no sign of life of pid 7" in ended.json["problem"]


def test_a_heartbeat_is_written_to_a_file_of_its_own_only(hf: Commands) -> None:
    (hf.folder / "precious").write_text("precious")
    (hf.folder / "link").symlink_to("precious")
    os.mkfifo(hf.folder / "pipe")
    for name in ("link", "nowhere/beat", "pipe", "."):
        ended = hf("worker", "agents.py", "--heartbeat", name)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith(f"error: --heartbeat {name} cannot be written: ")
    assert (hf.folder / "precious").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_heartbeat_is_not_written_to_the_file_of_another_user(hf: Commands) -> None:
    write(hf)
    os.chown(hf.folder / "beat", 65534, 65534)
    ended = hf("worker", "agents.py", "--heartbeat", "beat")
    assert ended.code == 2
    assert "somebody else's" in ended.err


def test_a_heartbeat_that_cannot_be_written_any_more_is_told_once_and_costs_nothing(hf: Commands) -> None:
    (hf.folder / "place").mkdir()
    with working(hf, "agents.py", "--heartbeat", "place/beat", "--json") as worker:
        worker.events("worker.started")
        (hf.folder / "place").rename(hf.folder / "elsewhere")
        (failed,) = worker.events("heartbeat.failed")
        assert failed["file"] == str(hf.folder / "place" / "beat")
        (hf.folder / "elsewhere").rename(hf.folder / "place")
        eventually_now(lambda: health(hf, "place/beat", _STALE)[0] == 0)
        assert worker.stop() == 0
        assert len(worker.events("heartbeat.failed")) == 1
