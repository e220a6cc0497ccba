"""/runs/{run}: looking at one."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from holdfast.server.objects import etag_of
from holdfast.server.problems import Problem
from holdfast.server.reads import Reads
from holdfast.server.security.headers import SANDBOX
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, Who, needs, tagged
from holdfast.server.shapes import CallShape, Columns, Detail, Records, Story

router = APIRouter(tags=["run"])
RunPath = Annotated[str, Path(max_length=200, description="The whole id, percent-encoded.", examples=["report-7"])]
Number = Annotated[int, Query(ge=0, lt=2**62)]
_LINES = "application/x-ndjson"
_PAGE = 1000
GONE = ("no_such_run", "pruned", "moved")


@router.get("/runs/{run:id}", response_model=Detail, summary="A run", **needs(Role.viewer, *GONE))
async def show_run(request: Request, parts: Parts, person: Who, run: RunPath) -> Response:
    row = await parts.reads.row(run)
    if request.headers.get("if-none-match") == etag_of(row):
        return tagged(request, row, None)
    row, shown = await parts.reads.detail(run)
    if not may_read_payloads(parts, person):
        shown |= {"input": None, "result": None}
    return tagged(request, row, shown)


@router.get(
    "/runs/{run:id}/calls", response_model=Columns, summary="Its calls, in columns", **needs(Role.viewer, *GONE)
)
async def list_calls(request: Request, parts: Parts, run: RunPath, after: Number = 0) -> Response:
    return tagged(request, *await parts.reads.columns(run, after))


@router.get(
    "/runs/{run:id}/calls/{call:id}",
    response_model=CallShape,
    summary="One call",
    **needs(Role.viewer, *GONE, "no_such_call"),
)
async def show_call(
    request: Request, parts: Parts, person: Who, run: RunPath, call: Annotated[str, Path(max_length=2000)]
) -> Response:
    row, shown = await parts.reads.call(run, call)
    if not may_read_payloads(parts, person):
        shown |= {"args": None, "result": None, "records": [_without_values(each) for each in shown["records"]]}
    return tagged(request, row, shown)


@router.get(
    "/runs/{run:id}/records",
    response_model=Records,
    summary="Its journal; all of it as lines, if those are asked for",
    **needs(Role.viewer, *GONE),
)
async def list_records(
    request: Request,
    parts: Parts,
    person: Who,
    run: RunPath,
    after: Number = 0,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 200,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    is_cut = not may_read_payloads(parts, person)
    if _LINES in accept:
        row = await parts.reads.row(run)
        lines = _lines(parts.reads, run, after, is_cut=is_cut)
        return StreamingResponse(lines, media_type=_LINES, headers={"etag": etag_of(row), **attached(f"{run}.ndjson")})
    row, items, following = await parts.reads.records(run, after=after, limit=limit)
    items = [_without_values(each) for each in items] if is_cut else items
    return tagged(request, row, {"items": items, "next": following})


async def _lines(reads: Reads, run: str, after: int, *, is_cut: bool) -> AsyncIterator[bytes]:
    following: int | None = after
    while following is not None:
        _, items, following = await reads.records(run, after=following, limit=_PAGE)
        for each in items:
            yield (json.dumps(_without_values(each) if is_cut else each) + "\n").encode()


@router.get(
    "/runs/{run:id}/payload",
    response_class=Response,
    summary="All of a stored value, as a download",
    **needs(Role.viewer, *GONE, "no_such_record", "role"),
)
async def download(
    parts: Parts,
    person: Who,
    run: RunPath,
    seq: Annotated[int, Query(ge=1, lt=2**62)],
    part: Literal["args", "payload"] = "payload",
) -> Response:
    check_payloads(parts, person)
    text = await parts.reads.payload(run, seq, part)
    headers = {"content-security-policy": SANDBOX, **attached(f"{run}-{seq}-{part}.json")}
    return Response(text.encode("utf-8", "replace"), media_type="application/octet-stream", headers=headers)


@router.get("/runs/{run:id}/story", response_model=Story, summary="It in sentences", **needs(Role.viewer, *GONE))
async def tell_story(request: Request, parts: Parts, run: RunPath) -> Response:
    row, lines = await parts.reads.story(run)
    return tagged(request, row, {"lines": lines})


def may_read_payloads(parts: Parts, person: Who) -> bool:
    users = parts.access.users
    return users is None or person.role.may(users.payloads)


def check_payloads(parts: Parts, person: Who) -> None:
    if not may_read_payloads(parts, person):
        raise Problem("role", "What runs stored is not for viewers here.")


def _without_values(record: dict[str, object]) -> dict[str, object]:
    return {**record, "args": None, "payload": None}


def attached(name: str) -> dict[str, str]:
    """A name that no browser, shell or file system makes anything else of."""
    clean = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")[-150:] or "value"
    return {"content-disposition": f'attachment; filename="{clean}"'}
