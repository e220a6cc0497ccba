"""GET /activity: what people did."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from holdfast.server.answers import Answer
from holdfast.server.pages import LIMIT, MOST, cursor_of, position_in
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, When, needs
from holdfast.server.shapes import ActPage

router = APIRouter(tags=["activity"])


@router.get(
    "/activity",
    response_model=ActPage,
    summary="What people did, newest first",
    **needs(Role.viewer, "cursor_does_not_fit"),
)
async def list_acts(
    parts: Parts,
    run: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    by: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    since: Annotated[When | None, Query(description="At or after.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    filters = {"activity": True, "run": run, "by": by, "since": since}
    after = position_in(cursor, filters)
    items, last = await parts.reads.acts(run=run, by=by, since=since, limit=limit, after=after)
    return Answer({"items": items, "next": None if last is None else cursor_of(last, filters)})
