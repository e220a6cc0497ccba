"""Notes: what a journal says besides its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from holdfast.base.data import data

#: Names what an agent itself used, between two calls.
OWN_USAGE = "hf.usage"


class NoteKind(StrEnum):
    """The name of a record of kind `noted`; `records` has the payloads. Some are told to people, some are flags."""

    usage = "usage"
    progress = "progress"
    stream = "stream"  #: events of a stream, as a body wrote them
    held = "held"  #: an effect waits for a person's verdict
    unstable = "unstable"  #: a call was made with other arguments than recorded
    late = "late"  #: a recorded outcome was delivered after its turn
    not_cancelled = "not cancelled"  #: the code had cancelled this call, and did not now
    resumed = "resumed"  #: what a resume saved
    unread = "unread"  #: signals that nobody received
    refused = "refused"  #: a signal or an answer that does not fit
    own_timer = "own timer"  #: the code waits for a timer of its own
    outside = "outside"  #: the code waits for something outside
    left_in_doubt = "left in doubt"  #: effects of a run that was cancelled
    paused = "paused"
    cancel = "cancel"
    unheeded = "unheeded"  #: a pause or resume that came when the run was being cancelled
    requeued = "requeued"
    blocked = "blocked"
    new_before_loop = "new before the loop"  #: a step that runs at each resume: the loop had begun
    state = "state"  #: what a stored state had that the code's type has not
    artifact = "artifact"  #: a file or a reference that a call put out
    workspace = "workspace"  #: what a call left in its workspace
    moved = "moved"  #: it was taken from a worker, to be moved
    budget = "budget"  #: what the run may use, from here on
    repaired = "repaired"  #: its data was changed outside Holdfast, and signed anew
    guarded = "guarded"  #: what guards look at was looked at again, and was not what it had been

    @classmethod
    def of(cls, name: str) -> NoteKind | None:
        """None: one that this version does not know."""
        return _KINDS.get(name)


_KINDS = {each.value: each for each in NoteKind}


@data
class OwnWait:
    """What the code of a run waits for by itself: the payload of `own timer` and `outside`."""

    why: str  #: why it is told
    branches: Sequence[str]
    where: Sequence[str]  #: file:line
    waits: Sequence[str] | None = None  #: the durable calls that wait meanwhile

    def plain(self) -> dict[str, Any]:
        """As it is stored."""
        waits = {} if self.waits is None else {"waits": list(self.waits)}
        return {"why": self.why, "branches": list(self.branches), **waits, "where": list(self.where)}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> OwnWait:
        return cls(str(said.get("why")), said.get("branches") or (), said.get("where") or (), said.get("waits"))
