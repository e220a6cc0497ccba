"""/schedules: what starts runs at given times."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from holdfast.server.acts import Act
from holdfast.server.answers import Answer
from holdfast.server.api.runs import KNOWN
from holdfast.server.security.people import Role
from holdfast.server.service import DeleteNote, Key, Noted, Parts, When, Who, act_of, needs
from holdfast.server.shapes import Backfilled, Done, Listed, RunShape

router = APIRouter(tags=["schedules"])
Name = Annotated[str, Path(max_length=200, examples=["nightly"])]
_UNKNOWN = "no_such_schedule"


@router.get("/schedules", response_model=Listed, summary="The schedules", **needs(Role.viewer))
async def list_schedules(parts: Parts) -> Response:
    return Answer({"items": await parts.reads.schedules()})


@router.post("/schedules/{name:id}/pause", response_model=Done, summary="Pause one", **needs(Role.operator, _UNKNOWN))
async def pause_schedule(parts: Parts, person: Who, name: Name, body: Noted, key: Key = None) -> Response:
    await parts.acts.pause_schedule(name, act_of(person, body, key))
    return Answer({"what": "paused"})


@router.post(
    "/schedules/{name:id}/resume", response_model=Done, summary="Have it go on", **needs(Role.operator, _UNKNOWN)
)
async def resume_schedule(parts: Parts, person: Who, name: Name, body: Noted, key: Key = None) -> Response:
    await parts.acts.resume_schedule(name, act_of(person, body, key))
    return Answer({"what": "resumed"})


@router.post(
    "/schedules/{name:id}/run",
    response_model=RunShape,
    status_code=201,
    summary="Start a run of it now",
    **needs(Role.operator, _UNKNOWN, also=KNOWN),
)
async def run_schedule(parts: Parts, person: Who, name: Name, body: Noted, key: Key = None) -> Response:
    row, is_new = await parts.acts.fire_schedule(name, act_of(person, body, key))
    return Answer(await parts.reads.object(row), 201 if is_new else 200)


class BackfillBody(Noted):
    """A range of the past."""

    from_: When = Field(alias="from")
    to: When


@router.post(
    "/schedules/{name:id}/backfill",
    response_model=Backfilled,
    summary="Start a run for each time that has none",
    **needs(Role.operator, _UNKNOWN),
)
async def backfill(parts: Parts, person: Who, name: Name, body: BackfillBody, key: Key = None) -> Response:
    started = await parts.acts.backfill(name, act_of(person, body, key), start=body.from_, end=body.to)
    return Answer({"runs": started})


@router.delete("/schedules/{name:id}", response_model=Done, summary="Forget one", **needs(Role.admin, _UNKNOWN))
async def remove_schedule(parts: Parts, person: Who, name: Name, note: DeleteNote = "") -> Response:
    await parts.acts.remove_schedule(name, Act(person, note))
    return Answer({"what": "removed"})
