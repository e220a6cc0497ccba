"""`holdfast doctor` says whether others can read along on the way to the server."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.model import Privacy
from holdfast.store.postgres.access import privacy
from holdfast.testing.processes import environment


def certificate(folder: Path) -> tuple[Path, Path]:
    """One for 127.0.0.1, signed by itself, with its key."""
    cert, key = folder / "server.crt", folder / "server.key"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *words, *names], check=True, capture_output=True)
    return cert, key


@asynccontextmanager
async def encrypted(url: str, cert: Path, key: Path) -> AsyncIterator[int]:
    """The port of a server that takes encrypted connections, in front of one that does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    behind = urlsplit(url)

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except (OSError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # "may it be encrypted?"
        writer.write(b"S")
        try:
            await writer.start_tls(context)
        except (OSError, ssl.SSLError):
            writer.close()  # whoever it is does not trust the certificate
            return
        far_reader, far_writer = await asyncio.open_connection(behind.hostname, behind.port)
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def told(url: str) -> tuple[str, str]:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "holdfast", "--db", url, "doctor", "--json"],
        env=environment(),
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate()
    (found,) = [item for item in json.loads(out)["items"] if item["what"] == "encryption"]
    return found["grade"], found["text"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_doctor_says_whether_the_session_is_encrypted_and_with_whom(postgres_url: str, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)

    async def main() -> None:
        parts = urlsplit(postgres_url)
        assert await told(postgres_url) == ("ok", "not encrypted, and does not leave this machine")
        async with encrypted(postgres_url, cert, key) as port:
            url = f"postgresql://{parts.username}:{parts.password}@127.0.0.1:{port}{parts.path}"
            grade, text = await told(f"{url}?sslmode=require")
            assert grade == "warning"
            assert text.startswith("encrypted (TLSv1.")
            assert "verify-full" in text
            grade, text = await told(f"{url}?sslmode=verify-full&sslrootcert={cert}")
            assert (grade, text.partition(" (")[0]) == ("ok", "encrypted")
            assert "fits its name" in text

    asyncio.run(main())


def test_a_plain_connection_to_another_machine_is_clear() -> None:
    def found(**known: Any) -> Privacy:
        transport = SimpleNamespace(get_extra_info=known.get)
        return privacy(SimpleNamespace(_transport=transport))[0]

    assert found(peername=("10.1.2.3", 5432)) is Privacy.clear
    assert found(peername=("2001:db8::1", 5432, 0, 0)) is Privacy.clear
    assert found(peername=("::1", 5432, 0, 0)) is Privacy.local
    assert found(peername=("127.0.0.1", 5432)) is Privacy.local
    assert found(peername="/run/postgresql/.s.PGSQL.5432") is Privacy.local
    assert found(peername="") is Privacy.local
