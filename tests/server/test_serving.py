"""`holdfast serve`, as a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.server import serving as serving_module
from holdfast.server.security.tokens import token_in, token_path
from holdfast.server.serving import Address, Serving, sockets_at
from tests.cli.commands import Commands
from tests.eventually import eventually_now
from tests.forkserver import ForkServer
from tests.server.scene import Scene, played
from tests.test_security import certified, needs_openssl

URL = re.compile(r"http://127\.0\.0\.1:(\d+)/#t=([\w-]{43})\n")


@pytest.fixture
def hf(tmp_path: Path, forkserver: ForkServer) -> Commands:
    return Commands(tmp_path, forkserver)


class Server:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[str], port: int, token: str) -> None:
        self.process, self.port, self.token = process, port, token

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"} | headers
        try:
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), given)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()


@contextmanager
def serving(hf: Commands, *arguments: str, **environment: str) -> Iterator[Server]:
    process = hf.start("serve", "--port", "0", *arguments, **environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = URL.fullmatch(line)
        assert found, line + process.communicate(timeout=60)[1]
        yield Server(process, int(found[1]), found[2])
    finally:
        process.kill()
        process.communicate()


def test_it_makes_a_token_once_prints_it_and_ends_with_ctrl_c(hf: Commands) -> None:
    with serving(hf) as first:
        file = hf.folder / ".holdfast" / "holdfast.db.token"
        assert file.read_text().strip() == first.token
        assert first.ask("GET", "/runs") == (200, {"items": [], "next": None})
        with socket.create_connection(("127.0.0.1", first.port)) as listener:  # somebody listens when it ends
            listener.sendall(
                f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost:{first.port}\r\n"
                f"Authorization: Bearer {first.token}\r\n\r\n".encode()
            )
            assert b"200 OK" in listener.recv(1000)
            first.process.send_signal(signal.SIGINT)
            assert first.process.wait(60) == 0
        assert first.process.stdout is not None
        assert first.process.stdout.read() == "", "the token is printed once"
    with serving(hf) as second:
        assert second.token == first.token
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(60) == 0
        assert second.process.stderr is not None
        assert second.process.stderr.read() == "Serving until Ctrl-C.\n"


def test_what_it_makes_is_its_owners_alone_whatever_the_umask(hf: Commands) -> None:
    before = os.umask(0)
    try:
        process = hf.start("serve", "--uds", "hf.sock")
    finally:
        os.umask(before)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "unix:hf.sock\n"
        folder = hf.folder / ".holdfast"
        token = folder / "holdfast.db.token"
        eventually_now(lambda: (folder / "holdfast.db-wal").exists())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        made = [*folder.iterdir(), hf.folder / "hf.sock"]
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) & 0o077 for each in made}
        assert set(modes.values()) == {0}, modes

        def asked() -> bytes:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(hf.folder / "hf.sock"))
                credential = f"Authorization: Bearer {token.read_text().strip()}"
                client.sendall(f"GET /api/v1/store HTTP/1.0\r\nHost: localhost\r\n{credential}\r\n\r\n".encode())
                return b"".join(iter(lambda: client.recv(65536), b""))

        assert b'"kind":"sqlite"' in asked()
        refused = hf("serve", "--uds", "hf.sock")
        assert (refused.code, "already" in refused.err) == (2, True)
    finally:
        process.kill()
        process.communicate()


REFUSED = [
    (["--bind", "0.0.0.0"], "--users or --token-file"),
    (["--bind", "0.0.0.0", "--token-file", "t"], "in clear"),
    (["--bind", "0.0.0.0", "--token-file", "t", "--behind-proxy"], "--host"),
    (["--bind", "::", "--auth-header", "X-User"], "go together"),
    (["--auth-header", "X-User"], "--trusted-proxy go together"),
    (["--trusted-proxy", "10.0.0.0/8"], "go together"),
    (["--auth-header", "X-User", "--trusted-proxy", "ten"], "network"),
    (["--bind", "somewhere"], "takes an address"),
    (["--uds", "x", "--bind", "127.0.0.1"], "--uds"),
    (["--tls-cert", "agents.py"], "go together"),
    (["--host", "two words"], "no name of a host"),
    (["--users", "none.toml"], "--users none.toml --add-user NAME:ROLE"),
    (["--add-user", "ana:king", "--users", "u.toml"], "NAME:ROLE"),
    (["--worker"], "FILE and --worker"),
    (["agents.py"], "FILE and --worker"),
    (["agents.py", "--worker", "--read-only"], "exclude each other"),
]


def test_what_would_let_others_in_or_cannot_work_ends_with_2_and_the_reason(hf: Commands) -> None:
    ended = hf.batch([["serve", *arguments] for arguments, _ in REFUSED], is_terminal=False)
    for (arguments, reason), (code, shown) in zip(REFUSED, ended, strict=True):
        assert code == 2, (arguments, shown)
        assert reason in shown, arguments
    assert not (hf.folder / ".holdfast" / "holdfast.db").exists()


def test_a_port_that_is_taken_is_no_place(hf: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = hf("serve", "--port", str(taken.getsockname()[1]))
        assert (ended.code, "in use" in ended.err) == (2, True)


def test_by_default_it_listens_on_this_host_alone() -> None:
    sockets = sockets_at(Address(port=0))
    try:
        assert {each.getsockname()[0] for each in sockets} <= {"127.0.0.1", "::1"}
        assert len({each.getsockname()[1] for each in sockets}) == 1
    finally:
        for each in sockets:
            each.close()


def test_no_part_of_an_answer_waits_for_the_one_before_to_be_acknowledged() -> None:
    async def accepted() -> int:
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found: socket.socket = writer.get_extra_info("socket")
            told.set_result(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        bound, *others = sockets_at(Address(port=0))
        for each in others:
            each.close()
        async with await asyncio.start_server(meet, sock=bound):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            async with asyncio.timeout(60):
                found = await told
            writer.close()
            return found

    assert asyncio.run(accepted()) == 1


def test_a_token_that_others_could_read_or_choose_is_refused(tmp_path: Path) -> None:
    path = token_path(str(tmp_path / "x.db"))
    token = token_in(path)
    assert token_in(path) == token
    assert len(token) == 43
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(Exception, match="by others"):
            token_in(path)
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(Exception, match="at least 32"):
        token_in(path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="cannot be read"):
        token_in(path)
    assert not (tmp_path / "elsewhere").exists()


@needs_openssl
def test_it_speaks_https_to_who_trusts_its_certificate(hf: Commands) -> None:
    certificate, key = (str(each) for each in certified(hf.folder, "own", "localhost"))
    _, other = (str(each) for each in certified(hf.folder, "other", "localhost"))
    for pair, says in (((certificate, other), "another certificate"), ((key, key), "no PEM file of its kind")):
        refused = hf("serve", "--port", "0", "--tls-cert", pair[0], "--tls-key", pair[1])
        assert (refused.code, refused.out, says in refused.err) == (2, "", True), refused
    assert hf("run", "agents.py:echo", "--id", "e1").code == 0
    process = hf.start("serve", "--port", "0", "--tls-cert", certificate, "--tls-key", key)
    try:
        assert process.stdout is not None
        url, _, token = process.stdout.readline().strip().partition("/#t=")
        url = url.replace("https://127.0.0.1", "https://localhost")
        assert url.startswith("https://localhost:")
        trusting = {"HOLDFAST_TOKEN": token, "SSL_CERT_FILE": certificate}
        assert hf("runs", "--url", url, "--json", **trusting).json["items"][0]["id"] == "e1"
        stranger = hf("runs", "--url", url, HOLDFAST_TOKEN=token)
        assert (stranger.code, "cannot be trusted" in stranger.err) == (1, True)
        assert hf("runs", "--url", url.replace("https", "http"), **trusting).code == 1
        context = ssl.create_default_context(cafile=certificate)
        with urllib.request.urlopen(signing_in(url, token), context=context, timeout=60) as answer:
            cookie = answer.headers["set-cookie"]
        assert (cookie.startswith("__Host-hf="), cookie.endswith("; Secure")) == (True, True)
    finally:
        process.kill()
        process.communicate()


def signing_in(url: str, token: str) -> urllib.request.Request:
    headers = {"Content-Type": "application/json", "X-Holdfast": "1", "Sec-Fetch-Site": "same-origin"}
    return urllib.request.Request(f"{url}/session", json.dumps({"token": token}).encode(), headers)


def test_a_read_only_server_opens_the_store_for_reading(hf: Commands) -> None:
    assert hf("serve", "--read-only").code == 3, "there is none, and none is made"
    assert hf("run", "agents.py:echo", "--id", "e1").code == 0
    with serving(hf, "--read-only") as server:
        assert server.ask("GET", "/store")[0] == 200
        opened = Path(f"/proc/{server.process.pid}/fd")
        numbers = [each.name for each in opened.iterdir() if each.resolve() == hf.store.resolve()]
        infos = [(opened.parent / "fdinfo" / each).read_text() for each in numbers]
        assert infos
        assert {int(re.findall(r"flags:\s+(\d+)", each)[0], 8) & os.O_ACCMODE for each in infos} == {os.O_RDONLY}
        assert server.ask("GET", "/runs")[1]["items"][0]["id"] == "e1"
        assert server.ask("POST", "/runs", {"agent": "echo"})[1]["type"] == "/problems/read_only"
        assert server.ask("POST", "/runs/e1/verify", {})[1]["is_ok"] is True


def test_a_worker_beside_executes_what_is_started(hf: Commands) -> None:
    with serving(hf, "agents.py", "--worker") as server:
        assert server.ask("POST", "/runs", {"agent": "echo", "id": "e1", "input": {"text": "hi"}})[0] == 201
        eventually_now(lambda: server.ask("GET", "/runs/e1")[1]["status"] == "done")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    with serving(hf) as server:
        assert [each["alive"] for each in server.ask("GET", "/workers")[1]["items"] if each["alive"]] == []


def test_somebody_is_added_and_may_come(hf: Commands) -> None:
    token = hf("serve", "--users", "users.toml", "--add-user", "ana:viewer").out.strip()
    assert stat.S_IMODE((hf.folder / "users.toml").stat().st_mode) == 0o600
    assert hf("serve", "--users", "users.toml", "--add-user", "ana:admin").code == 2
    with serving(hf, "--users", "users.toml") as server:
        server.token = token
        assert server.ask("GET", "/runs")[0] == 200
        assert server.ask("POST", "/runs", {"agent": "echo"})[1]["type"] == "/problems/role"


def test_killed_in_the_middle_of_requests_each_is_done_once_when_it_comes_again(hf: Commands) -> None:
    """Requests come as fast as they can, the server is killed, and every one is sent again to the next."""
    bodies = [{"agent": "echo", "input": {"text": str(number)}} for number in range(200)]
    answered: dict[int, str] = {}

    def send(server: Server, numbers: list[int]) -> None:
        for number in numbers:
            try:
                status, told = server.ask("POST", "/runs", bodies[number], **{"Idempotency-Key": f"k{number}"})
            except (OSError, http.client.HTTPException):
                return
            assert status in (200, 201)
            answered[number] = told["id"]

    with serving(hf) as server:
        threads = [threading.Thread(target=send, args=(server, list(range(n, 200, 4)))) for n in range(4)]
        for each in threads:
            each.start()
        eventually_now(lambda: len(answered) >= 20)
        server.process.kill()
        for each in threads:
            each.join()
    before = dict(answered)
    assert 20 <= len(before) < 200
    with serving(hf) as server:
        send(server, list(range(200)))
        assert len(answered) == 200
        assert {number: answered[number] for number in before} == before
    connection = apsw.Connection(str(hf.store))
    assert [connection.execute("SELECT count(*) FROM runs").get] == [200]
    connection.close()


def test_who_sends_headers_for_ever_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "_HEADERS_S", 0.05)

    async def play(scene: Scene) -> None:
        place = Address(port=0)
        sockets = sockets_at(place)
        server = Serving(scene.api, place)
        task = asyncio.create_task(server.serve(sockets, lambda: None, on_signals=False))
        for request in (b"", b"GET /api/v1/health HT"):
            reader, writer = await asyncio.open_connection("127.0.0.1", sockets[0].getsockname()[1])
            writer.write(request)
            async with asyncio.timeout(60):
                await reader.read(-1)
            writer.close()
        server.stop()
        await task

    played(tmp_path, play, options={"executes": False})


@pytest.mark.prove
def test_requests_of_all_sorts_never_break_it(hf: Commands) -> None:
    assert hf("run", "agents.py:research", "tides", "--id", "x").code == 0
    hf.leave_in_doubt("d1")
    with serving(hf) as server:
        checks = "not_a_server_error,content_type_conformance,response_schema_conformance,status_code_conformance"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run"),
                f"http://127.0.0.1:{server.port}/api/v1/openapi.json",
                *("-H", f"Authorization: Bearer {server.token}", "--checks", checks, "--no-color"),
                *("--phases", "examples,coverage,fuzzing", "-n", "20", "--exclude-path-regex", "stream"),
            ],
            capture_output=True,
            text=True,
            cwd=hf.folder,
        )
        assert done.returncode == 0, done.stdout[-5000:]
        assert server.ask("GET", "/health")[0] == 200
