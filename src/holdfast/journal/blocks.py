"""Why a run is blocked: what people are told of the diagnosis that is stored.

What is stored has no commands in it. They are made when somebody looks, and name the file that the run was executed
from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from holdfast.base.hints import hint, resume_hint
from holdfast.model import Kind, Record, reasons
from holdfast.model.diagnoses import Backwards, Cause, ChangedOutside, Diagnosis, Left, Mismatch, OverBudget, Trouble
from holdfast.model.reasons import Blocked, Frozen, Reason

_SHOWN: Final = 10  #: calls that the code made, of those that are listed


def source_in(records: Sequence[Record]) -> str | None:
    """The file that a run was last executed from: to be named, not to be loaded, since a store is only data.

    A fork that nobody has executed yet has that of the original.
    """
    for record in reversed(records):
        if record.kind in (Kind.claimed, Kind.created):
            found = json.loads(record.payload or "{}").get("source")
            return str(found) if found else None
    return None


def told(run_id: str, reason: Reason | None) -> list[str]:
    """Lines for people: the two lists, whether anything was executed, and the ways on."""
    if isinstance(reason, Frozen):
        return [f"It is a frozen copy of a run in {reason.origin}. `{hint('fork', run_id)}` makes one that can go on."]
    blocked = reasons.blocked(reason)
    found = blocked.found
    lines: list[str] = []
    if asked := _asked(found):
        lines += ["The code asked for:", *(f"  {each}" for each in asked)]
    if left := reasons.recorded_of(reason):
        lines.append("The journal has, and the code did not ask for it:")
        lines += [f"  {each.key}  {each.args}  seq {each.seq}{_if_open(each)}" for each in left]
    if found.detail:
        lines.append(found.detail)
    return [*lines, " ".join(part for part in (_executed(blocked), _ways_on(run_id, blocked)) if part)]


def _asked(found: Diagnosis) -> list[str]:
    """The calls that the code made in that branch, in order; the last one is what the journal does not have."""
    match found:
        case Mismatch(asked=asked, where=where, attempted=attempted) if asked:
            before = list(attempted)
            if before and where and before[-1].endswith(where):
                before.pop()
            left_out = [f"… {len(before) - _SHOWN} more"] if len(before) > _SHOWN else []
            return [*left_out, *before[-_SHOWN:], f"{asked}  {where}".rstrip()]
        case Trouble(asked=str(asked)) if asked:
            return [asked]
        case _:
            return []


def _if_open(left: Left) -> str:
    return ", not known whether it happened" if left.open else ""


def _executed(blocked: Blocked) -> str:
    number = blocked.tried.executed if blocked.tried is not None else None
    if number == 0 and blocked.found.cause is Cause.mismatch:
        return "Nothing was executed."
    if number is not None and number > 0:
        calls = "1 call was" if number == 1 else f"{number} calls were"
        return f"Before that {calls} executed, and what came of it is kept."
    return ""


def _ways_on(run_id: str, blocked: Blocked) -> str:
    again = resume_hint(run_id, blocked.tried.source if blocked.tried is not None else None)
    match blocked.found:
        case Backwards(advice=str(advice)) | Trouble(advice=str(advice)) if advice:
            return advice
        case Mismatch():
            settle = hint("resolve", run_id, "KEY")
            return (
                'Guard the new code with `if hf.patched("some-id"):`, restore the call, or settle an open effect with '
                f"`{settle}`; then `{again}`."
            )
        case OverBudget(owner=owner, what=what):
            return f"Raise it with `{hint('resume', owner, options=('--budget', f'{what}=AMOUNT'))}`."
        case ChangedOutside():
            return f"If what is there now is right, go on with `{again}`; else cancel it."
        case Trouble(cause=Cause.crash_loop):
            return f"Find out what kills the process, then `{again}`."
        case _:
            return f"When that is mended: `{again}`."
