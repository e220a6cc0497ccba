"""/looks/{name}: what the store has, as it is stored; for the command line (`--url`)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from holdfast.errors import CorruptJournal, StoreCorrupt, UsageError
from holdfast.server.answers import Answer
from holdfast.server.api.run import check_payloads
from holdfast.server.problems import Problem
from holdfast.server.security.people import Role
from holdfast.server.service import Body, Parts, Who, needs
from holdfast.server.shapes import Looked
from holdfast.store.looks import look_of

router = APIRouter(tags=["store"])


class LookBody(Body):
    """What is looked for."""

    given: dict[str, Any] = Field(default_factory=dict, examples=[{"run_id": "report-7"}])


@router.post(
    "/looks/{name}",
    response_model=Looked,
    summary="Rows as they are stored, for a `holdfast` of the same version; nothing is changed",
    **needs(
        Role.viewer,
        "role",
        "origin",
        "not_json",
        "invalid_json",
        "too_large",
        "no_such_page",
        "quarantined",
        "store_damaged",
    ),
)
async def look(
    parts: Parts, person: Who, name: Annotated[str, Path(max_length=100, examples=["run"])], body: LookBody
) -> Response:
    check_payloads(parts, person)
    try:
        wanted = look_of(name)
    except UsageError as error:
        raise Problem("no_such_page", str(error)) from None
    given = wanted.read(body.given)
    try:
        async with parts.verifying if name == "check" else nullcontext():
            found = await parts.reads.look(wanted, given)
    except CorruptJournal as error:
        raise Problem("quarantined", str(error), run=error.run_id, seq=error.seq) from None
    except StoreCorrupt as error:
        raise Problem("store_damaged", str(error)) from None
    return Answer({"result_json": found})
