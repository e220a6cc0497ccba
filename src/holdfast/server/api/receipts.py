"""/runs/{run}/receipts: what each resume saved, and what had changed meanwhile."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from holdfast.server.api.run import GONE, RunPath
from holdfast.server.output_shapes import Receipts
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, needs, tagged

router = APIRouter(tags=["receipts"])


@router.get(
    "/runs/{run:id}/receipts",
    response_model=Receipts,
    summary="What each resume saved, and what had changed meanwhile",
    **needs(Role.viewer, *GONE, "quarantined"),
)
async def list_receipts(request: Request, parts: Parts, run: RunPath) -> Response:
    row = await parts.reads.row(run)
    return tagged(request, row, {"items": await parts.reads.outputs.receipts(row)})
