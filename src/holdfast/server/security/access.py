"""How a server is reached and by whom: what `holdfast serve` is told, and what `create_app` takes."""

from __future__ import annotations

from dataclasses import field

from holdfast.base.data import data
from holdfast.server.security.hooks import Hooks
from holdfast.server.security.hosts import Hosts
from holdfast.server.security.proxies import Proxies
from holdfast.server.security.tokens import token_in, token_path
from holdfast.server.security.users import Users


@data
class Access:
    """Who may ask, and under which names of this host.

    Without users the token of the store is all there is: whoever has it is the user of this process, and admin.

    Example: `create_app(app, access=Access.of_store(app.url, hosts=["agents.example.org"]))`
    """

    token: str | None  #: of the store; None: only users, or those whom a proxy names
    hosts: Hosts
    users: Users | None = None
    proxies: Proxies = field(default_factory=Proxies)
    is_https: bool = False  #: to browsers, though a proxy in front may speak http to us
    is_read_only: bool = False
    hooks: Hooks = field(default_factory=Hooks)  #: who may deliver webhooks
    port: int | None = None  #: for the cookie's name: those of two servers on one host must differ

    @classmethod
    def of_store(cls, url: str, *, hosts: list[str] | tuple[str, ...] = (), is_read_only: bool = False) -> Access:
        """The token of a store, and its file if that is missing; for an app that is mounted in another one."""
        return cls(token=token_in(token_path(url)), hosts=Hosts.of(hosts, port=None), is_read_only=is_read_only)
