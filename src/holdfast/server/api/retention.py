"""/retention and /prune: for how long runs are kept once they have ended."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from holdfast.model import FINAL, Status
from holdfast.server.answers import Answer
from holdfast.server.problems import Problem
from holdfast.server.security.people import Role
from holdfast.server.service import DeleteNote, Key, Noted, Parts, Who, act_of, needs
from holdfast.server.shapes import Done, PruneShape, Rules

router = APIRouter(tags=["retention"])
Agent = Annotated[str, Path(max_length=200, description="Its name; `*`: all without a rule.", examples=["newsletter"])]
Seconds = Annotated[float, Field(ge=0, le=100 * 365 * 86_400)]


@router.get("/retention", response_model=Rules, summary="For how long runs are kept", **needs(Role.viewer))
async def list_rules(parts: Parts) -> Response:
    return Answer({"items": await parts.acts.keeping.rules()})


class RuleBody(Noted):
    """How long."""

    keep_s: Seconds | None = Field(description="Seconds after the end of a run; null: for ever.")


@router.put("/retention/{agent:id}", response_model=Done, summary="Make or change a rule", **needs(Role.admin))
async def retain(parts: Parts, person: Who, agent: Agent, body: RuleBody) -> Response:
    act = act_of(person, body, None)
    await parts.acts.keeping.retain(agent, body.keep_s, by=act.by, note=act.note)
    return Answer({"what": "set"})


@router.delete("/retention/{agent:id}", response_model=Done, summary="Take a rule away", **needs(Role.admin))
async def forget_rule(parts: Parts, person: Who, agent: Agent, note: DeleteNote = "") -> Response:
    act = act_of(person, Noted(note=note), None)
    await parts.acts.keeping.forget_rule(agent, by=act.by, note=act.note)
    return Answer({"what": "removed"})


class PruneBody(Noted):
    """Which runs."""

    older_than_s: Seconds = Field(description="That ended longer ago than that.")
    agent: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    status: Annotated[list[Status], Field(max_length=3)] = Field(default_factory=list, strict=False)
    dry_run: bool = Field(False, description="Only tell what would be removed.")
    forget: bool = Field(False, description="Also what is left of runs that were pruned longer ago.")


@router.post(
    "/prune",
    response_model=PruneShape,
    summary="Remove what runs did that ended long ago; done again, it goes on",
    **needs(Role.admin, "store_full"),
)
async def prune(parts: Parts, person: Who, body: PruneBody, key: Key = None) -> Response:
    if not FINAL.issuperset(body.status):
        raise Problem(
            "invalid_parameter", f"status: only runs that have ended are pruned ({', '.join(sorted(FINAL))})."
        )
    act = act_of(person, body, key)
    return Answer(
        await parts.acts.keeping.prune(
            body.older_than_s,
            agent=body.agent,
            status=body.status,
            dry_run=body.dry_run,
            forget=body.forget,
            by=act.by,
            note=act.note,
        )
    )
