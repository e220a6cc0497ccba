"""/runs/{run}/checkpoints, /state, /diff: with which state each turn began."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from holdfast.server.api.run import GONE, Number, RunPath, check_payloads
from holdfast.server.output_shapes import Checkpoints, Difference, State
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, Who, needs, tagged

router = APIRouter(tags=["states"])
Turn = Annotated[int, Query(ge=1, lt=2**31)]


@router.get("/runs/{run:id}/checkpoints", response_model=Checkpoints, summary="Its turns", **needs(Role.viewer, *GONE))
async def list_checkpoints(
    request: Request, parts: Parts, run: RunPath, after: Number = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> Response:
    row = await parts.reads.row(run)
    items, following = await parts.reads.outputs.checkpoints(row, after=after, limit=limit)
    return tagged(request, row, {"items": items, "next": following})


@router.get(
    "/runs/{run:id}/state",
    response_model=State,
    summary="With which state a turn began",
    **needs(Role.viewer, *GONE, "no_such_turn", "role", "quarantined"),
)
async def show_state(
    request: Request,
    parts: Parts,
    person: Who,
    run: RunPath,
    turn: Annotated[int | None, Query(ge=1, lt=2**31, description="Without it the last one.")] = None,
) -> Response:
    check_payloads(parts, person)
    row = await parts.reads.row(run)
    return tagged(request, row, await parts.reads.outputs.state(row, turn))


@router.get(
    "/runs/{run:id}/diff",
    response_model=Difference,
    summary="What differs between the states of two turns",
    **needs(Role.viewer, *GONE, "no_such_turn", "role", "quarantined"),
)
async def show_difference(request: Request, parts: Parts, person: Who, run: RunPath, a: Turn, b: Turn) -> Response:
    check_payloads(parts, person)
    row = await parts.reads.row(run)
    return tagged(request, row, await parts.reads.outputs.difference(row, a, b))
