"""/runs: listing and starting them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from holdfast.model import Status
from holdfast.server.acts import Start
from holdfast.server.answers import Answer
from holdfast.server.pages import LIMIT, MOST, cursor_of, position_in
from holdfast.server.security.people import Role
from holdfast.server.service import Key, Noted, Parts, When, Who, act_of, needs
from holdfast.server.shapes import Agents, Counts, Histogram, RunPage, RunShape
from holdfast.server.which import Which

router = APIRouter(tags=["runs"])
#: What a start answers that finds its run.
KNOWN: Final[dict[int | str, dict[str, Any]]] = {200: {"model": RunShape, "description": "It was started before"}}
Text = Annotated[str | None, Query(min_length=1, max_length=200)]


def which_of(
    status: Annotated[list[Status], Query(description="Any of them.")] = [],  # noqa: B006 - read, never changed
    agent: Text = None,
    thread: Text = None,
    queue: Text = None,
    parent: Text = None,
    since: Annotated[When | None, Query(description="Created at or after.")] = None,
    until: Annotated[When | None, Query(description="Created before.")] = None,
    prefix: Annotated[str | None, Query(min_length=1, max_length=200, description="How the id begins.")] = None,
    cut_off: Annotated[bool | None, Query(description="Whose process died, and nobody has yet.")] = None,
    tag: Annotated[list[str], Query(max_length=10, description="NAME=VALUE, all of them.")] = [],  # noqa: B006
) -> Which:
    """The filters of a list."""
    return Which(
        status=tuple(status),
        agent=agent,
        thread=thread,
        queue=queue,
        parent=parent,
        since=since,
        until=until,
        prefix=prefix,
        cut_off=cut_off or None,
        tag=tuple(tag),
    )


Filter = Annotated[Which, Depends(which_of)]


@router.get("/runs", response_model=RunPage, summary="Runs, newest first", **needs(Role.viewer, "cursor_does_not_fit"))
async def list_runs(
    parts: Parts,
    which: Filter,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    after = position_in(cursor, which.facts)
    items, last = await parts.reads.page(which, limit=limit, after=after)
    return Answer({"items": items, "next": None if last is None else cursor_of(last, which.facts)})


@router.get("/runs/counts", response_model=Counts, summary="How many runs fit, by status", **needs(Role.viewer))
async def count_runs(parts: Parts, which: Filter) -> Response:
    return Answer(await parts.reads.surveys.counts(which))


@router.get(
    "/runs/histogram", response_model=Histogram, summary="When the runs that fit were created", **needs(Role.viewer)
)
async def bin_runs(parts: Parts, which: Filter, bins: Annotated[int, Query(ge=1, le=400)] = 60) -> Response:
    return Answer(await parts.reads.surveys.histogram(which, bins=bins))


@router.get("/agents", response_model=Agents, summary="The agents that are known", **needs(Role.viewer))
async def list_agents(parts: Parts) -> Response:
    return Answer({"items": await parts.reads.surveys.agents()})


Name = Annotated[str, Field(min_length=1, max_length=200)]


class StartBody(Noted):
    """A run to be started."""

    agent: Name = Field(examples=["research"])
    input: dict[str, Any] = Field(
        default_factory=dict, description="Its arguments, by name.", examples=[{"topic": "sea level"}]
    )
    id: Name | None = Field(None, description="Started again with the same input, it is the same run.")
    thread_id: Name | None = None
    queue: Name | None = None
    queue_key: Annotated[str, Field(max_length=200)] = ""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    delay_s: Annotated[float, Field(ge=0, le=3_153_600_000)] | None = None
    tags: dict[str, str] = Field(default_factory=dict)


@router.post(
    "/runs",
    response_model=RunShape,
    status_code=201,
    summary="Start a run; 200 if the same one exists",
    **needs(
        Role.operator, "conflicting_start", "key_reused", "does_not_fit", "pruned", "moved", "store_full", also=KNOWN
    ),
)
async def start_run(parts: Parts, person: Who, body: StartBody, key: Key = None) -> Response:
    wanted = Start(
        agent=body.agent,
        input=body.input,
        id=body.id,
        thread_id=body.thread_id,
        queue=body.queue,
        queue_key=body.queue_key,
        priority=body.priority,
        delay_s=body.delay_s,
        tags=body.tags,
    )
    row, is_new = await parts.acts.start(wanted, act_of(person, body, key))
    return Answer(await parts.reads.object(row), 201 if is_new else 200)
