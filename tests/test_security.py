"""What docs/security.md says, executed: who can do what to a store, what is in it, and who is at the other end."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import quote, urlsplit

import apsw
import pytest

import holdfast as hf
from holdfast.errors import StoreAway, StoreError
from holdfast.journal.chain import first_hash, rehash, row_digest
from holdfast.model import Record, RunId, RunRow
from holdfast.store.sqlite.store import SqliteStore
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.forkserver import ForkServer

NOBODY = 65534


# whoever writes the store


Statement = tuple[str, tuple[str | int | bytes | None, ...]]


def forged(row: RunRow, records: Sequence[Record], old: str, new: str) -> Iterator[Statement]:
    """The statements that rewrite a run's history, with all hashes."""
    previous = first_hash(row.id, row.nonce)
    for record in records:
        changed = record._replace(payload=record.payload and record.payload.replace(old, new))
        previous = rehash(previous, changed)
        yield (
            "UPDATE records SET payload = ?, hash = ? WHERE run_id = ? AND seq = ?",
            (changed.payload, previous, row.id, record.seq),
        )
    digest = row_digest(replace(row, head_hash=previous))
    yield "UPDATE runs SET head_hash = ?, digest = ? WHERE id = ?", (previous, digest, row.id)


@pytest.mark.corrupts
def test_whoever_can_write_to_the_store_can_forge_a_history_and_verify_finds_nothing(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    holdfast = Commands(tmp_path, forkserver)
    holdfast("run", "agents.py:echo", "honest", "--id", "one")
    assert holdfast("show", "one", "--json").json["result"] == "honest"

    async def load() -> tuple[RunRow, list[Record]] | None:
        store = SqliteStore(str(holdfast.store))
        await store.open(read_only=True)
        try:
            return await store.load(RunId("one"))
        finally:
            await store.close()

    found = asyncio.run(load())
    assert found is not None
    connection = apsw.Connection(str(holdfast.store))
    for statement, values in forged(*found, "honest", "forged"):
        connection.execute(statement, values)
    connection.close()
    assert holdfast("verify", "one").code == 0
    assert holdfast("show", "one", "--json").json["result"] == "forged"


# another user


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_tool_that_is_another_user_can_open_no_file_of_the_store(forkserver: ForkServer) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # pytest's own folder would keep it out already
        holdfast = Commands(folder, forkserver)
        holdfast("run", "agents.py:echo", "mine", "--id", "one")
        files = [file for file in holdfast.store.parent.rglob("*") if file.is_file()]
        assert holdfast.store in files
        for file in files:
            file.parent.chmod(0o755)  # even if the folder lets it in
        for file in files:
            read = subprocess.run(["cat", file], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True)
            assert read.returncode != 0, file
            assert b"Permission denied" in read.stderr


# what is stored


class Client:
    def __init__(self) -> None:
        self.key = "secret-of-the-client"


@hf.step
async def work(argument: str) -> str:
    return "secret-result"


@hf.step
async def fail() -> None:
    raise ValueError("secret-error")


@hf.step
async def use(client: Client) -> None:
    assert client.key


@hf.agent
async def secretive(given: str) -> str:
    await work("secret-argument")
    with suppress(hf.StepError, ValueError):
        await fail()
    await use(Client())
    await hf.ask("secret-question", show={"what": "secret-shown"})
    await hf.receive(("word", str))
    return "secret-end"


def test_what_runs_are_given_and_do_is_stored_in_clear_and_stays_in_free_space_when_pruned(tmp_path: Path) -> None:
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"

    async def main() -> None:
        async with hf.connect(str(path), agents=[secretive]) as app:
            run = await app.start(secretive("secret-input"), id="one")
            await eventually(lambda: app.questions())
            (question,) = await app.questions()
            await question.answer(True, by="secret-name", note="secret-note")
            await run.send("word", "secret-signal")
            assert await run.result() == "secret-end"

    async def prune() -> None:
        async with hf.connect(str(path)) as app:
            assert (await app.prune(older_than=timedelta(0))).runs == 1

    def stored(file: Path) -> set[str]:
        data = b"".join(each.read_bytes() for each in tmp_path.glob(f"{file.name}*") if each.is_file())
        return {what for what in secrets if f"secret-{what}".encode() in data}

    secrets = set("input argument result error question shown name note signal end".split())
    asyncio.run(main())
    assert stored(path) == secrets
    secrets.add("of-the-client")
    assert "of-the-client" not in stored(path), "what cannot be stored is recorded by the name of its type"
    asyncio.run(prune())
    assert "result" in stored(path)

    async def back_up() -> None:
        store = SqliteStore(str(path))
        await store.open(read_only=True)
        await store.backup(str(copy))
        await store.close()

    asyncio.run(back_up())
    assert stored(copy) == set()


PAGE = "http://eva:secret-url@127.0.0.1/"  # here, since the lines of a traceback are stored


@hf.step
def work_in(repo: hf.Workspace, path: str) -> None:
    (repo.path / ".env").write_text("secret-ignored")
    (repo.path / "kept").write_text("secret-kept")
    hf.artifact("file", path=path).result()
    hf.artifact("request", ref="https://eva:secret-password@example.org/7").result()


@hf.agent
async def leaky(path: str) -> None:
    await work_in(await hf.workspace("repo", ignore=[".env"]), path)
    await hf.artifact("again", ref="https://secret-token@example.org/secret-page", kind="draft-pr")
    await hf.guard("page", hf.guards.url(PAGE))


def test_of_files_what_is_ignored_and_who_signs_in_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WORKSPACES", str(tmp_path / "workspaces"))
    (tmp_path / "given").write_text("secret-given")
    with pytest.raises(hf.RunFailed, match="without a name and password"):
        hf.run(leaky(str(tmp_path / "given")), id="one", url=f"sqlite:///{tmp_path}/s.db")
    data = b"".join(each.read_bytes() for each in tmp_path.glob("s.db*") if each.is_file())
    assert set(re.findall(rb"secret-[a-z]+", data)) == {b"secret-kept", b"secret-given", b"secret-page"}

    async def refs() -> set[str]:
        async with hf.connect(f"sqlite:///{tmp_path}/s.db") as app:
            return {each.ref for each in await app.get("one").artifacts() if each.ref}

    assert asyncio.run(refs()) == {"https://***@example.org/7", "https://***@example.org/secret-page"}


# who is at the other end


@contextmanager
def encrypting(server: str, certificate: Path, key: Path) -> Iterator[int]:
    """The port of something that speaks TLS as a PostgreSQL server does, and passes on to one in clear."""
    parts = urlsplit(server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            assert await reader.readexactly(8) == struct.pack("!ii", 8, 80877103)
            writer.write(b"S")
            await writer.start_tls(context)
            behind = await asyncio.open_connection(parts.hostname, parts.port)
            await asyncio.gather(pump(reader, behind[1]), pump(behind[0], writer))

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
            stop = asyncio.Event()
            ready.put((listening.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop))
            await stop.wait()

    ready: SimpleQueue[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    port, loop, stop = ready.get(timeout=60)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)


def certified(folder: Path, name: str, host: str) -> tuple[Path, Path]:
    """A certificate for a host that it signs itself, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


async def reached(url: str) -> bool:
    """Or why not."""
    async with hf.connect(url) as app:
        return await app.runs() == []


def test_by_default_a_server_without_tls_is_spoken_to_in_clear_and_verify_full_refuses_it(postgres_url: str) -> None:
    assert asyncio.run(reached(postgres_url))
    with pytest.raises(StoreAway, match="rejected SSL upgrade"):
        asyncio.run(reached(f"{postgres_url}?sslmode=verify-full&sslrootcert={quote(ssl_default())}"))


def ssl_default() -> str:
    """Some certificate that is there; it does not come to it."""
    found = ssl.get_default_verify_paths()
    return found.cafile or found.openssl_cafile


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@needs_openssl
def test_verify_full_tells_the_server_from_one_that_only_pretends(postgres_url: str, tmp_path: Path) -> None:
    own, other, elsewhere = (
        certified(tmp_path, name, host)
        for name, host in (("own", "localhost"), ("other", "localhost"), ("elsewhere", "db.example.org"))
    )
    parts = urlsplit(postgres_url)
    assert "localhost" not in (parts.password or "")

    def url(port: int, options: str) -> str:
        place = f"{parts.username}:{parts.password}@localhost:{port}"
        return parts._replace(netloc=place, query=options).geturl()

    with encrypting(postgres_url, *own) as port:
        assert asyncio.run(reached(url(port, f"sslmode=verify-full&sslrootcert={own[0]}")))
        with pytest.raises(StoreError, match="not shown that it is the server"):
            asyncio.run(reached(url(port, f"sslmode=verify-full&sslrootcert={other[0]}")))
        assert asyncio.run(reached(url(port, "sslmode=prefer"))), "it believes whoever answers"
    with (
        encrypting(postgres_url, *elsewhere) as port,
        pytest.raises(StoreError, match="not shown that it is the server"),
    ):
        asyncio.run(reached(url(port, f"sslmode=verify-full&sslrootcert={elsewhere[0]}")))
