"""POST /events: emitting one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from holdfast.server.answers import Answer
from holdfast.server.security.people import Role
from holdfast.server.service import Key, Noted, Parts, Who, act_of, needs
from holdfast.server.shapes import Emitted

router = APIRouter(tags=["events"])
Name = Annotated[str, Field(min_length=1, max_length=200)]


class EventBody(Noted):
    """An event."""

    name: Name = Field(examples=["order.paid"])
    value: Any = Field(None, examples=[{"id": 7}])
    dedup: Name | None = Field(None, description="A second one with the same is the first.")


@router.post(
    "/events",
    response_model=Emitted,
    status_code=202,
    summary="Emit an event",
    **needs(Role.operator, "conflicting_send", "key_reused", "does_not_fit"),
)
async def emit(parts: Parts, person: Who, body: EventBody, key: Key = None) -> Response:
    act = act_of(person, body, key)
    return Answer({"id": await parts.acts.emit(act, name=body.name, value=body.value, dedup=body.dedup)}, 202)
