"""/runs/{run}/streams: what its bodies write while they work."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from holdfast.server.answers import Answer
from holdfast.server.api.run import GONE, RunPath, check_payloads
from holdfast.server.output_shapes import StreamEvents, Streams
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, Who, needs, tagged

router = APIRouter(tags=["streams"])


@router.get("/runs/{run:id}/streams", response_model=Streams, summary="Its streams", **needs(Role.viewer, *GONE))
async def list_streams(request: Request, parts: Parts, run: RunPath) -> Response:
    row = await parts.reads.row(run)
    return tagged(request, row, {"items": parts.reads.outputs.streams(row)})


@router.get(
    "/runs/{run:id}/streams/{name:id}",
    response_model=StreamEvents,
    summary="The events of a stream",
    **needs(Role.viewer, *GONE, "no_such_stream", "role", "quarantined"),
)
async def list_stream_events(
    parts: Parts,
    person: Who,
    run: RunPath,
    name: Annotated[str, Path(max_length=200, examples=["output"])],
    after: Annotated[
        int | None, Query(ge=0, lt=2**62, description="The last event that you have; without it, from the last reset.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    check_payloads(parts, person)
    row = await parts.reads.row(run)
    return Answer(await parts.reads.outputs.events(row, name, after=after, limit=limit))
