"""The routes of the API, and the OpenAPI document about them."""

from __future__ import annotations

import functools
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast.server.api import (
    acting,
    activity,
    artifacts,
    bulk,
    checkpoints,
    events,
    forks,
    hooks,
    in_doubt,
    links,
    looks,
    overview,
    plans,
    questions,
    queues,
    receipts,
    retention,
    run,
    runs,
    schedules,
    session,
    store,
    stream,
    streams,
    threads,
    triggers,
    workers,
)
from holdfast.server.problems import KINDS
from holdfast.version import VERSION

PREFIX: Final = "/api/v1"
TITLE: Final = "Holdfast"
ABOUT: Final = """Runs of a Holdfast store: what they do, and what people do to them.

JSON in and out; times are RFC 3339 in UTC, durations in seconds; ids are opaque and percent-encoded in paths. A
parameter or field that is not known is refused. Stored values are JSON *text* in fields named `json` or `…_json`.
Who acts comes from the credential. Roles: viewer looks, operator acts, admin changes definitions (`x-role`).
"""

#: What has a fixed name comes before what has an id in its place.
_RESOURCES: Final = (
    overview, runs, bulk, run, acting, checkpoints, artifacts, streams, plans, receipts, forks, threads, questions,
    in_doubt, schedules, triggers, events, queues, workers, activity, retention, store, looks, stream,
)  # fmt: skip

_PROBLEM: Final = {
    "title": "Problem",
    "type": "object",
    "required": ["type", "title", "status", "instance"],
    "properties": {
        "type": {"type": "string", "enum": [f"/problems/{kind}" for kind in KINDS]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
    },
}


def bare() -> FastAPI:
    """An app with the routes, and with nothing that they need."""
    api = FastAPI(
        title=TITLE,
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for each in _RESOURCES:
        api.include_router(each.router, prefix=PREFIX)
    for each in (session, links, hooks):
        api.include_router(each.router)
    return api


@functools.cache
def document() -> dict[str, Any]:
    """The OpenAPI document; it takes a while to make, and is the same for every app."""
    found = get_openapi(title=TITLE, version=VERSION, description=ABOUT, routes=bare().routes)
    parts = found.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = _PROBLEM
    parts["examples"] = {
        kind: {"value": {"type": f"/problems/{kind}", "title": title, "status": status, "instance": f"{PREFIX}/…"}}
        for kind, (status, title) in KINDS.items()
    }
    parts["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"bearer": []}]
    for operation in _operations(found):
        # FastAPI says 422 of every route with parameters; ours is said by those that have it.
        if "application/json" in operation["responses"].get("422", {}).get("content", {}):
            del operation["responses"]["422"]
    return found


@functools.cache
def parameters() -> dict[str, dict[str, bool]]:
    """The parameters of each operation, and whether they may be repeated."""
    return {
        operation["operationId"]: {
            each["name"]: each["schema"].get("type") == "array"
            for each in operation.get("parameters", [])
            if each["in"] == "query"
        }
        for operation in _operations(document())
    }


def _operations(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in found["paths"].values() for operation in path.values()]
