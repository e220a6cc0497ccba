"""POST /runs/bulk: the same act on many runs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from holdfast.errors import HoldfastError
from holdfast.model import Status
from holdfast.server.acts import Act, Acts
from holdfast.server.answers import Answer
from holdfast.server.problems import Problem, problem_of
from holdfast.server.security.people import Role
from holdfast.server.service import Body, Key, Noted, Parts, When, Who, act_of, needs
from holdfast.server.shapes import BulkTold
from holdfast.server.which import Which

router = APIRouter(tags=["runs"])
_MOST = 1000
Id = Annotated[str, Field(min_length=1, max_length=200)]


class FilterBody(Body):
    """The filters of a list."""

    status: list[Annotated[Status, Field(strict=False)]] = Field(default_factory=list)
    agent: Id | None = None
    thread: Id | None = None
    queue: Id | None = None
    parent: Id | None = None
    since: When | None = None
    until: When | None = None
    prefix: Id | None = None
    tag: list[Id] = Field(default_factory=list, max_length=10)


class BulkBody(Noted):
    """Which runs, and what is done to them."""

    act: Literal["pause", "resume", "retry", "cancel"]
    ids: Annotated[list[Id], Field(max_length=_MOST)] | None = None
    filter: FilterBody | None = None
    expected: Annotated[int, Field(ge=0)] | None = Field(
        None, description="How many the filter fitted when it was shown."
    )


@router.post(
    "/runs/bulk",
    response_model=BulkTold,
    summary="Pause, resume, retry or cancel up to 1,000 runs",
    **needs(Role.operator, "count_changed"),
)
async def act_on_many(parts: Parts, person: Who, body: BulkBody, key: Key = None) -> Response:
    if (body.ids is None) == (body.filter is None):
        raise Problem("invalid_parameter", "Give ids, or a filter.")
    left = 0
    if body.ids is not None:
        ids = list(dict.fromkeys(body.ids))
    else:
        assert body.filter is not None
        ids, left = await _fitting(parts, body.filter, body.expected)
    act = act_of(person, body, key)
    return Answer(
        {"items": [{"id": each, "what": await _one(parts.acts, body.act, each, act)} for each in ids], "left": left}
    )


async def _fitting(parts: Parts, wanted: FilterBody, expected: int | None) -> tuple[list[str], int]:
    if expected is None:
        raise Problem("invalid_parameter", "A filter needs `expected`: how many runs it fitted.", parameter="expected")
    given = wanted.model_dump()
    which = Which(**{**given, "status": tuple(wanted.status), "tag": tuple(wanted.tag)})
    rows = await parts.reads.rows(which, limit=_MOST + 1)
    if len(rows) != min(expected, _MOST + 1):
        raise Problem("count_changed", f"{min(len(rows), _MOST)} runs fit; nothing was done.", found=len(rows))
    return [row.id for row in rows[:_MOST]], max(0, len(rows) - _MOST)


async def _one(acts: Acts, what: str, run_id: str, act: Act) -> str:
    """What became of one of them; that it could not be done is no reason to stop."""
    try:
        match what:
            case "pause":
                return (await acts.pause(run_id, act))[1]
            case "resume":
                return (await acts.resume(run_id, act))[1]
            case "retry":
                return (await acts.retry(run_id, act))[1]
            case _:
                return (await acts.cancel(run_id, act, kill=False, waits=False))[1]
    except Problem as problem:
        return problem.kind
    except HoldfastError as error:
        return problem_of(error).kind
