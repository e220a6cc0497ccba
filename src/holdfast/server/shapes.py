"""What answers look like. They are made by hand, for speed; tests compare them with this."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

_RUN: Final[dict[str, JsonValue]] = {
    "id": "report-sea-level",
    "token": "report-sea-level@t_editorial",
    "thread_id": "t_editorial",
    "agent": "research",
    "status": "waiting",
    "is_cut_off": False,
    "now": "asks: Release the report on sea level?",
    "waits": [{"kind": "question", "id": "q_11c7ae002edb", "due_at": "2026-11-17T06:15:05.000Z"}],
    "created_at": "2026-11-16T10:14:03.542Z",
    "updated_at": "2026-11-16T10:15:05.245Z",
    "parent_id": None,
    "queue": "default",
    "priority": 0,
    "tags": {},
    "calls": {"steps": 20, "effects": 1},
    "usage": {"input_tokens": 12853, "output_tokens": 5614, "cost": 0.4324},
    "progress": {"done": 4, "total": 5, "note": "publishing"},
    "epoch": 6,
    "records": 76,
    "is_sound": True,
}
_QUESTION: Final[dict[str, JsonValue]] = {
    "id": "q_11c7ae002edb",
    "run_id": "report-sea-level",
    "key": "hf:ask#1",
    "agent": "research",
    "thread_id": "t_editorial",
    "prompt": "Release the report on sea level?",
    "show_json": '{"title": "Sea level"}',
    "kind": "yesno",
    "options": None,
    "schema": {"type": "boolean"},
    "draft_json": None,
    "truncated": False,
    "asked_at": "2026-11-16T10:15:05.245Z",
    "due_at": "2026-11-17T06:15:05.000Z",
    "state": "open",
    "decided_at": None,
    "decided_by": None,
    "note": "",
    "shown": "5f1c…",
}


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Wait(Shape):
    kind: str
    id: str | None
    due_at: str | None


class RunShape(Shape):
    """A run, as lists and details have it."""

    model_config = ConfigDict(extra="forbid", title="Run", json_schema_extra={"examples": [_RUN]})

    id: str
    token: str
    thread_id: str
    agent: str
    status: str
    is_cut_off: bool = Field(description="Its process died, and nobody has it yet.")
    now: str = Field(description="What it does or waits for, in a few words.")
    waits: list[Wait]
    created_at: str
    updated_at: str
    parent_id: str | None
    queue: str
    priority: int
    tags: dict[str, str]
    calls: dict[str, int]
    usage: dict[str, float]
    progress: dict[str, Any] | None
    epoch: int
    records: int
    is_sound: bool = Field(description="Its row fits its digest; `verify` looks at everything.")


class RunPage(Shape):
    items: list[RunShape]
    next: str | None = Field(description="The cursor of the next page; null: there is none.", examples=["c_WzE3…"])


class Counts(Shape):
    status: dict[str, int | str] = Field(examples=[{"failed": 15, "done": "10000+"}])
    capped_at: int


class Bin(Shape):
    done: int
    failed: int
    cancelled: int
    unfinished: int


class Histogram(Shape):
    """When runs were created, and how they stand now."""

    since: str = Field(alias="from")
    to: str
    bin_s: float
    bins: list[Bin]
    is_exact: bool = Field(description="False: there are more than were counted; the newest were.")


class AgentShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Agent")

    name: str
    first: str | None = Field(description="The name of its first argument, where a worker declared it.")
    input_schema: dict[str, Any] | None = Field(description="JSON schema of that argument.")
    signals: list[str]
    takes_interrupts: bool
    queue: str | None


class Agents(Shape):
    items: list[AgentShape]


class Value(Shape):
    """A stored value as JSON text; where it is cut, `/runs/{id}/payload?seq=&part=` has all of it."""

    json_: str | None = Field(alias="json")
    truncated: bool
    run_id: str | None = None
    seq: int | None = None
    part: str | None = None


class QuestionShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Question", json_schema_extra={"examples": [_QUESTION]})

    id: str
    run_id: str
    key: str
    agent: str
    thread_id: str
    prompt: str
    show_json: str
    kind: str
    options: list[Any] | None
    schema_: dict[str, Any] | None = Field(alias="schema")
    draft_json: str | None
    truncated: bool = Field(description="There is more of what is shown than fits here.")
    asked_at: str
    due_at: str | None
    state: str
    decided_at: str | None
    decided_by: str | None
    note: str
    shown: str = Field(description="Digest of all that is shown; an answer says which one it is for.")


class QuestionPage(Shape):
    items: list[QuestionShape]
    next: str | None


class Child(Shape):
    id: str
    agent: str
    status: str


class Origin(Shape):
    """Where a fork comes from."""

    run: str
    at: int = Field(description="The last record that was copied.")
    by: str | None
    note: str
    changed: list[str] = Field(description="The keys of calls that were given other results.")


class Detail(RunShape):
    model_config = ConfigDict(extra="forbid", title="RunDetail")

    reason: dict[str, Any] | None
    input: Value | None
    result: Value | None
    code: dict[str, Any]
    forked_from: Origin | None = Field(description="Of a fork: the run that it began with.")
    children: list[Child]
    questions: list[QuestionShape]
    receipts: list[dict[str, Any]]
    verification: dict[str, Any]


class Columns(Shape):
    """Calls in columns: the n-th of each list belongs to the n-th call. Times in µs, from the first claim on."""

    head: int = Field(description="Send it as `after` for what changes later.")
    epoch: int
    claims: list[dict[str, Any]]
    branches: list[str]
    names: list[str]
    kinds: list[str]
    statuses: list[str]
    calls: dict[str, list[Any]] = Field(
        examples=[{"seq": [4, 8], "branch": [0, 0], "name": [0, 1], "n": [1, 1], "kind": [0, 1], "status": [0, 0]}]
    )
    extras: dict[str, dict[str, Any]] = Field(description="By `seq`: what few calls have.")


class RecordShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Record")

    seq: int
    epoch: int
    key: str
    kind: str
    name: str
    attempt: int
    tick: int
    at: str
    took_s: float
    args: Value | None
    payload: Value | None
    hash: str


class Records(Shape):
    items: list[RecordShape]
    next: int | None = Field(description="Send it as `after` for the next page.")


class CallShape(BaseModel):
    model_config = ConfigDict(extra="allow", title="Call")

    key: str
    name: str
    kind: str
    status: str
    began_at: str
    ended_at: str | None
    took_s: float
    usage: dict[str, float]
    args: Value | None
    result: Value | None
    settlements: list[dict[str, Any]]
    records: list[RecordShape]


class Story(Shape):
    lines: list[str] = Field(examples=[["research (report-sea-level) was started at 2026-11-16T10:14:03.542Z."]])


class Told(Shape):
    """What became of an act."""

    status: str = Field(examples=["paused"])
    what: str = Field(examples=["paused"])


class Replied(Told):
    number: int
    reply_json: str | None


class Signalled(Shape):
    is_new: bool


class Checked(Shape):
    run_id: str
    is_ok: bool
    records: int
    blobs: int
    problem: str | None
    seq: int | None
    is_empty: bool
    at: str


class BulkItem(Shape):
    id: str
    what: str


class BulkTold(Shape):
    items: list[BulkItem]
    left: int


class Doubt(Shape):
    run_id: str
    key: str = Field(examples=["publish#1"])
    name: str
    attempt: int
    args_json: str | None
    truncated: bool
    idempotency_key: str
    since: str
    cause: str = Field(examples=["crash"])


class Doubts(Shape):
    items: list[Doubt]


class ActShape(Shape):
    """Something that somebody did."""

    model_config = ConfigDict(extra="forbid", title="Act")

    number: int
    at: str
    by: str
    via: str = Field(description="web, api, cli, link or code.")
    what: str = Field(examples=["pause"])
    target: str = Field(description="The run, question, call, schedule, trigger, queue or agent that it was done to.")
    run_id: str | None
    note: str


class ActPage(Shape):
    items: list[ActShape]
    next: str | None


class LinkShape(Shape):
    """A link with which somebody decides a question."""

    model_config = ConfigDict(extra="forbid", title="Link")

    path: str = Field(description="Below the address of this server; the key stands behind the `#`.")
    key: str
    expires_at: str


class Listed(Shape):
    """Things with facts of their own, by name."""

    items: list[dict[str, Any]]


class Done(Shape):
    what: str = Field(examples=["paused"])


class Emitted(Shape):
    id: str = Field(examples=["e_6092…"])


class Backfilled(Shape):
    runs: list[str]


class TriggerLog(Shape):
    recent: list[dict[str, Any]]
    refused: list[dict[str, Any]]


class Resumed(Shape):
    since: str
    outages: int = Field(description="How often a process was lost, and its run taken up again")
    saved_s: float
    saved_tokens: int
    saved_cost: float
    is_all: bool = Field(description="False: of the newest runs only, and of those that are not finished")


class Overview(Shape):
    needs: list[dict[str, Any]]
    counts: Counts
    workers: list[dict[str, Any]]
    next_fires: list[dict[str, str]]
    resumed: Resumed


class StoreShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Store")

    kind: str
    durability: str
    trouble: str | None
    schema_: int = Field(alias="schema")
    holdfast: str


class Rule(Shape):
    agent: str = Field(examples=["newsletter"])
    keep_s: float | None
    last_at: str | None
    last_runs: int


class Rules(Shape):
    items: list[Rule]


class PruneShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Pruned")

    runs: int
    records: int
    kept: int
    forgotten: int
    dry_run: bool
    threads: int


class Looked(Shape):
    result_json: str = Field(description="In the format of stored values.")


class Health(Shape):
    is_alive: bool


class SessionShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Session")

    name: str
    role: str


class LiveEvent(Shape):
    id: str | None
    event: str
    data: dict[str, Any]
