"""/threads: what was said in them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from holdfast.server.answers import Answer
from holdfast.server.api.run import Number, may_read_payloads
from holdfast.server.output_shapes import Messages, Threads
from holdfast.server.pages import LIMIT, MOST, Position, cursor_of, position_in
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, Who, needs

router = APIRouter(tags=["threads"])


@router.get(
    "/threads", response_model=Threads, summary="Threads, by their ids", **needs(Role.viewer, "cursor_does_not_fit")
)
async def list_threads(
    parts: Parts,
    prefix: Annotated[str | None, Query(min_length=1, max_length=200, description="How the id begins.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    filters = {"threads": True, "prefix": prefix}
    after = position_in(cursor, filters)
    items, last = await parts.reads.outputs.threads(
        prefix=prefix or "", after="" if after is None else after.id, limit=limit
    )
    return Answer({"items": items, "next": None if last is None else cursor_of(Position(0, last), filters)})


@router.get(
    "/threads/{thread:id}/messages",
    response_model=Messages,
    summary="What was said in a thread, in order",
    **needs(Role.viewer, "no_such_thread"),
)
async def list_messages(
    parts: Parts,
    person: Who,
    thread: Annotated[str, Path(max_length=200, examples=["chat-7"])],
    after: Number = 0,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
) -> Response:
    items, following = await parts.reads.outputs.messages(
        thread, after=after, limit=limit, has_values=may_read_payloads(parts, person)
    )
    return Answer({"items": items, "next": following})
