"""Where the journal of a run with turns is cut: what a resume reads, and from which hashes it checks that.

A resume of turn 100,000 reads the prologue, the checkpoint of its turn and what follows. Where the first stretch of the
chain ends and the second begins cannot be computed, so the run's row keeps it, under its digest: the end of the
prologue, and what the checkpoint is linked to. It is a part of the row's summary: it changes with the turn, in the same
append.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

#: Its name in the summary.
CUT: Final = "cut"


class Cut(NamedTuple):
    """Of the turn that the run is in."""

    prologue: int  #: the number of the last record before the loop
    prologue_hash: bytes
    seq: int  #: of the checkpoint
    before: bytes  #: the hash of the record before it
    mail: int  #: what was sent up to this number has been read; the checkpoint says what of it nobody has taken

    def plain(self) -> list[Any]:
        """As the summary has it."""
        return [self.prologue, self.prologue_hash.hex(), self.seq, self.before.hex(), self.mail]


def cut_in(summary: Mapping[str, Any]) -> Cut | None:
    """Where the journal is cut; None: it is not, or that cannot be read, and then the row does not fit its digest."""
    try:
        prologue, prologue_hash, seq, before, mail = summary[CUT]
        return Cut(int(prologue), bytes.fromhex(prologue_hash), int(seq), bytes.fromhex(before), int(mail))
    except (KeyError, TypeError, ValueError):
        return None
