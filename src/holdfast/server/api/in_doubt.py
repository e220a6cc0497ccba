"""/in-doubt: effects that may or may not have happened."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from holdfast.server.answers import Answer
from holdfast.server.api.run import RunPath
from holdfast.server.objects import doubt_object
from holdfast.server.problems import Problem
from holdfast.server.security.people import Role
from holdfast.server.service import Key, Noted, Parts, Who, act_of, needs
from holdfast.server.shapes import Done, Doubts

router = APIRouter(tags=["in doubt"])


@router.get(
    "/in-doubt",
    response_model=Doubts,
    summary="The effects that a person must settle",
    **needs(Role.viewer, "no_such_run"),
)
async def list_doubts(parts: Parts, run: Annotated[str | None, Query(min_length=1, max_length=200)] = None) -> Response:
    return Answer({"items": [doubt_object(each) for each in await parts.reads.doubts(run)]})


class SettleBody(Noted):
    """What became of it, and how that is known."""

    verdict: Literal["happened", "not_happened", "failed"]
    value: Any = Field(None, description="With `happened`: its result.")
    error: str = Field("", max_length=2000, description="With `failed`: what the agent is told.")
    attempt: Annotated[int, Field(ge=1, lt=2**31)] = Field(description="The attempt that was shown.")
    note: str = Field(min_length=1, max_length=2000, description="How you know; kept in the journal.")


@router.post(
    "/runs/{run:id}/in-doubt/{call:id}",
    response_model=Done,
    summary="Say what became of an effect; it is final",
    **needs(Role.operator, "no_such_run", "no_such_call", "already_settled", "quarantined", "key_reused", "pruned"),
)
async def settle(
    parts: Parts,
    person: Who,
    run: RunPath,
    call: Annotated[str, Path(max_length=2000)],
    body: SettleBody,
    key: Key = None,
) -> Response:
    given = body.model_fields_set
    if ("value" in given) != (body.verdict == "happened") or ("error" in given) != (body.verdict == "failed"):
        raise Problem("invalid_parameter", "`happened` takes a value, `failed` an error, and nothing else does.")
    await parts.acts.settle(
        run,
        call,
        act_of(person, body, key),
        verdict=body.verdict,
        value=body.value,
        error=body.error,
        attempt=body.attempt,
    )
    return Answer({"what": "settled"})
