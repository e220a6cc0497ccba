"""GET /stream: changes as they happen."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from holdfast.server.answers import Answer
from holdfast.server.live import EventStream, poll, topics_in
from holdfast.server.security.people import Role
from holdfast.server.service import Parts, needs
from holdfast.server.shapes import LiveEvent

router = APIRouter(tags=["stream"])


def _described() -> dict[str, Any]:
    found = needs(Role.viewer)
    found["responses"] |= {
        200: {
            "description": "Events: run, question, gone, progress, calls, workers, resync; with `wait`, an array.",
            "content": {
                "text/event-stream": {
                    "example": 'id: 3f…-17\nevent: question\ndata: {"id": "q_11c7ae002edb", "state": "open"}\n\n'
                }
            },
        }
    }
    return found


@router.get("/stream", response_model=list[LiveEvent], summary="Changes as they happen", **_described())
async def stream(
    parts: Parts,
    topics: Annotated[str, Query(max_length=12_000, examples=["runs,questions,run:report-7"])] = "runs,questions",
    wait: Annotated[
        float | None, Query(ge=0, le=25, description="Answer at once, or after so many seconds, and do not go on.")
    ] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    wanted = topics_in(topics)
    if wait is None:
        return EventStream(parts.live, await parts.live.listen(wanted, last_event_id))
    events, cursor = await poll(parts.live, wanted, last_event_id, wait)
    return Answer(events, headers={"last-event-id": cursor})
