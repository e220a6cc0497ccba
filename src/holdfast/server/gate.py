"""What every request passes, in this order: the host, who it is, where it comes from, its body. Then its route.

The files of the console are given to anybody who names the right host: there is nothing of the store in them.

Whatever is refused, or fails, is answered here with the headers that every response has.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.server.console.files import Console
from holdfast.server.paths import check_path, shown_path
from holdfast.server.problems import Problem, problem_of
from holdfast.server.security.access import Access
from holdfast.server.security.bodies import bounded_file, check_json, check_type, read_body, replayed
from holdfast.server.security.doors import Doors
from holdfast.server.security.headers import with_defaults
from holdfast.server.security.origins import SAFE, foreign

SESSION: Final = "/session"
HEALTH: Final = "/api/v1/health"
HOOKS: Final = "/hooks/"
LINKS: Final = "/q/"
_FILE: Final = re.compile(r"/api/v1/runs/.+/artifacts/.+")  #: what takes the bytes of a file, not JSON
#: Where the person stands in the scope of a request that was let in.
PERSON: Final = "holdfast.person"
_log = logging.getLogger("holdfast.server")


class Gate:
    """The middleware around all routes."""

    def __init__(self, app: ASGIApp, *, access: Access, doors: Doors, console: Console) -> None:
        self._app = app
        self._console = console
        self._access = access
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def dressed(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message = {**message, "headers": with_defaults(list(message.get("headers", [])))}
            await send(message)

        try:
            self._check_host(scope)
            if self._console.has(scope["method"], _route_path(scope)):
                await self._console(scope, receive, dressed)
                return
            inner = await self._admit(scope, receive)
            await self._app(scope, inner, dressed)
        except Exception as error:  # the last place that can tell the client
            if has_begun:
                raise
            problem = _told(error)
            if problem.status >= 500 and problem.kind == "internal":
                _log.exception("%s %s failed", scope["method"], ascii(shown_path(scope)[:200]))
            await problem.response(shown_path(scope))(scope, receive, dressed)

    def _check_host(self, scope: Scope) -> None:
        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) != 1 or not self._access.hosts.allow(hosts[0]):
            raise Problem("wrong_host", "It is localhost, 127.0.0.1, [::1], and what --host names.")

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Check a request; what its route reads its body from."""
        headers = _single(Headers(scope=scope))
        method, path, peer = scope["method"], _route_path(scope), _peer(scope)
        check_path(scope)
        if (method, path) == ("GET", HEALTH):
            return receive
        if method == "POST" and path.startswith(HOOKS):  # signed: whoever sends it has no browser
            return replayed(await read_body(receive, headers), receive)
        is_link = path.startswith(LINKS)
        if is_link and method in SAFE:
            return receive
        is_sign_in = (path == SESSION or is_link) and method == "POST"
        has_token = "authorization" in headers
        is_ambient = False
        if not is_sign_in:
            person = await self._doors.person(headers, peer)
            scope[PERSON] = person
            is_ambient = person.is_ambient
        if method in SAFE:
            return receive
        if (why := foreign(headers, has_token=has_token or is_sign_in, is_ambient=is_ambient)) is not None:
            raise Problem("origin", why)
        if method == "PUT" and _FILE.fullmatch(path):
            return bounded_file(receive, headers)
        check_type(method, headers)
        body = await read_body(receive, headers)
        check_json(body)
        return replayed(body, receive)


def _told(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    return problem_of(error) if isinstance(error, HoldfastError) else Problem("internal")


def _single(given: Headers) -> Mapping[str, str]:
    """Each header once; what comes twice, and decides who somebody is, is refused."""
    for name in ("authorization", "origin", "content-type", "sec-fetch-site"):
        if len(given.getlist(name)) > 1:
            raise Problem("invalid_parameter", f"There is more than one header {name}.")
    return {name: "; ".join(given.getlist(name)) if name == "cookie" else given[name] for name in given}


def _path(scope: Scope) -> str:
    return str(scope["path"])


def _route_path(scope: Scope) -> str:
    """The path below where the app is mounted."""
    return _path(scope).removeprefix(scope.get("root_path", ""))


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "local"
