"""/runs/{run}/artifacts: what it has put out."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from holdfast.server.acts import Act
from holdfast.server.answers import Answer
from holdfast.server.api.run import GONE, Number, RunPath, attached, check_payloads
from holdfast.server.output_shapes import Artifacts, Uploaded
from holdfast.server.security.headers import SANDBOX
from holdfast.server.security.people import Role
from holdfast.server.service import DeleteNote, Key, Parts, Who, needs

router = APIRouter(tags=["artifacts"])
_BYTES: Final = "application/octet-stream"
_FILE: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {_BYTES: {}}, "description": "Its bytes"}}


@router.get(
    "/runs/{run:id}/artifacts",
    response_model=Artifacts,
    summary="All that it has put out",
    **needs(Role.viewer, *GONE, "quarantined"),
)
async def list_artifacts(
    parts: Parts,
    run: RunPath,
    check: Annotated[bool, Query(description="Read the stored bytes, and compare them with their digests.")] = False,
    after: Number = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    row = await parts.reads.row(run)
    items, following = await parts.reads.outputs.artifacts(row, check=check, after=after, limit=limit)
    return Answer({"items": items, "next": following, "is_checked": check})


Name = Annotated[str, Path(max_length=2000, description="Percent-encoded.", examples=["report.md"])]


@router.get(
    "/runs/{run:id}/artifacts/{name:id}",
    response_class=Response,
    summary="The bytes of one, as a download",
    **needs(Role.viewer, *GONE, "no_such_artifact", "no_bytes", "damaged_file", "role", "quarantined", also=_FILE),
)
async def download_artifact(
    request: Request,
    parts: Parts,
    person: Who,
    run: RunPath,
    name: Name,
    version: Annotated[int | None, Query(ge=1, lt=2**62, description="Without it the last one.")] = None,
) -> Response:
    check_payloads(parts, person)
    row = await parts.reads.row(run)
    output = await parts.reads.outputs.artifact(row, name, version=version)
    digest, size = output.identity
    tag = f'"{digest}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    headers = {
        "content-security-policy": SANDBOX,
        "content-length": str(size),
        "etag": tag,
        "repr-digest": f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:",
        **attached(name.rpartition("/")[2] or "artifact"),
    }
    return StreamingResponse(parts.reads.outputs.chunks(row, output), media_type=_BYTES, headers=headers)


_PROBLEMS = (*GONE, "run_finished", "not_now", "quarantined", "not_bytes", "wrong_digest", "does_not_fit", "key_reused")
_UPLOAD = needs(Role.operator, *_PROBLEMS, "too_slow", "store_full", also={201: {"model": Uploaded}})
_UPLOAD["openapi_extra"] |= {"requestBody": {"required": True, "content": {_BYTES: {}}}}


@router.put(
    "/runs/{run:id}/artifacts/{name:id}", response_model=Uploaded, summary="Give the run a file of this name", **_UPLOAD
)
async def upload_artifact(
    request: Request,
    parts: Parts,
    person: Who,
    run: RunPath,
    name: Name,
    digest: Annotated[
        str,
        Header(
            alias="Repr-Digest",
            pattern=r"^sha-256=:[A-Za-z0-9+/]{43}=:$",
            description="The sha256 of the bytes: nothing else is stored.",
            examples=["sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"],
        ),
    ],
    media_type: Annotated[str, Query(max_length=200, description="By default what the name tells.")] = "",
    note: DeleteNote = "",
    key: Key = None,
) -> Response:
    wanted = base64.b64decode(digest[len("sha-256=:") : -1]).hex()
    act = Act(person, note, key)
    answer = await parts.acts.uploads.upload(
        run,
        name,
        request.stream(),
        sha256=wanted,
        media_type=media_type or None,
        by=act.by,
        note=act.note,
        own_id=act.own_id,
    )
    return Answer(answer, 201 if answer["is_new"] else 200)
