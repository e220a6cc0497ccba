"""Listening: sockets, TLS, and a server that ends in good order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import signal
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.base.data import data
from holdfast.errors import UsageError
from holdfast.server.service import Service

_HEADERS_S: Final = 15.0
_LEAVE_S: Final = 3
_TLS_ERRORS: Final = {
    "KEY_VALUES_MISMATCH": "the key is that of another certificate",
    "None": "one of them is no PEM file of its kind, or the key has a password, for which a server has nobody to ask",
}


@data
class Address:
    """Where a server listens."""

    port: int = 7788
    bind: str | None = None  #: None: on this host alone
    uds: str | None = None
    certificate: str | None = None
    private_key: str | None = None

    @property
    def is_open(self) -> bool:
        """Can others than this host reach it?"""
        return self.bind is not None and not _address(self.bind).is_loopback

    @property
    def is_everywhere(self) -> bool:
        return self.bind is not None and _address(self.bind).is_unspecified


def _address(given: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(given.strip("[]"))
    except ValueError:
        raise UsageError(f"--bind takes an address, such as 127.0.0.1 or 0.0.0.0; got {given!r}.") from None


def sockets_at(place: Address) -> list[socket.socket]:
    """Sockets that are bound; the port of the first, if any is fine. UsageError says why one cannot be."""
    if place.uds is not None:
        return [_unix(place.uds)]
    names = [str(_address(place.bind))] if place.bind is not None else ["127.0.0.1", "::1"]
    found: list[socket.socket] = []
    port = place.port
    for name in names:
        try:
            found.append(_bound(name, port))
        except OSError as error:
            if found and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue  # no IPv6 here
            for each in found:
                each.close()
            what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror}"
            raise UsageError(f"Port {port} of {name} {what}. Choose another with --port.") from None
        port = found[0].getsockname()[1]
    return found


def check_certificate(place: Address) -> None:
    """UsageError if no https can be spoken with what was given; asked before anything is told to be there."""
    if place.certificate is None:
        return
    try:
        # Asked without a terminal, where a server starts: an empty password opens no key that has one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(place.certificate, place.private_key, password="")
    except OSError as error:
        detail = _TLS_ERRORS.get(str(getattr(error, "reason", None)), error.strerror or str(error))
        raise UsageError(
            f"No https with --tls-cert {place.certificate} and --tls-key {place.private_key}: {detail}."
        ) from error


def _bound(name: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    # With its protocol said: only then does asyncio let small answers go at once (TCP_NODELAY). Otherwise an answer in
    # two parts waits some 40 ms for the client to acknowledge the first.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((name, port))
        made.listen(128)
    except BaseException:
        made.close()
        raise
    return made


def _unix(path: str) -> socket.socket:
    """A socket that its owner alone can connect to, from its first moment on."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise UsageError(f"{path} is there, and is no socket.")
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
            probe.connect(path)
            raise UsageError(f"Somebody listens on {path} already.")
        os.unlink(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        made.bind(path)
    except OSError as error:
        made.close()
        raise UsageError(f"{path} cannot be had: {error.strerror}.") from None
    finally:
        os.umask(mask)
    made.listen(128)
    return made


class _Server(uvicorn.Server):
    """Leaves signals to whoever started it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(H11Protocol):
    """Waits for the headers of a request, but not for ever."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch(ends=True)

    def _watch(self, *, ends: bool = False) -> None:
        is_busy = self.cycle is not None and not self.cycle.response_complete
        if ends or is_busy:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None
        elif self._waiting is None:
            self._waiting = self.loop.call_later(_HEADERS_S, self._give_up)

    def _give_up(self) -> None:
        self._waiting = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class Serving:
    """A server that goes on until it is told to stop."""

    def __init__(self, api: FastAPI, place: Address) -> None:
        service: Service = api.state.service
        self._live = service.live
        self._server = _Server(
            uvicorn.Config(
                api,
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_LEAVE_S,
                ssl_certfile=place.certificate,
                ssl_keyfile=place.private_key,
            )
        )

    def stop(self) -> None:
        """Let those who listen go, answer what is under way, and end; told again, end at once."""
        self._server.force_exit = self._server.should_exit
        self._server.should_exit = True
        self._live.close()

    async def serve(self, sockets: list[socket.socket], ready: Callable[[], None], *, on_signals: bool) -> None:
        """Answer until stopped; with `on_signals`, by SIGINT or SIGTERM. `ready`: who comes from now on is answered."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM) if on_signals else ()
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        try:
            ready()
            await self._server.serve(sockets)
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
            for each in sockets:
                each.close()
