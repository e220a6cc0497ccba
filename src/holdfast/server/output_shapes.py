"""What answers about what runs keep and put out look like; see `shapes`."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from holdfast.server.shapes import Shape, Value


class Checkpoint(Shape):
    """The head of a turn."""

    turn: int
    seq: int
    at: str
    size: int = Field(description="Of the state, bytes of JSON.")
    unread: int = Field(description="How much mail nobody had taken by then.")


class Checkpoints(Shape):
    items: list[Checkpoint]
    next: int | None = Field(description="`after` of the next page.")


class State(Shape):
    """With which state a turn began."""

    turn: int
    at: str
    state: Value


class Change(Shape):
    path: str = Field(examples=["history[4].text"])
    kind: str = Field(examples=["added"], description="added, removed or changed.")
    before_json: str | None
    after_json: str | None
    truncated: bool


class Difference(Shape):
    a: int
    b: int
    items: list[Change]
    truncated: bool = Field(description="There are more than these.")


class ArtifactShape(Shape):
    """Something that a run has put out, in one version."""

    model_config = ConfigDict(extra="forbid", title="Artifact")

    name: str = Field(examples=["report.md"])
    kind: str = Field(
        examples=["file"], description="record, workspace, plan, message, partial, or what the code says."
    )
    version: int
    at: str | None
    media_type: str
    sha256: str
    size: int | None
    ref: str
    key: str
    state: str = Field(description="stored, missing or damaged.")
    detail: str


class Artifacts(Shape):
    items: list[ArtifactShape]
    next: int | None
    is_checked: bool = Field(description="Were the stored bytes compared with their digests?")


class Uploaded(Shape):
    """A file that was given to a run."""

    name: str = Field(examples=["notes.txt"])
    version: int = Field(description="The same bytes under the same name are the same version.")
    sha256: str
    size: int
    is_new: bool = Field(description="False: the run had it, and nothing was changed.")


class StreamName(Shape):
    name: str = Field(examples=["output"])
    last: int = Field(description="The number of its last event.")


class Streams(Shape):
    items: list[StreamName]


class StreamEventShape(Shape):
    model_config = ConfigDict(extra="forbid", title="StreamEvent")

    number: int
    kind: str = Field(description="text, reset or end.")
    text: str
    key: str
    attempt: int
    at: str
    reason: str | None


class StreamEvents(Shape):
    items: list[StreamEventShape]
    last: int = Field(description="`after` of the next look.")
    is_more: bool = Field(description="There is more by now.")
    is_over: bool = Field(description="The run has ended, and this was the last of it.")


class PlanItemShape(Shape):
    model_config = ConfigDict(extra="forbid", title="PlanItem")

    id: str
    text: str
    done: bool
    note: str


class PlanShape(Shape):
    """A plan, with what people have changed and the run has yet to take."""

    model_config = ConfigDict(extra="forbid", title="Plan")

    items: list[PlanItemShape]
    missed: list[str]
    pending: list[str]
    todo: str = Field(description="The same as `todo.md`.")


class Sent(Shape):
    number: int = Field(description="Of the mail.")


class Receipts(Shape):
    items: list[dict[str, Any]] = Field(description="One for each time that it was taken up again.")


class ForkPlanShape(Shape):
    """What a fork would be."""

    model_config = ConfigDict(extra="forbid", title="ForkPlan")

    run_id: str
    agent: str
    asked: int
    at: int
    turn: int
    in_the_way: list[dict[str, Any]]
    replays: list[dict[str, Any]]
    again: list[dict[str, Any]]
    effects_again: list[str]
    not_copied: list[dict[str, Any]]
    unread: list[dict[str, Any]]
    children: list[str]
    changed: list[str]
    sentences: list[str]


class ThreadShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Thread")

    id: str
    last: int = Field(description="The number of its last message.")
    summary: int | None
    covers: int | None
    created_at: str
    updated_at: str


class Threads(Shape):
    items: list[ThreadShape]
    next: str | None


class MessageShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Message")

    number: int
    at: str
    author: str = Field(description="The run that said it, or the person.")
    covers: int | None = Field(description="Up to where a summary goes.")
    json_: str | None = Field(alias="json")
    truncated: bool
    is_sound: bool


class Messages(Shape):
    items: list[MessageShape]
    next: int | None
