"""Why a run is blocked: what people are told of the diagnosis that is stored.

What is stored has no commands in it. They are made when somebody looks, and name the file that the run was executed
from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.base.hints import hint, resume_hint
from holdfast.journal.mismatches import MISMATCH
from holdfast.model import Kind, Record

CRASH_LOOP: Final = "crash loop"
_SHOWN: Final = 10  #: calls that the code made, of those that are listed


def source_in(records: Sequence[Record]) -> str | None:
    """The file that a run was last executed from: to be named, not to be loaded, since a store is only data."""
    for record in reversed(records):
        if record.kind == Kind.claimed:
            found = json.loads(record.payload or "{}").get("source")
            return str(found) if found else None
    return None


def told(run_id: str, reason: Mapping[str, Any]) -> list[str]:
    """Lines for people: the two lists, whether anything was executed, and the ways on."""
    lines: list[str] = []
    if asked := _asked(reason):
        lines += ["The code asked for:", *(f"  {each}" for each in asked)]
    if recorded := reason.get("recorded"):
        lines.append("The journal has, and the code did not ask for it:")
        lines += [f"  {each['key']}  {each.get('args', '')}  seq {each['seq']}{_if_open(each)}" for each in recorded]
    if reason.get("detail"):
        lines.append(str(reason["detail"]))
    return [*lines, " ".join(part for part in (_executed(reason), _ways_on(run_id, reason)) if part)]


def _asked(reason: Mapping[str, Any]) -> list[str]:
    """The calls that the code made in that branch, in order; the last one is what the journal does not have."""
    if not reason.get("asked"):
        return []
    where = str(reason.get("where") or "")
    before = list(reason.get("attempted") or ())
    if before and where and before[-1].endswith(where):
        before.pop()
    left_out = [f"… {len(before) - _SHOWN} more"] if len(before) > _SHOWN else []
    return [*left_out, *before[-_SHOWN:], f"{reason['asked']}  {where}".rstrip()]


def _if_open(entry: Mapping[str, Any]) -> str:
    return ", not known whether it happened" if entry.get("open") else ""


def _executed(reason: Mapping[str, Any]) -> str:
    match reason.get("executed"):
        case 0 if reason.get("why") == MISMATCH:
            return "Nothing was executed."
        case int(number) if number > 0:
            calls = "1 call was" if number == 1 else f"{number} calls were"
            return f"Before that {calls} executed, and what came of it is kept."
        case _:
            return ""


def _ways_on(run_id: str, reason: Mapping[str, Any]) -> str:
    if reason.get("advice"):
        return str(reason["advice"])
    again = resume_hint(run_id, reason.get("source"))
    why = reason.get("why")
    if why == MISMATCH:
        settle = hint("resolve", run_id, "KEY")
        return (
            'Guard the new code with `if hf.patched("some-id"):`, restore the call, or settle an open effect with '
            f"`{settle}`; then `{again}`."
        )
    return (
        f"Find out what kills the process, then `{again}`." if why == CRASH_LOOP else f"When that is mended: `{again}`."
    )
