"""The part of a store's contract that is about keeping it: what is removed, what is taken elsewhere, and its health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.model import Act, Ended, Removal, RunId, RunRow, SchemaStep, Whole
from holdfast.store.problems import Problem


class Upkeep(Protocol):
    """What is removed, what is taken elsewhere, and the store as a whole."""

    async def ended(
        self, agent: str, *, before: int, limit: int, after: tuple[int, RunId] | None = None
    ) -> list[Ended]:
        """Runs of an agent that ended before a time and have not been emptied, oldest first (by created_at, id).

        That is: the status is final, and the last change (`updated_at`) was before that time. `after`: from behind
        this (created_at, id) on.
        `is_free`: nobody owns it, none of its questions is open, none of its children is unfinished, and all of its
        ancestors that exist ended before that time too.
        """
        ...

    async def ended_agents(self) -> list[str]:
        """The agents that have runs which have ended and have not been emptied, in order.

        What it costs does not grow with the number of runs.
        """
        ...

    async def prune(self, tombstones: Sequence[RunRow], *, before: int | None, most: int, now: int) -> list[Removal]:
        """Make runs into tombstones, each if it is as expected, in one commit; what became of each.

        A tombstone has the stored epoch and one more, so that whoever wants to claim the run must look again. It is
        `kept` as it was if epoch, head or status are others, if somebody owns it, or if it is not free as `ended`
        says (`before` None: not asked). One that is stored already, as given, is gone on with.
        Removed are records, blobs, files, questions and mail. Mail with a dedup id stays, with number, kind and key and
        without body and digest (both empty), so that it is still known. At most `most` rows are removed, a chunk of a
        blob or file counting as 50; a run that has more is `partly` removed: call again. The mail counter stays.
        A run that is `gone` is not listed by `ended` any more, but by `tombstones`, with `now` as its time.
        """
        ...

    async def tombstones(
        self, *, before: int, limit: int, agent: str | None = None, after: RunId | None = None
    ) -> list[RunRow]:
        """Runs that were emptied before a time, by id, from behind `after` on."""
        ...

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        """Remove tombstones with what is left of them, in one commit; how many there were. Other runs are left."""
        ...

    async def whole(self, run_id: RunId, *, bare: bool = False) -> Whole | None:
        """All of a run, of one moment; CorruptJournal if it cannot be read.

        `bare`: without what may be much, and can be read in parts: records, blobs, mail, questions.
        """
        ...

    async def put(self, whole: Whole, *, instead_of: RunRow | None = None, act: Act | None = None) -> RunRow:
        """Store a run as it is elsewhere, unowned, with all it has, in one commit; what is stored under its id now.

        If the id exists, nothing is changed. `instead_of`: the run that is stored, with this epoch and digest and
        without an owner, is removed with all it has in the same commit; if it is another by now, nothing is changed.
        `act`: who did it, kept in the same commit if it is new. Rings if the run may be claimed.
        """
        ...

    # for doctor, verify, migrate and backup
    async def check(self) -> list[Problem]:
        """What is wrong with the store, and with how it is kept; empty when sound."""
        ...

    async def statistics(self) -> dict[str, int | str]:
        """Sizes and versions for `doctor`."""
        ...

    async def largest(self, limit: int) -> list[tuple[RunId, int, int]]:
        """The runs that take most, with how many records they have and how many bytes of values, largest first."""
        ...

    async def schema(self) -> list[SchemaStep]:
        """The migrations that this code knows, and those that a newer one applied."""
        ...

    def known_schema(self) -> list[SchemaStep]:
        """The migrations that this code knows, as if none were applied; the store need not exist."""
        ...

    async def backup(self, path: str) -> int:
        """Write a copy of everything, of one moment, to a new file, while others go on; how many bytes it has.

        UsageError if the file exists, or if this sort of store is backed up by other programs.
        """
        ...
