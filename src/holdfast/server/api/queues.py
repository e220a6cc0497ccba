"""/queues: how full they are, and their limits."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from holdfast.server.answers import Answer
from holdfast.server.security.people import Role
from holdfast.server.service import Body, Key, Noted, Parts, Who, act_of, needs
from holdfast.server.shapes import Done, Listed

router = APIRouter(tags=["queues"])
Name = Annotated[str, Path(max_length=200, examples=["mail"])]
Limit = Annotated[int, Field(ge=1, lt=2**31)]


@router.get("/queues", response_model=Listed, summary="The queues that are declared", **needs(Role.viewer))
async def list_queues(parts: Parts) -> Response:
    return Answer({"items": await parts.reads.queues()})


@router.post("/queues/{name:id}/pause", response_model=Done, summary="Take nothing from it", **needs(Role.operator))
async def pause_queue(parts: Parts, person: Who, name: Name, body: Noted, key: Key = None) -> Response:
    await parts.acts.pause_queue(name, act_of(person, body, key))
    return Answer({"what": "paused"})


@router.post("/queues/{name:id}/resume", response_model=Done, summary="Take from it again", **needs(Role.operator))
async def resume_queue(parts: Parts, person: Who, name: Name, body: Noted, key: Key = None) -> Response:
    await parts.acts.resume_queue(name, act_of(person, body, key))
    return Answer({"what": "resumed"})


class Rate(Body):
    """Starts in a time."""

    starts: Limit
    seconds: Annotated[float, Field(gt=0, le=31_536_000)]


class LimitsBody(Noted):
    """All limits of a queue; one that is left out is none."""

    concurrency: Limit | None = Field(None, description="Runs at once, by all workers together.")
    per_key: Limit | None = Field(None, description="Runs at once of each key.")
    rate: Rate | None = None


@router.put("/queues/{name:id}", response_model=Done, summary="Set its limits", **needs(Role.admin))
async def limit_queue(parts: Parts, person: Who, name: Name, body: LimitsBody) -> Response:
    rate = None if body.rate is None else (body.rate.starts, body.rate.seconds)
    act = act_of(person, body, None)
    await parts.acts.limit_queue(name, act, concurrency=body.concurrency, per_key=body.per_key, rate=rate)
    return Answer({"what": "set"})
