"""Questions that runs ask."""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.data import data
from holdfast.model.runs import RunId


class QuestionState(StrEnum):
    """Where a question stands; only an open one can be decided, once."""

    open = "open"
    answered = "answered"
    declined = "declined"
    expired = "expired"
    withdrawn = "withdrawn"  #: the code stopped waiting for it


@data
class QuestionRow:
    """A question that a run asks. `shown` is the digest of what a person sees; an answer names the one it is for."""

    id: str
    run_id: RunId
    key: str
    body: str  #: JSON text: {"prompt", "show", "kind", "options", "schema", "draft", "agent", "thread"}
    shown: str
    asked_at: int
    due_at: int | None
    state: QuestionState
    decided_at: int | None
    decided_by: str | None
    note: str
    digest: str
