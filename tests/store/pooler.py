"""A pooler in transaction mode, as small as it can be: every transaction goes to another session of the server.

It refuses what such poolers refuse (settings of a session), and between two transactions of a client its session does
something else, so whoever relies on one is found out: prepared statements, session settings and locks are discarded.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_ALLOWED = {"user", "database", "application_name", "client_encoding"}
_DISCARD = b"DISCARD ALL\0"


class _Server:
    """One session of the server, with nobody's state in it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting = b""

    async def message(self) -> tuple[bytes, bytes]:
        head = await self.reader.readexactly(5)
        return head[:1], head + await self.reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)

    async def until_ready(self) -> bytes:
        seen = b""
        while True:
            sort, data = await self.message()
            seen += data
            if sort == b"Z":
                return seen

    async def clean(self) -> None:
        self.writer.write(b"Q" + struct.pack("!I", len(_DISCARD) + 4) + _DISCARD)
        await self.until_ready()


class Pooler:
    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._idle: list[_Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.transactions = 0

    async def _server(self) -> _Server:
        if len(self._idle) > 2:
            return self._idle.pop(0)  # not the one that was used last
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        server = _Server(reader, writer)
        body = b"user\0" + (self._url.username or "").encode() + b"\0database\0" + self._url.path[1:].encode() + b"\0\0"
        writer.write(struct.pack("!II", len(body) + 8, 196608) + body)
        server.greeting = await _log_in(server, self._url.password or "")
        return server

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._client(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = struct.unpack("!I", await reader.readexactly(4))[0]
            body = await reader.readexactly(size - 4)
            code = struct.unpack("!I", body[:4])[0]
            if code == 196608:
                break
            if code == 80877102:  # a cancellation: it has no session here
                return
            writer.write(b"N")  # no encryption
        words = body[4:].split(b"\0")
        asked = {word.decode() for word in words[:-2:2] if word}
        if not asked <= _ALLOWED:
            text = f"SERROR\0C08P01\0Munsupported startup parameter: {sorted(asked - _ALLOWED)}\0\0".encode()
            writer.write(b"E" + struct.pack("!I", len(text) + 4) + text)
            return
        server = await self._server()
        writer.write(b"R" + struct.pack("!II", 8, 0) + server.greeting)
        self._idle.append(server)
        while True:
            await self._transaction(reader, writer)

    async def _transaction(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(5)
        server = await self._server()
        self.transactions += 1
        try:
            while True:
                data = head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
                if head[:1] == b"X":
                    raise asyncio.IncompleteReadError(b"", None)
                server.writer.write(data)
                if head[:1] in (b"S", b"Q"):
                    answer = await server.until_ready()
                    writer.write(answer)
                    if answer[-1:] == b"I":
                        break
                elif head[:1] == b"H":  # after Parse and Describe, which end with the columns, or an error
                    sort = b""
                    while sort not in (b"T", b"n", b"E"):
                        sort, answer = await server.message()
                        writer.write(answer)
                head = await reader.readexactly(5)
        except BaseException:
            server.writer.close()
            raise
        await server.clean()
        self._idle.append(server)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._idle:
            server.writer.write(b"X\0\0\0\4")
            server.writer.close()


async def _log_in(server: _Server, password: str) -> bytes:
    """Answer what the server asks for; what it says of itself."""
    seen, nonce, server_first = b"", "cnonce", ""

    def send(sort: bytes, data: bytes) -> None:
        server.writer.write(sort + struct.pack("!I", len(data) + 4) + data)

    while True:
        sort, data = await server.message()
        if sort == b"Z":
            return seen + data
        if sort != b"R":
            assert sort != b"E", data
            seen += data
            continue
        kind = struct.unpack("!I", data[5:9])[0]
        if kind == 10:  # SCRAM-SHA-256
            first = f"n,,n=,r={nonce}".encode()
            send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(first)) + first)
        elif kind == 11:
            server_first = data[9:].decode()
            given = dict(part.split("=", 1) for part in server_first.split(","))
            salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(given["s"]), int(given["i"]))
            key = hmac.digest(salted, b"Client Key", "sha256")
            bare = f"c=biws,r={given['r']}"
            message = f"n=,r={nonce},{server_first},{bare}".encode()
            signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
            proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
            send(b"p", f"{bare},p={proof}".encode())
        elif kind == 3:
            send(b"p", password.encode() + b"\0")


@asynccontextmanager
async def pooled(url: str) -> AsyncIterator[str]:
    """The url of a pooler in front of a database."""
    pooler = Pooler(url)
    listener = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    parts = urlsplit(url)
    try:
        yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"
        assert pooler.transactions > 0
    finally:
        listener.close()
        await pooler.close()
        await listener.wait_closed()
