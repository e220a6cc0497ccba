"""The app: gate, routes, and what they are told."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from holdfast.app import Holdfast
from holdfast.server.acts import Acts, owner
from holdfast.server.console.files import Console, Files
from holdfast.server.document import bare, document, parameters
from holdfast.server.feed import StoreFeed
from holdfast.server.gate import Gate
from holdfast.server.live import Live
from holdfast.server.paths import shown_path
from holdfast.server.problems import Problem, of_status
from holdfast.server.reads import Reads
from holdfast.server.security.access import Access
from holdfast.server.security.doors import Doors
from holdfast.server.security.links import Links
from holdfast.server.service import Service


def create_app(app: Holdfast, *, access: Access | None = None) -> FastAPI:
    """The console and the HTTP API of an app's store, to be served, or mounted in an app of yours under any prefix.

    The app has to be open while requests come, on the same event loop. Without `access` the token of the store lets
    people in, under the names of this host itself.

    Example: `web.mount("/holdfast", create_app(app))`
    """
    access = access or Access.of_store(app.url)
    reads = Reads(app)
    doors = Doors(access, owner=owner())
    api = bare()
    api.openapi = document  # type: ignore[method-assign]
    api.state.parameters = parameters()  # here, and not while others wait for the loop
    api.state.service = Service(
        access, doors, reads, Acts(app, reads), Live(StoreFeed(app, reads)), Links(access.token), asyncio.Lock()
    )
    console = Console(Files.read(), is_read_only=access.is_read_only)
    api.add_middleware(Gate, access=access, doors=doors, console=console)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _refused)
    return api


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = of_status(error.status_code)
    problem.headers = {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
    return problem.response(shown_path(request.scope))


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    errors = [{"path": _place(each["loc"]), "message": _message(each)} for each in found[:20]]
    kinds = {each["type"] for each in found}
    if "json_invalid" in kinds:
        kind = "invalid_json"
    elif "extra_forbidden" in kinds:
        kind = "unknown_parameter"
    else:
        kind = "invalid_parameter"
    return Problem(kind, errors=errors).response(shown_path(request.scope))


def _message(error: Any) -> str:
    if error["type"] == "missing" and tuple(error["loc"]) == ("body",):
        return "A body in JSON is required, {} at least"
    return str(error["msg"])


def _place(loc: Any) -> str:
    return ".".join(str(part) for part in loc if part not in ("body", "query", "header", "path"))
