"""The diagnosis of a run whose code asks for what its journal does not have, as it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry

MISMATCH: Final = "replay mismatch"


def mismatch(*, asked: str, where: str, recorded: Iterable[Entry], attempted: Sequence[str]) -> dict[str, Any]:
    """The diagnosis of a run that cannot go on with this code: what it asked for, and what the journal has."""
    left = [
        {"key": e.key, "name": e.name, "seq": e.seq, "args": (e.args or "")[:200], "open": e.is_open_effect}
        for e in recorded
    ]
    return {"why": MISMATCH, "asked": asked, "where": where, "recorded": left, "attempted": list(attempted)}
