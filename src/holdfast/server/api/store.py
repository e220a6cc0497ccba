"""GET /store and GET /health."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from holdfast.server.answers import Answer
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, known_parameters, needs, told
from holdfast.server.shapes import Health, StoreShape

router = APIRouter(tags=["store"])


@router.get("/store", response_model=StoreShape, summary="What the store is", **needs(Role.viewer))
async def show_store(parts: Parts) -> Response:
    return Answer(await parts.reads.store())


@router.get(
    "/health",
    response_model=Health,
    summary="Whether this process answers; needs no credential and tells no facts",
    dependencies=[Depends(known_parameters)],
    responses=told(["unknown_parameter", "wrong_host"]),
    openapi_extra={"security": []},
)
async def health() -> Response:
    return Answer({"is_alive": True})
