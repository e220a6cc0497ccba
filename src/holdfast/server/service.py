"""What routes are given: the parts of the server, who asks, and what a route needs of them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from holdfast.base.data import data
from holdfast.model import RunRow
from holdfast.server.acts import Act, Acts
from holdfast.server.answers import Answer
from holdfast.server.gate import PERSON
from holdfast.server.live import Live
from holdfast.server.objects import etag_of
from holdfast.server.problems import KINDS, Problem
from holdfast.server.reads import Reads
from holdfast.server.security.access import Access
from holdfast.server.security.doors import Doors
from holdfast.server.security.links import Links
from holdfast.server.security.people import Person, Role

ROLE: Final = "x-role"


@data
class Service:
    """The parts."""

    access: Access
    doors: Doors
    reads: Reads
    acts: Acts
    live: Live
    links: Links
    verifying: asyncio.Lock  #: it reads every byte of a run: one at a time


async def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def person_of(request: Request) -> Person:
    found: Person = request.scope[PERSON]
    return found


Parts = Annotated[Service, Depends(service_of)]
Who = Annotated[Person, Depends(person_of)]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[ -~]+$",
        description="The same request again, with the same key, changes nothing and gets the same answer.",
    ),
]


def _when(given: object) -> datetime:
    """A time as RFC 3339 has it; a number, or a time without a zone, is none."""
    try:
        found = datetime.fromisoformat(given) if isinstance(given, str) and "T" in given else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or not 1971 <= found.year <= 9990:
        raise ValueError("not a time with a time zone, such as 2026-11-16T10:00:00Z")
    return found


When = Annotated[datetime, BeforeValidator(_when), Field(examples=["2026-11-16T10:00:00Z"])]


class Body(BaseModel):
    """A body; what is not known in it is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Noted(Body):
    """What every act takes."""

    note: str = Field("", max_length=2000, description="Why; kept with what is done.")


#: Why something is removed: a DELETE has no body.
DeleteNote = Annotated[str, Query(max_length=2000, description="Why; kept with what is done.", alias="note")]


def act_of(person: Person, body: Noted, key: str | None) -> Act:
    return Act(person, body.note, key)


# what a route needs


def needs(role: Role, *problems: str, also: dict[int | str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """For a route's decorator: who may use it, and the problems that it may answer with; `also`: other answers.

    What needs more than a viewer changes something, so a server that is read-only refuses it.
    """
    does_change = role is not Role.viewer

    async def check(parts: Parts, person: Who) -> None:
        if not person.role.may(role):
            raise Problem("role", f"It needs the role {role}; {person.name} is {person.role}.")
        if does_change and parts.access.is_read_only:
            raise Problem("read_only")

    common = ["unknown_parameter", "invalid_parameter", "sign_in", "wrong_host", "rate", "busy"]
    if role is not Role.viewer:
        common += ["role"]
    if does_change:
        common += ["read_only", "origin", "too_large", "not_json", "invalid_json"]
    return {
        "dependencies": [Depends(check), Depends(known_parameters)],
        "openapi_extra": {ROLE: role.value},
        "responses": told([*common, *problems]) | (also or {}),
    }


def told(kinds: list[str]) -> dict[int | str, dict[str, Any]]:
    """What the documentation says of problems, by status."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in dict.fromkeys(kinds):
        status, title = KINDS[kind]
        entry = found.setdefault(status, {"description": "", "content": {"application/problem+json": {"examples": {}}}})
        entry["description"] = ", ".join(part for part in (entry["description"], f"`{kind}`: {title}") if part)
        media = entry["content"]["application/problem+json"]
        media["schema"] = {"$ref": "#/components/schemas/Problem"}
        media["examples"][kind] = {"$ref": f"#/components/examples/{kind}"}
    return found


async def known_parameters(request: Request) -> None:
    """Refuse a parameter that the route does not have, or has once: a filter that is ignored shows too much."""
    if not request.query_params:
        return
    known: dict[str, bool] = request.app.state.parameters[request.scope["route"].name]
    for name in request.query_params:
        if name not in known:
            raise Problem("unknown_parameter", f"There is no parameter {name[:100]!r} here.", parameter=name[:100])
        if len(request.query_params.getlist(name)) > 1 and not known[name]:
            raise Problem("invalid_parameter", f"{name!r} is given more than once.", parameter=name)


# answers


def tagged(request: Request, row: RunRow, content: Any) -> Response:
    """An answer about a run; 304 if the client has it."""
    tag = etag_of(row)
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return Answer(content, headers={"etag": tag})
