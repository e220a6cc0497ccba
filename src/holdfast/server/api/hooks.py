"""POST /hooks/{hook}: what other services deliver, as events."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from holdfast.control.acting import actor
from holdfast.errors import ConflictingSend
from holdfast.server.answers import Answer
from holdfast.server.problems import Problem
from holdfast.server.service import Parts, known_parameters, told
from holdfast.server.shapes import Emitted

router = APIRouter(tags=["hooks"])


@router.post(
    "/hooks/{hook}",
    response_model=Emitted,
    status_code=202,
    summary="Take a signed delivery, and emit its event; a second one with the same id changes nothing",
    dependencies=[Depends(known_parameters)],
    openapi_extra={"security": []},
    responses=told(
        ["unknown_parameter", "invalid_json", "signature", "read_only", "too_large", "wrong_host", "rate", "store_full"]
    ),
)
async def take_delivery(
    request: Request, parts: Parts, hook: Annotated[str, Path(max_length=200, examples=["shop"])]
) -> Response:
    body = await request.body()
    peer = request.client.host if request.client is not None else "local"
    with parts.doors.counted(request.headers, peer):
        found, mark = parts.access.hooks.check(hook, request.headers, body)
    if parts.access.is_read_only:
        raise Problem("read_only")
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Problem("invalid_json") from None
    try:
        event = await parts.acts.deliver(found.event, value, dedup=f"hook:{hook}:{mark}", by=actor(f"hook {hook}"))
    except ConflictingSend as known:  # the id was used before: whatever it says now, it was taken then
        event = known.known
    return Answer({"id": event}, 202)
