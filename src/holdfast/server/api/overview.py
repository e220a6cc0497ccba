"""GET /overview: what the first screen shows."""

from __future__ import annotations

from fastapi import APIRouter, Response

from holdfast.server.answers import Answer
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, needs
from holdfast.server.shapes import Overview

router = APIRouter(tags=["overview"])


@router.get("/overview", response_model=Overview, summary="What needs you, counts, workers", **needs(Role.viewer))
async def overview(parts: Parts) -> Response:
    return Answer(await parts.reads.overview())
