"""What whoever waits for a run gets: what the agent returned, or the error that says why there is nothing."""

from __future__ import annotations

from typing import Any

from holdfast.base.data import data
from holdfast.base.hints import hint
from holdfast.base.tracebacks import trimmed
from holdfast.codec import Coder, decode_error, named, said_by
from holdfast.errors import CorruptJournal, NeedsHuman, RunBlocked, RunCancelled, RunFailed, StepError
from holdfast.history.needs import Needs, doubts_needed
from holdfast.journal.blocks import told
from holdfast.model import RunId, Status, reasons
from holdfast.model.reasons import Reason


@data
class End:
    """How a run stands that is waited for no longer, and what with."""

    run_id: RunId
    token: str
    status: Status
    reason: Reason | None
    text: str  #: the value or the exception, as JSON text
    live: BaseException | None  #: what it raised in this process, if that is kept

    def read(self, coder: Coder[Any]) -> Any:
        """What the agent returned; raises what tells of any other end."""
        run_id, token, reason = self.run_id, self.token, self.reason
        match self.status:
            case Status.blocked:
                lines = [f"Run {run_id} is blocked: {reasons.why(reason) or 'unknown'}.", *told(run_id, reason)]
                shown = {} if reason is None else dict(reasons.plain(reason))
                raise RunBlocked("\n".join(lines), run_id=run_id, token=token, reason=shown)
            case Status.in_doubt:
                needs = Needs(tuple(doubts_needed(run_id, f"Run {run_id}", reason)), None, False)
                raise needs_human(run_id, token, needs)
            case Status.quarantined:
                raise CorruptJournal(reasons.detail_of(reason) or f"Run {run_id} is quarantined.", run_id=run_id)
            case Status.done:
                return coder.loads(self.text, what=f"the result of run {run_id}")
            case Status.failed:
                error = decode_error(self.text, None)
                if self.live is not None:
                    error.__traceback__ = trimmed(self.live.__traceback__)
                raise RunFailed(f"Run {run_id} failed: {_said_by(error)}", run_id=run_id, token=token) from error
            case _:
                cause = decode_error(self.text, None) if self.text != "null" else None
                raise RunCancelled(f"Run {run_id} was cancelled.", run_id=run_id, token=token) from cause


def _said_by(error: Exception) -> str:
    """The name and message of what an agent raised, also of a class that only the agent knows."""
    if type(error) is StepError and str(error) == f"{error.error_type}: {error.error_message}":
        return named(error.error_type, error.error_message)
    return said_by(error)


def needs_human(run_id: str, token: str, needs: Needs) -> NeedsHuman:
    """The error that says what a run needs of somebody, and with which command they do it."""
    text = "\n".join(need.text for need in needs.open) or f"Run {run_id} waits."
    command = needs.open[0].command if needs.open else hint("show", run_id)
    return NeedsHuman(text, run_id=run_id, token=token, command=command)
