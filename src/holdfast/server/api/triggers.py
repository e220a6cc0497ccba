"""/triggers: what starts runs when something happens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from holdfast.server.acts import Act
from holdfast.server.answers import Answer
from holdfast.server.security.people import Role
from holdfast.server.service import DeleteNote, Key, Noted, Parts, Who, act_of, needs
from holdfast.server.shapes import Done, Listed, TriggerLog

router = APIRouter(tags=["triggers"])
Name = Annotated[str, Path(max_length=200, examples=["orders"])]
_UNKNOWN = "no_such_trigger"


@router.get("/triggers", response_model=Listed, summary="The triggers", **needs(Role.viewer))
async def list_triggers(parts: Parts) -> Response:
    return Answer({"items": await parts.reads.triggers()})


@router.get(
    "/triggers/{name:id}/log", response_model=TriggerLog, summary="What one did lately", **needs(Role.viewer, _UNKNOWN)
)
async def show_log(parts: Parts, name: Name) -> Response:
    return Answer(await parts.reads.trigger_log(name))


@router.post("/triggers/{name:id}/pause", response_model=Done, summary="Pause one", **needs(Role.operator, _UNKNOWN))
async def pause_trigger(parts: Parts, person: Who, name: Name, body: Noted, key: Key = None) -> Response:
    await parts.acts.pause_trigger(name, act_of(person, body, key))
    return Answer({"what": "paused"})


@router.post(
    "/triggers/{name:id}/resume", response_model=Done, summary="Have it go on", **needs(Role.operator, _UNKNOWN)
)
async def resume_trigger(parts: Parts, person: Who, name: Name, body: Noted, key: Key = None) -> Response:
    await parts.acts.resume_trigger(name, act_of(person, body, key))
    return Answer({"what": "resumed"})


@router.delete("/triggers/{name:id}", response_model=Done, summary="Forget one", **needs(Role.admin, _UNKNOWN))
async def remove_trigger(parts: Parts, person: Who, name: Name, note: DeleteNote = "") -> Response:
    await parts.acts.remove_trigger(name, Act(person, note))
    return Answer({"what": "removed"})
