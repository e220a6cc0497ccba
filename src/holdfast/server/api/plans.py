"""/runs/{run}/plan: looking at its plan, and changing it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from holdfast.server.answers import Answer
from holdfast.server.api.run import GONE, RunPath, check_payloads
from holdfast.server.output_shapes import PlanShape, Sent
from holdfast.server.security.people import Role
from holdfast.server.service import Body, Key, Noted, Parts, Who, act_of, needs, tagged

router = APIRouter(tags=["plan"])
Item = Annotated[str, Field(min_length=1, max_length=100, examples=["3"])]
Text = Annotated[str, Field(min_length=1, max_length=10_000)]


@router.get(
    "/runs/{run:id}/plan",
    response_model=PlanShape,
    summary="Its plan",
    **needs(Role.viewer, *GONE, "no_such_plan", "role", "quarantined"),
)
async def show_plan(request: Request, parts: Parts, person: Who, run: RunPath) -> Response:
    check_payloads(parts, person)
    row = await parts.reads.row(run)
    return tagged(request, row, await parts.reads.outputs.plan(row))


class Tick(Body):
    op: Literal["tick"]
    id: Item
    note: Annotated[str, Field(max_length=2000)] = ""


class Simple(Body):
    op: Literal["untick", "drop"]
    id: Item


class Add(Body):
    op: Literal["add"]
    text: Text
    after: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="Empty: at the top. Without: at the end."
    )


class Rewrite(Body):
    op: Literal["rewrite"]
    id: Item
    text: Text


class Reorder(Body):
    op: Literal["reorder"]
    ids: Annotated[list[Item], Field(min_length=1, max_length=1000)]


class PlanBody(Noted):
    """What is to be changed, in order."""

    ops: Annotated[
        list[Annotated[Tick | Simple | Add | Rewrite | Reorder, Field(discriminator="op")]],
        Field(min_length=1, max_length=200),
    ]


@router.post(
    "/runs/{run:id}/plan",
    response_model=Sent,
    status_code=202,
    summary="Change its plan; it takes that with its next call of the plan",
    **needs(Role.operator, *GONE, "no_such_plan", "run_finished", "key_reused", "quarantined", "store_full"),
)
async def change_plan(parts: Parts, person: Who, run: RunPath, body: PlanBody, key: Key = None) -> Response:
    await parts.reads.outputs.plan(await parts.reads.row(run))
    ops = [each.model_dump() for each in body.ops]
    return Answer({"number": await parts.acts.change_plan(run, ops, act_of(person, body, key))}, 202)
