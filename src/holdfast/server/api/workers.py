"""GET /workers: the processes that execute runs."""

from __future__ import annotations

from fastapi import APIRouter, Response

from holdfast.server.answers import Answer
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, needs
from holdfast.server.shapes import Listed

router = APIRouter(tags=["workers"])


@router.get("/workers", response_model=Listed, summary="The processes that execute runs", **needs(Role.viewer))
async def list_workers(parts: Parts) -> Response:
    return Answer({"items": await parts.reads.workers()})
