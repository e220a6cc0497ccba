"""The line to a server: requests, and what went wrong with them in sentences.

Connections are kept and used again. One that the server has closed meanwhile is noticed when it is used; the request is
sent again on a new one then. That is safe: a look changes nothing, and every act has a key of its own by which the
server knows it again.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any, BinaryIO, Final, cast
from urllib.parse import parse_qs, urlsplit

from holdfast.base.config import is_server
from holdfast.errors import AccessDenied, StoreAway, UsageError

TOKEN: Final = "HOLDFAST_TOKEN"
API: Final = "/api/v1"
_TIMEOUT_S: Final = 60.0
_SHOWN: Final = 200
_AT_ONCE: Final = 1 << 20  # bytes of a file


class Refusal(Exception):
    """The server's answer is a problem: its kind, what it says, and the rest of it."""

    def __init__(self, kind: str, detail: str, more: Mapping[str, Any]) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.more = kind, detail, more


def without_token(url: str) -> str:
    """The url as it may be shown."""
    return url.partition("#")[0] if is_server(url) else url


class _File:
    """What is sent of a file: as much as it had when its digest was made, a little at a time."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = 0

    def headers(self) -> dict[str, str]:
        """How it is announced; reads it once."""
        found, self._size = sha256(), 0
        self._stream.seek(0)
        while part := self._stream.read(_AT_ONCE):
            found.update(part)
            self._size += len(part)
        return {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(self._size),
            "Repr-Digest": f"sha-256=:{b64encode(found.digest()).decode()}:",
        }

    def __iter__(self) -> Iterator[bytes]:
        """From its beginning: on another connection it is sent again."""
        self._stream.seek(0)
        left = self._size
        while left:
            part = self._stream.read(min(left, _AT_ONCE))
            if not part:
                raise UsageError("The file became shorter while it was sent; nothing was stored of it.")
            left -= len(part)
            yield part


class Line:
    """To one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise UsageError(f"The port of {without_token(url)} is none.") from None
        if not parts.hostname or parts.username is not None or parts.query:
            raise UsageError("The url of a server is http://HOST:PORT or https://HOST/PATH; its token is not in it.")
        self.url = f"{parts.scheme.lower()}://{parts.netloc}{parts.path.rstrip('/')}"
        self._host, self._port = parts.hostname, port
        self._is_secure = parts.scheme.lower() == "https"
        self._root = parts.path.rstrip("/")
        self._token = (parse_qs(parts.fragment).get("t") or [""])[0] or os.environ.get(TOKEN, "")
        if not self._token.isascii() or any(each <= " " for each in self._token):
            raise UsageError(f"{TOKEN} is not a token: it has characters that no token has.")
        self._idle: list[http.client.HTTPConnection] = []

    async def ask(self, method: str, path: str, body: Any = None, *, key: str = "", timeout_s: float = 0.0) -> Any:
        """What the server answers; Refusal if it is a problem that somebody may know what to do about.

        The body is JSON, or a file, which is read from its beginning, twice, and announced with its digest.
        """
        return await asyncio.to_thread(self._ask, method, path, body, key=key, timeout_s=timeout_s or _TIMEOUT_S)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _ask(self, method: str, path: str, body: Any, *, key: str, timeout_s: float) -> Any:
        headers = {"Accept": "application/json", "User-Agent": "holdfast"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if key:
            headers["Idempotency-Key"] = key
        given: bytes | _File | None = None
        if isinstance(body, io.IOBase):
            given = _File(cast("BinaryIO", body))
            headers |= given.headers()
        elif body is not None:
            headers["Content-Type"] = "application/json"
            given = json.dumps(body).encode()
        try:
            status, found, data = self._sent(method, self._root + path, given, headers=headers, timeout_s=timeout_s)
        except ssl.SSLError as error:
            raise StoreAway(
                f"{self.url} cannot be trusted: {_reason(error)}. SSL_CERT_FILE names certificates."
            ) from error
        except (http.client.HTTPException, UnicodeError) as error:
            raise StoreAway(f"What answers at {self.url} does not speak {self._said}: {_reason(error)}.") from error
        except OSError as error:
            raise StoreAway(f"{self.url} cannot be reached: {_reason(error)}. Is `holdfast serve` running?") from error
        return self._answer(status, found, data)

    @property
    def _said(self) -> str:
        return "https" if self._is_secure else "http"

    def _sent(
        self, method: str, path: str, given: bytes | _File | None, *, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        while True:
            is_kept = bool(self._idle)
            connection = self._idle.pop() if is_kept else self._connection()
            connection.timeout = timeout_s
            try:
                if connection.sock is not None:
                    connection.sock.settimeout(timeout_s)
                connection.request(method, path, given, dict(headers))
                answer = connection.getresponse()
                data = answer.read()
            except (http.client.RemoteDisconnected, ConnectionError):
                connection.close()
                if not is_kept:
                    raise
                continue
            except BaseException:
                connection.close()
                raise
            if answer.will_close:
                connection.close()
            else:
                self._idle.append(connection)
            return answer.status, answer.headers, data

    def _connection(self) -> http.client.HTTPConnection:
        if self._is_secure:
            return http.client.HTTPSConnection(self._host, self._port, context=ssl.create_default_context())
        return http.client.HTTPConnection(self._host, self._port)

    def _answer(self, status: int, headers: http.client.HTTPMessage, data: bytes) -> Any:
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            to = without_token(headers.get("Location", "")[:_SHOWN]) or "elsewhere"
            raise UsageError(
                f"{self.url} sends on to {to}. Give that url: a token is not sent where it was not meant for."
            )
        told = _json(data)
        if status < HTTPStatus.MULTIPLE_CHOICES and told is not None:
            return told
        kind = str(told.get("type", "")) if isinstance(told, dict) else ""
        if not kind.startswith("/problems/"):
            raise UsageError(f"What answers at {self.url} is no Holdfast server: it says {status}.")
        assert isinstance(told, dict)
        self._refuse(kind.removeprefix("/problems/"), told, headers)

    def _refuse(self, kind: str, told: Mapping[str, Any], headers: http.client.HTTPMessage) -> None:
        detail = str(told.get("detail") or "")
        match kind:
            case "sign_in" if not self._token:
                raise AccessDenied(f"{self.url} wants a token: put it into {TOKEN}.")
            case "sign_in":
                raise AccessDenied(f"{self.url} does not know the token in {TOKEN}.")
            case "rate":
                raise AccessDenied(f"{self.url} has had too many wrong tokens; wait {headers.get('Retry-After')} s.")
            case "role" | "read_only" | "origin":
                raise AccessDenied(f"{self.url} does not allow it. {detail or told.get('title')}")
            case "wrong_host":
                raise UsageError(f"{self.url} is not served under this name: start it with `--host {self._host}`.")
            case "no_such_page" | "method":
                raise UsageError(f"{self.url} cannot do this: it is another version of Holdfast, or something else.")
            case "store_away" | "store_full" | "busy" | "internal":
                raise StoreAway(f"{self.url} cannot do it now: {told.get('title')}. {detail}".rstrip())
            case _:
                raise Refusal(kind, detail or str(told.get("title")), told)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _reason(error: Exception) -> str:
    match error:
        case socket.gaierror():
            return "there is no such host"
        case TimeoutError():
            return "it does not answer in time"
        case ConnectionRefusedError():
            return "nobody listens there"
        case ssl.SSLCertVerificationError():
            return error.verify_message
        case http.client.RemoteDisconnected():
            return "it hung up"
        case http.client.BadStatusLine():
            return "no answer that is known"
        case OSError():
            return str(error.strerror or error)
        case _:
            return type(error).__name__
