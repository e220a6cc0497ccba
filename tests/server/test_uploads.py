"""Files that people give to runs by HTTP: whole and as announced, listed once, and said by whom."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import io
import os
import signal
import socket
from pathlib import Path
from typing import Any, cast

import httpx2 as httpx
import pytest

from holdfast.app.served import Served
from holdfast.control import uploads
from holdfast.journal.chain import revised
from holdfast.model import ActFilter, Claim, RunId, Status
from holdfast.server import output_shapes
from holdfast.server.security import bodies
from holdfast.server.security.people import Role
from holdfast.store.served.store import ServedStore
from holdfast.testing import check_history
from holdfast.testing.samples import ALICE
from tests.cli.commands import Commands
from tests.forkserver import ForkServer
from tests.server.scene import Scene, played
from tests.server.test_serving import Server, serving

DATA = b"tides\n" * 100_000  # three chunks
BYTES = "application/octet-stream"
KEY = {"idempotency-key": "k"}
STORE = ".holdfast/holdfast.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


def announced(data: bytes) -> dict[str, str]:
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return {"content-type": BYTES, "repr-digest": f"sha-256=:{digest}:"}


async def put(scene: Scene, path: str, data: bytes = DATA, headers: dict[str, str] | None = None) -> httpx.Response:
    return await scene.http.put(f"/api/v1/runs/{path}", content=data, headers=announced(data) | (headers or {}))


async def held(scene: Scene, run_id: str = "d") -> tuple[list[tuple[str, int]], int, list[tuple[str, str, str]]]:
    """The files that are listed, how many chunks are stored, and what people did."""
    listed = (await scene.get(f"/runs/{run_id}/artifacts"))["items"]
    files = [(each["name"], each["version"]) for each in listed if each["kind"] == "file"]
    chunks = await scene.app._store.chunk_page(RunId(run_id), after="", limit=100)
    acts = await scene.app._store.surveys.acts(ActFilter(run_id=RunId(run_id)))
    return files, len(chunks), [(act.what, act.by, act.note) for _, act in acts if act.what == "upload"]


def test_a_file_is_given_to_a_run_that_waits_once_and_said_by_whom(tmp_path: Path, url: str) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("dozing", "d", "sleeping")
        before = await scene.get("/runs/d")
        answer = await put(scene, "d/artifacts/in%2Fnotes.txt?note=for%20you", headers=KEY)
        assert answer.status_code == 201, answer.text
        first = answer.json()
        output_shapes.Uploaded.model_validate(first)
        assert (first["name"], first["version"], first["size"], first["is_new"]) == ("in/notes.txt", 1, len(DATA), True)
        for headers in ({}, KEY):
            again = await put(scene, "d/artifacts/in%2Fnotes.txt", headers=headers)
            assert (again.status_code, again.json()) == (200, {**first, "is_new": False}), "twice is once"
        (found,) = [each for each in (await scene.get("/runs/d/artifacts?check=true"))["items"] if each["size"]]
        assert (found["state"], found["media_type"]) == ("stored", "text/plain")
        assert found["detail"].startswith("put there by ")
        got = await scene.http.get("/api/v1/runs/d/artifacts/in%2Fnotes.txt")
        assert got.content == DATA
        other = await put(scene, "d/artifacts/in%2Fnotes.txt", b"other")
        assert other.json()["version"] == 2
        files, _, acts = await held(scene)
        assert (files, [(what, note) for what, _, note in acts]) == (
            [("in/notes.txt", 1), ("in/notes.txt", 2)],
            [("upload", ""), ("upload", "for you")],
        )
        reused = await put(scene, "d/artifacts/other.txt", headers=KEY)
        assert (reused.status_code, reused.json()["type"]) == (409, "/problems/key_reused")
        await scene.post("/runs/d/pause", key="p")
        paused = await put(scene, "d/artifacts/other.txt", headers={"idempotency-key": "p"})
        assert (paused.status_code, paused.json()["type"]) == (409, "/problems/key_reused")
        await scene.post("/runs/d/resume")
        await scene.until("d", "sleeping")
        after = await scene.get("/runs/d")
        assert (after["status"], after["waits"]) == (before["status"], before["waits"]), "it waits as it did"
        assert (await scene.post("/runs/d/verify"))["is_ok"]

    played(tmp_path, play, options={"url": url})
    assert check_history(url) == []


def test_a_run_that_was_given_a_file_goes_on_as_it_would_have(tmp_path: Path, url: str) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("summing", "d", "waiting", times=2)
        for name, value in (("one", 4), ("two", 5)):
            await scene.until("d", "waiting")
            row = await scene.app._store.run(RunId("d"))
            answer = await put(scene, f"d/artifacts/{name}", name.encode())
            assert answer.status_code == 201, (answer.text, row)
            await scene.post("/runs/d/signals", {"name": "number", "value": value}, 202)
        await scene.until("d", "done")
        assert [name for name, _ in (await held(scene))[0]] == ["one", "two"]
        assert (await scene.get("/runs/d"))["result"]["json"] == "9"

    played(tmp_path, play, options={"url": url})
    assert check_history(url) == []


def test_what_is_not_as_announced_or_not_for_this_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("dozing", "d", "sleeping")
        await scene.start("echo", "ended", "done")

        async def refused(path: str, status: int, kind: str, **headers: str) -> None:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = await put(scene, path, headers=given)
            assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{kind}"), answer.text

        wrong = announced(b"something else")["repr-digest"]
        await refused("d/artifacts/a.txt", 422, "wrong_digest", repr_digest=wrong)
        await refused("d/artifacts/a.txt", 400, "invalid_parameter", repr_digest="sha-256=:short=:")
        await refused("nobody/artifacts/a.txt", 404, "no_such_run")
        await refused("ended/artifacts/a.txt", 409, "run_finished")
        await refused("d/artifacts/..%2Fetc", 422, "does_not_fit")
        await refused("d/artifacts/a.txt", 415, "not_bytes", content_type="text/plain")
        await refused("d/artifacts/a.txt", 403, "origin", origin="http://evil.example")
        monkeypatch.setattr(bodies, "LARGEST_FILE", len(DATA) - 1)
        await refused("d/artifacts/a.txt", 413, "too_large")

        async def parts() -> Any:
            for start in range(0, len(DATA), 1000):
                yield DATA[start : start + 1000]

        untold = await scene.http.put("/api/v1/runs/d/artifacts/a.txt", content=parts(), headers=announced(DATA))
        assert untold.status_code == 413, "whatever it says of its length"
        for run_id in ("d", "ended"):
            assert await held(scene, run_id) == ([], 0, [])
        assert await scene.app._store.chunk_page(RunId("nobody"), after="", limit=1) == []

    played(tmp_path, play)


def test_a_viewer_gives_no_files(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with scene.client(token=scene.tokens["eva"]) as eva:
            answer = await eva.put("/api/v1/runs/d/artifacts/a", content=DATA, headers=announced(DATA))
            assert (answer.status_code, answer.json()["type"]) == (403, "/problems/role")

    played(tmp_path, play, options={"people": {"eva": Role.viewer}, "executes": False})


@pytest.mark.corrupts
def test_a_run_that_somebody_executes_is_given_none_just_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_SOON_S", 0.0)

    async def begin(scene: Scene) -> None:
        await scene.start("dozing", "d", "sleeping")

    async def play(scene: Scene) -> None:
        store = scene.app._store
        row = await store.run(RunId("d"))
        assert row is not None
        taken = revised(row, epoch=row.epoch + 1, status=Status.running, wake_at=None)
        assert await store.claim_many([Claim(taken, row.epoch, None)], owner=ALICE) == [True]
        answer = await put(scene, "d/artifacts/a.txt")
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/not_now")
        files, _, acts = await held(scene)
        assert (files, acts) == ([], [])

    played(tmp_path, begin)
    played(tmp_path, play, options={"executes": False})  # who executes takes over from somebody who is not there


# the server, and whoever sends


@pytest.fixture
def hf(tmp_path: Path, forkserver: ForkServer) -> Commands:
    return Commands(tmp_path, forkserver)


def sleeping(folder: Path, url: str = "") -> None:
    async def play(scene: Scene) -> None:
        await scene.start("dozing", "d", "sleeping")

    (folder / ".holdfast").mkdir()
    played(folder, play, options={"name": STORE, "url": url})


def seen(folder: Path, url: str = "") -> tuple[list[tuple[str, int]], int, list[tuple[str, str, str]]]:
    return played(folder, held, options={"name": STORE, "executes": False, "url": url})


def send(server: Server) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        headers = announced(DATA) | {"authorization": f"Bearer {server.token}"}
        connection.request("PUT", "/api/v1/runs/d/artifacts/a.txt", DATA, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_client_that_dies_halfway_leaves_nothing_and_a_server_that_serves(hf: Commands, tmp_path: Path) -> None:
    sleeping(tmp_path)
    with serving(hf) as server:
        lines = [f"{name}: {value}" for name, value in announced(DATA).items()]
        head = "\r\n".join(
            [
                "PUT /api/v1/runs/d/artifacts/a.txt HTTP/1.1",
                f"host: localhost:{server.port}",
                f"authorization: Bearer {server.token}",
                f"content-length: {len(DATA)}",
                *lines,
            ]
        )
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(f"{head}\r\n\r\n".encode() + DATA[: len(DATA) // 2])
        assert send(server) == 201
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == "Serving until Ctrl-C.\n", "it is no error of the server"
    files, _, acts = seen(tmp_path)
    assert (files, len(acts)) == ([("a.txt", 1)], 1)


class Watched(io.FileIO):
    """A file that knows how much was read at a time, and how often it was read from its beginning."""

    most = begun = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size) or b""
        self.most = max(self.most, len(found))
        return found

    def seek(self, place: int, whence: int = 0, /) -> int:
        self.begun += place == 0
        return super().seek(place, whence)


def test_a_file_is_sent_a_little_at_a_time_and_anew_if_the_server_has_hung_up(hf: Commands, tmp_path: Path) -> None:
    sleeping(tmp_path)
    large = tmp_path / "large.bin"
    large.write_bytes(DATA * 8)

    async def give(url: str) -> list[tuple[int, bool]]:
        given: list[tuple[int, bool]] = []
        async with Served(url) as app:
            for is_cut in (False, True):
                line = cast("ServedStore", app._store).line
                for connection in line._idle if is_cut else ():
                    connection.sock.shutdown(socket.SHUT_RD)
                with Watched(large) as file:
                    given.append(await app._commanded.give(RunId("d"), "a", file, media_type=None, by=None, note=""))
                assert file.most <= 1 << 20 < large.stat().st_size
                assert file.begun == (3 if is_cut else 2), "its digest, and the bytes"
            reading, writing = os.pipe()
            with open(reading, "rb") as pipe:
                os.write(writing, b"tides")
                os.close(writing)
                given.append(await app._commanded.give(RunId("d"), "piped", pipe, media_type=None, by=None, note=""))
        return given

    with serving(hf) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert asyncio.run(give(f"{url}/#t={server.token}")) == [(1, True), (1, False), (1, True)]
    files, _, acts = seen(tmp_path)
    assert (files, len(acts)) == ([("a", 1), ("piped", 1)], 2)


@pytest.mark.parametrize(
    ("store", "point"),
    [
        ("sqlite", "upload.after_data"),
        pytest.param("sqlite", "amend.before_commit", marks=pytest.mark.prove),
        ("sqlite", "amend.after_commit"),
        pytest.param("postgres", "upload.after_data", marks=pytest.mark.prove),
        pytest.param("postgres", "amend.before_commit", marks=pytest.mark.prove),
        pytest.param("postgres", "amend.after_commit", marks=pytest.mark.prove),
    ],
)
def test_a_server_that_is_killed_has_listed_a_file_and_said_by_whom_or_neither(
    hf: Commands, tmp_path: Path, request: pytest.FixtureRequest, *, store: str, point: str
) -> None:
    url = "" if store == "sqlite" else str(request.getfixturevalue("postgres_url"))
    sleeping(tmp_path, url)
    with serving(hf, HOLDFAST_FAULT=f"{point}:kill", **({"HOLDFAST_URL": url} if url else {})) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            send(server)
        assert server.process.wait(60) == -signal.SIGKILL
    files, _, acts = seen(tmp_path, url)
    assert len(files) == len(acts) == (point == "amend.after_commit")

    async def again(scene: Scene) -> int:
        return (await put(scene, "d/artifacts/a.txt")).status_code

    assert played(tmp_path, again, options={"name": STORE, "executes": False, "url": url}) == (200 if files else 201)
    files, chunks, acts = seen(tmp_path, url)
    assert (files, chunks, len(acts)) == ([("a.txt", 1)], 4, 1)
