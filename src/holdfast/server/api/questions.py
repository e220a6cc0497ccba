"""/questions: what runs ask people."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from holdfast.base.clock import now_us
from holdfast.server.answers import Answer
from holdfast.server.objects import question_object, stamp
from holdfast.server.pages import LIMIT, MOST, cursor_of, position_in
from holdfast.server.problems import Problem
from holdfast.server.security.links import DECISIONS, Decision, Link
from holdfast.server.security.people import Role
from holdfast.server.service import Key, Noted, Parts, Who, act_of, needs
from holdfast.server.shapes import LinkShape, QuestionPage, QuestionShape

router = APIRouter(tags=["questions"])
_MONTH_S = 31 * 24 * 3600
Id = Annotated[str, Path(max_length=200, examples=["q_11c7ae002edb"])]


@router.get(
    "/questions",
    response_model=QuestionPage,
    summary="What is asked: open questions oldest first, all of them newest first",
    **needs(Role.viewer, "no_such_run", "cursor_does_not_fit"),
)
async def list_questions(
    parts: Parts,
    state: Literal["open", "all"] = "open",
    run: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    filters = {"questions": state, "run": run}
    after = position_in(cursor, filters)
    items, last = await parts.reads.questions(only_open=state == "open", run_id=run, limit=limit, after=after)
    return Answer({"items": items, "next": None if last is None else cursor_of(last, filters)})


@router.get(
    "/questions/{question:id}",
    response_model=QuestionShape,
    summary="A question",
    **needs(Role.viewer, "no_such_question"),
)
async def show_question(parts: Parts, question: Id) -> Response:
    return Answer(question_object(await parts.reads.question(question)))


class DeclineBody(Noted):
    """Which question it is about, as it was shown."""

    shown: str = Field(max_length=200, description="The digest of what was shown when it was decided.")


class AnswerBody(DeclineBody):
    """The answer."""

    value: Any = Field(examples=[True])


_PROBLEMS = ("no_such_question", "already_decided", "question_changed", "run_finished", "key_reused", "quarantined")


@router.post(
    "/questions/{question:id}/answer",
    response_model=QuestionShape,
    summary="Answer it; the first decision counts",
    **needs(Role.operator, *_PROBLEMS, "does_not_fit"),
)
async def answer(parts: Parts, person: Who, question: Id, body: AnswerBody, key: Key = None) -> Response:
    act = act_of(person, body, key)
    return Answer(await parts.acts.decide(question, act, shown=body.shown, value=body.value, declines=False))


@router.post(
    "/questions/{question:id}/decline",
    response_model=QuestionShape,
    summary="Decline to answer; the agent is told so",
    **needs(Role.operator, *_PROBLEMS),
)
async def decline(parts: Parts, person: Who, question: Id, body: DeclineBody, key: Key = None) -> Response:
    act = act_of(person, body, key)
    return Answer(await parts.acts.decide(question, act, shown=body.shown, value=None, declines=True))


class LinkBody(Noted):
    """Whom a link is for."""

    audience: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Who decides with it: the `by` of the decision.", examples=["ana@example.org"]
    )
    decisions: Annotated[list[Decision], Field(min_length=1, max_length=2)] = Field(
        default_factory=lambda: list(DECISIONS)
    )
    expires_s: Annotated[int, Field(ge=60, le=_MONTH_S)] = 7 * 24 * 3600


@router.post(
    "/questions/{question:id}/links",
    response_model=LinkShape,
    status_code=201,
    summary="Make a link with which somebody decides it",
    **needs(Role.operator, "no_such_question", "already_decided"),
)
async def make_link(parts: Parts, question: Id, body: LinkBody, key: Key = None) -> Response:
    found = await parts.reads.question(question)
    if found.state.value != "open":
        raise Problem("already_decided", f"It was {found.state}.", state=found.state.value, by=found.decided_by)
    until_s = now_us() // 1_000_000 + body.expires_s
    made = parts.links.key(Link(found.id, found.shown, tuple(body.decisions), body.audience, until_s))
    return Answer({"path": f"/q/{found.id}#k={made}", "key": made, "expires_at": stamp(until_s * 1_000_000)}, 201)
