"""What of a parked run somebody outside can end, whether it has a deadline or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, assert_never

from holdfast.model import RunFilter, Status, Wait, WaitKind, reasons
from holdfast.model.reasons import Reason
from holdfast.store.contract import Store
from holdfast.testing.reading import read

_PARKED = frozenset({Status.waiting, Status.in_doubt, Status.paused})


class Standing(Protocol):
    """A run as its row or a `RunInfo` has it."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> Status: ...
    @property
    def reason(self) -> Reason | Mapping[str, Any] | None: ...


def open_waits(runs: Iterable[Standing]) -> dict[str, str]:
    """The questions, signals, doubts and pauses that runs are parked on: what each is, by run and key."""
    found = {}
    for run in runs:
        if run.status is Status.paused:
            found[f"{run.id} paused"] = f"{run.id} is paused"
        if run.status not in _PARKED:
            continue
        reason = reasons.of(run.reason) if isinstance(run.reason, Mapping) else run.reason
        for wait in reasons.waits_of(reason):
            if text := _in_words(wait):
                found[f"{run.id} {wait.key}"] = f"{run.id} {text}"
    return found


def read_open_waits(url: str, run_id: str) -> dict[str, str]:
    """Those of a run and of the runs it started."""

    async def find(store: Store) -> dict[str, str]:
        rows = await store.runs(RunFilter(id_prefix=run_id, limit=10_000))
        return open_waits(row for row in rows if row.id == run_id or row.id.startswith(f"{run_id}."))

    return read(url, find)


def _in_words(wait: Wait) -> str:
    """Empty if nobody outside can end it: a timer, a child."""
    match wait.kind:
        case WaitKind.question:
            return f"asks {wait.prompt!r}"
        case WaitKind.signal:
            return f"waits for signal {wait.name!r}"
        case WaitKind.doubt:
            return f"is in doubt about {wait.key}"
        case WaitKind.timer | WaitKind.child | WaitKind.unknown:
            return ""
        case _:
            assert_never(wait.kind)
