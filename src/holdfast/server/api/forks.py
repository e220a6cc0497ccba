"""/runs/{run}/fork: a new run that begins with what this one had done by a point."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Response
from pydantic import Field

from holdfast.codec import MISSING
from holdfast.handle.forks import Wanted
from holdfast.server.answers import Answer
from holdfast.server.api.run import GONE, RunPath, check_payloads
from holdfast.server.output_shapes import ForkPlanShape
from holdfast.server.security.people import Role
from holdfast.server.service import Key, Noted, Parts, Who, act_of, needs
from holdfast.server.shapes import RunShape

router = APIRouter(tags=["forks"])
Name = Annotated[str, Field(min_length=1, max_length=200)]
_KNOWN: Final[dict[int | str, dict[str, Any]]] = {200: {"model": RunShape, "description": "It was made before"}}


class ForkBody(Noted):
    """Where it begins, and what is different."""

    at: Annotated[int, Field(ge=1, lt=2**62)] | None = Field(None, description="The record; without it the last one.")
    turn: Annotated[int, Field(ge=1, lt=2**31)] | None = Field(None, description="Instead: the turn it begins with.")
    state: Any = Field(None, description="Another state for that turn.")
    set: dict[str, Any] = Field(default_factory=dict, description="Parts of the state, by their paths.")
    results: dict[str, Any] = Field(default_factory=dict, description="Other results, by the keys of their calls.")
    id: Name | None = Field(None, description="Made again with the same id, it is the same fork.")
    thread_id: Name | None = Field(None, description="Without it, a thread of its own.")

    def wanted(self) -> Wanted:
        state = self.state if "state" in self.model_fields_set else MISSING
        return Wanted(self.at, self.turn, self.set, self.results, self.id, self.thread_id, state)


@router.post(
    "/runs/{run:id}/fork/plan",
    response_model=ForkPlanShape,
    summary="What a fork would be; nothing is changed",
    **needs(Role.viewer, *GONE, "role", "origin", "not_json", "quarantined", "does_not_fit"),
)
async def plan_fork(parts: Parts, person: Who, run: RunPath, body: ForkBody) -> Response:
    check_payloads(parts, person)
    return Answer(await parts.reads.outputs.fork_plan(await parts.reads.row(run), body.wanted()))


@router.post(
    "/runs/{run:id}/fork",
    response_model=RunShape,
    status_code=201,
    summary="Fork it; 200 if the same fork exists",
    **needs(
        Role.operator,
        *GONE,
        "conflicting_start",
        "key_reused",
        "does_not_fit",
        "quarantined",
        "store_full",
        also=_KNOWN,
    ),
)
async def fork_run(parts: Parts, person: Who, run: RunPath, body: ForkBody, key: Key = None) -> Response:
    act = act_of(person, body, key)
    row, is_new = await parts.acts.forks.fork(run, body.wanted(), by=act.by, note=act.note, own_id=act.own_id)
    return Answer(await parts.reads.object(row), 201 if is_new else 200)
