"""/runs/{run}/streams: what its bodies write while they work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.history.streams import Following
from holdfast.model import StreamEvent
from holdfast.server.answers import Answer
from holdfast.server.api.run import GONE, RunPath, check_payloads
from holdfast.server.live import COMMENT_S, Listener, Live
from holdfast.server.output_shapes import StreamEvents, Streams
from holdfast.server.outputs import event_object
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, Who, needs, tagged

router = APIRouter(tags=["streams"])
_EVENTS: Final = "text/event-stream"
_SOON_S, _LONGEST_S = 0.05, 0.25  # at most twenty parts in a second
_LIVE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {_EVENTS: {"example": 'id: 2\nevent: chunk\ndata: {"number": 2, "kind": "text"}\n\n'}}}
}


@router.get("/runs/{run:id}/streams", response_model=Streams, summary="Its streams", **needs(Role.viewer, *GONE))
async def list_streams(request: Request, parts: Parts, run: RunPath) -> Response:
    row = await parts.reads.row(run)
    return tagged(request, row, {"items": parts.reads.outputs.streams(row)})


@router.get(
    "/runs/{run:id}/streams/{name:id}",
    response_model=StreamEvents,
    summary="The events of a stream; as they come, if an event stream is asked for",
    **needs(Role.viewer, *GONE, "no_such_stream", "role", "quarantined", also=_LIVE),
)
async def list_stream_events(
    parts: Parts,
    person: Who,
    run: RunPath,
    name: Annotated[str, Path(max_length=200, examples=["output"])],
    after: Annotated[
        int | None, Query(ge=0, lt=2**62, description="The last event that you have; without it, from the last reset.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> Response:
    check_payloads(parts, person)
    row = await parts.reads.row(run)
    if _EVENTS in accept:
        if last_event_id.isdecimal() and len(last_event_id) < 19:
            after = int(last_event_id)
        following = parts.reads.outputs.following(row, name, after=after)
        first = await following.more()  # whatever is wrong with it is told as a problem
        return _Live(following, first, live=parts.live, listener=await parts.live.listen([], None))
    return Answer(await parts.reads.outputs.events(row, name, after=after, limit=limit))


class _Live(StreamingResponse):
    """Goes on until the run ends, the client leaves or the server does. Who follows counts as a listener."""

    def __init__(self, following: Following, first: Sequence[StreamEvent], *, live: Live, listener: Listener) -> None:
        lines = _lines(following, first, listener)
        super().__init__(lines, media_type=_EVENTS, headers={"x-accel-buffering": "no"})
        self._live, self._listener = live, listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._live.leave(self._listener)


async def _lines(following: Following, found: Sequence[StreamEvent], listener: Listener) -> AsyncIterator[bytes]:
    wait_s = quiet_s = 0.0
    yield b"retry: 2000\n\n"
    while not listener.has_ended:
        if found:
            yield b"".join(_line(each) for each in found)
        if following.is_over:
            yield b"event: over\ndata: {}\n\n"
            return
        wait_s, quiet_s = (_SOON_S, 0.0) if found else (min(wait_s * 1.3 + _SOON_S, _LONGEST_S), quiet_s + wait_s)
        if quiet_s > COMMENT_S:
            quiet_s = 0.0
            yield b": here\n\n"
        await asyncio.sleep(wait_s)
        try:
            found = await following.more()
        except HoldfastError:  # it was pruned, or its store is away: who comes back is told
            return


def _line(event: StreamEvent) -> bytes:
    return f"id: {event.number}\nevent: chunk\ndata: {json.dumps(event_object(event))}\n\n".encode()
