"""/session: a browser signs in with a token, and gets a cookie."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from holdfast.server.answers import Answer
from holdfast.server.security.people import Role
from holdfast.server.service import Body, Parts, Who, known_parameters, needs, told
from holdfast.server.shapes import Done, SessionShape

router = APIRouter(tags=["session"])


class TokenBody(Body):
    """The token, from the fragment of the URL that was printed, or a user's own."""

    token: str = Field(min_length=1, max_length=500)


@router.post(
    "/session",
    response_model=SessionShape,
    summary="Sign in",
    dependencies=[Depends(known_parameters)],
    responses=told(["unknown_parameter", "invalid_json", "sign_in", "origin", "not_json", "wrong_host", "rate"]),
    openapi_extra={"security": []},
)
async def sign_in(request: Request, parts: Parts, body: TokenBody) -> Response:
    peer = request.client.host if request.client is not None else "local"
    person, cookie = await parts.doors.begin_session(body.token, request.headers, peer)
    return Answer({"name": person.name, "role": person.role.value}, headers={"set-cookie": cookie})


@router.get("/session", response_model=SessionShape, summary="Who you are", **needs(Role.viewer))
async def who(person: Who) -> Response:
    return Answer({"name": person.name, "role": person.role.value})


@router.delete("/session", response_model=Done, summary="Sign out", **needs(Role.viewer, "origin"))
async def sign_out(request: Request, parts: Parts) -> Response:
    return Answer({"what": "signed out"}, headers={"set-cookie": parts.doors.end_session(request.headers)})
