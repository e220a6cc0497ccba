"""Starting a server as `holdfast serve` is told to: what may be combined, who is let in, where it listens."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from holdfast.app.app import Holdfast
from holdfast.app.options import AppOptions
from holdfast.base.data import data
from holdfast.errors import UsageError
from holdfast.server.asgi import create_app
from holdfast.server.security.access import Access
from holdfast.server.security.hooks import Hooks
from holdfast.server.security.hosts import Hosts
from holdfast.server.security.proxies import Proxies
from holdfast.server.security.tokens import token_in, token_path
from holdfast.server.security.users import Users
from holdfast.server.serving import Address, Serving, check_certificate, sockets_at


@data
class Wishes:
    """What somebody wants of a server."""

    url: str
    place: Address
    hosts: tuple[str, ...] = ()
    token_file: Path | None = None
    users_file: Path | None = None
    hooks_file: Path | None = None
    auth_header: str = ""
    trusted_proxies: tuple[str, ...] = ()
    is_behind_proxy: bool = False
    is_read_only: bool = False

    def check(self) -> None:
        """Refuse what would let others in, or cannot work; the reason is a sentence."""
        place = self.place
        if (place.certificate is None) != (place.private_key is None):
            raise UsageError("--tls-cert and --tls-key go together.")
        if place.uds is not None and (place.bind is not None or place.certificate is not None):
            raise UsageError("--uds is a socket of this host: it takes neither --bind nor TLS.")
        if bool(self.auth_header) != bool(self.trusted_proxies):
            raise UsageError(
                "--auth-header and --trusted-proxy go together: whoever may send that header may be anybody."
            )
        if not place.is_open:
            return
        if self.token_file is None and self.users_file is None and not self.auth_header:
            raise UsageError(
                f"--bind {place.bind} can be reached from other hosts: say who may come, with --users or --token-file."
            )
        if not self.is_behind_proxy and place.certificate is None:
            raise UsageError(
                f"--bind {place.bind} can be reached from other hosts, and tokens would cross the network in clear: "
                "give --tls-cert and --tls-key, or --behind-proxy if a proxy speaks https."
            )
        if place.is_everywhere and not self.hosts:
            raise UsageError(f"--bind {place.bind} needs --host NAME: requests under other names are refused.")


class Launch:
    """A server that listens already; nobody is answered yet."""

    def __init__(self, wishes: Wishes) -> None:
        wishes.check()
        place = wishes.place
        self._wishes = wishes
        self.token_file = wishes.token_file or token_path(wishes.url)
        token = token_in(self.token_file)
        users = None if wishes.users_file is None else Users(wishes.users_file)
        proxies = Proxies.of(wishes.trusted_proxies, header=wishes.auth_header)
        name = _bracketed(place.bind) if place.bind is not None and not place.is_everywhere else "127.0.0.1"
        Hosts.of(wishes.hosts, port=None)  # before anything is bound
        check_certificate(place)
        self._sockets: list[socket.socket] = sockets_at(place)
        port = None if place.uds is not None else int(self._sockets[0].getsockname()[1])
        own = [f"{name}:{port}"] if place.is_open else []
        self._access = Access(
            token=token,
            hosts=Hosts.of([*wishes.hosts, *own], port=port),
            users=users,
            proxies=proxies,
            is_https=wishes.is_behind_proxy or place.certificate is not None,
            is_read_only=wishes.is_read_only,
            hooks=Hooks() if wishes.hooks_file is None else Hooks.in_file(wishes.hooks_file),
            port=port,
        )
        scheme = "http" if place.certificate is None else "https"
        #: Where it is, with the token where no log sees it.
        self.shown = f"unix:{place.uds}" if place.uds is not None else f"{scheme}://{name}:{port}/#t={token}"

    async def run(self, ready: Callable[[], None], *, beside: Coroutine[Any, Any, int] | None = None) -> int:
        """Answer until a signal comes, or until what runs `beside` ends; its exit code.

        `ready` is called once it answers, and ends in good order when it is told to.
        """
        wishes = self._wishes
        app = Holdfast(wishes.url, AppOptions(reads_only=wishes.is_read_only))
        async with app:
            serving = Serving(create_app(app, access=self._access), wishes.place)
            gc.freeze()  # what is loaded by now stays: looking through it took half of the first look at a long run
            if beside is None:
                await serving.serve(self._sockets, ready, on_signals=True)
                return 0
            other = asyncio.create_task(beside)  # it hears the signals
            other.add_done_callback(lambda task: serving.stop())
            await asyncio.sleep(0)
            await serving.serve(self._sockets, ready, on_signals=False)
            return await other


def _bracketed(address: str) -> str:
    return f"[{address.strip('[]')}]" if ":" in address else address
