"""Links with which one person decides one question: making them, and what they lead to."""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import Field

from holdfast.model import Via
from holdfast.server.acts import Act
from holdfast.server.answers import Answer
from holdfast.server.objects import question_object
from holdfast.server.problems import Problem
from holdfast.server.security.links import Link
from holdfast.server.security.people import Person, Role
from holdfast.server.service import Body, Parts, known_parameters, told
from holdfast.server.shapes import QuestionShape

router = APIRouter(tags=["links"])
Id = Annotated[str, Path(max_length=200, examples=["q_11c7ae002edb"])]


def _open(*problems: str) -> dict[str, Any]:
    """For routes that take a key in the place of a credential."""
    common = ["unknown_parameter", "invalid_parameter", "invalid_json", "origin", "not_json", "wrong_host", "rate"]
    return {
        "dependencies": [Depends(known_parameters)],
        "openapi_extra": {"security": []},
        "responses": told([*common, "link", "too_large", *problems]),
    }


class KeyBody(Body):
    """The key, from behind the `#` of the link."""

    key: Annotated[str, Field(min_length=1, max_length=2000)]


class DecideBody(KeyBody):
    """A decision."""

    note: str = Field("", max_length=2000)


class AnswerByLinkBody(DecideBody):
    """The answer."""

    value: Any = Field(examples=[True])


@router.get(
    "/q/{question}",
    response_class=Response,
    summary="The page of a link; it shows nothing before it has sent the key",
    dependencies=[Depends(known_parameters)],
    openapi_extra={"security": []},
    responses={
        200: {"description": "A page", "content": {"text/html": {}}},
        **told(["unknown_parameter", "invalid_parameter", "wrong_host"]),
    },
)
async def show_link_page(question: Id) -> Response:
    # Whatever the page is mounted under, its script is below it.
    page = _file("link.html").replace(b"LINK", quote(question, safe="").encode())
    return Response(page, media_type="text/html; charset=utf-8")


@router.get(
    "/q/{question}/link.js",
    response_class=Response,
    summary="The script of that page",
    dependencies=[Depends(known_parameters)],
    openapi_extra={"security": []},
    responses={
        200: {"description": "A script", "content": {"text/javascript": {}}},
        **told(["unknown_parameter", "invalid_parameter", "wrong_host"]),
    },
)
async def link_script(question: Id) -> Response:
    return Response(_file("link.js"), media_type="text/javascript; charset=utf-8")


@router.post(
    "/q/{question}", response_model=QuestionShape, summary="Show the question of a link", **_open("no_such_question")
)
async def open_link(request: Request, parts: Parts, question: Id, body: KeyBody) -> Response:
    _read(request, parts, key=body.key, question=question)
    return Answer(question_object(await parts.reads.question(question)))


_DECIDING = ("no_such_question", "already_decided", "question_changed", "run_finished", "quarantined", "read_only")


@router.post(
    "/q/{question}/answer",
    response_model=QuestionShape,
    summary="Answer it by a link",
    **_open(*_DECIDING, "does_not_fit"),
)
async def answer_by_link(request: Request, parts: Parts, question: Id, body: AnswerByLinkBody) -> Response:
    return await _decide(request, parts, question=question, body=body, value=body.value)


@router.post("/q/{question}/decline", response_model=QuestionShape, summary="Decline it by a link", **_open(*_DECIDING))
async def decline_by_link(request: Request, parts: Parts, question: Id, body: DecideBody) -> Response:
    return await _decide(request, parts, question=question, body=body, value=None)


async def _decide(request: Request, parts: Parts, *, question: str, body: DecideBody, value: Any) -> Response:
    declines = not isinstance(body, AnswerByLinkBody)
    link = _read(request, parts, key=body.key, question=question)
    if ("decline" if declines else "answer") not in link.decisions:
        raise Problem("link", "The link does not allow this decision.")
    if parts.access.is_read_only:
        raise Problem("read_only")
    person = Person(link.audience, Role.operator, Via.link, is_ambient=False)
    # The same link again, with the same decision, is the first.
    act = Act(person, body.note, f"link {link.until_s} {link.shown}")
    return Answer(await parts.acts.decide(question, act, shown=link.shown, value=value, declines=declines))


def _read(request: Request, parts: Parts, *, key: str, question: str) -> Link:
    peer = request.client.host if request.client is not None else "local"
    with parts.doors.counted(request.headers, peer):
        return parts.links.read(key, question)


def _file(name: str) -> bytes:
    return resources.files("holdfast.server").joinpath("links", name).read_bytes()
