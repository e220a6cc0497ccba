"""The heads of turns among drafts: which records belong to which turn, and where the journal is cut then."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.journal.chain import Draft, linked
from holdfast.model import Cut, Record, RunRow


class Heads:
    """Checkpoints that have no number yet."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []  #: the place of each draft, and up to which number mail was read

    def add(self, place: int, mail: int) -> None:
        """The draft at this place is one; mail up to this number was read."""
        self.found.append((place, mail))

    def taken(self) -> list[tuple[int, int]]:
        """Those that there are; there are none then."""
        found, self.found = self.found, []
        return found

    def give_back(self, taken: list[tuple[int, int]], drafts: int) -> None:
        """So many drafts are drafts again, before those that were made since, and these heads among them."""
        self.found = taken + [(place + drafts, mail) for place, mail in self.found]


def linked_turns(
    drafts: Sequence[Draft], heads: Sequence[tuple[int, int]], row: RunRow, *, head_seq: int, head_hash: bytes
) -> tuple[tuple[Record, ...], Cut]:
    """The drafts as records of the turns that begin among them, and where the journal is cut after the last."""
    records: list[Record] = []
    seq, last, cut, place = head_seq, head_hash, row.cut, 0
    for turn, (head, mail) in enumerate(heads, row.turn):
        records += linked(drafts[place:head], epoch=row.epoch, turn=turn, head_seq=seq, head_hash=last)
        if records:
            seq, last = records[-1].seq, records[-1].hash
        prologue = (seq, last) if cut is None else cut[:2]
        cut, place = Cut(*prologue, seq + 1, last, mail), head
    assert cut is not None
    turn = row.turn + len(heads)
    records += linked(drafts[place:], epoch=row.epoch, turn=turn, head_seq=seq, head_hash=last)
    return tuple(records), cut
