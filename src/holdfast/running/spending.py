"""What a run may still use: its own budget, and those of the runs that it came of.

What counts is what the rows of a family say, and each row's sums are committed with its records; so nothing is counted
twice, and a crash loses no more than it loses of the journal. Its own sums a run knows. Those of the others it reads,
a second old at most, and more often the less is left (`is_within_share`). Before it reads, its own are on disk: near
the limit everybody sees what everybody else has used, and what exceeds it is what was under way.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.base.clock import monotonic_us
from holdfast.model import Kind, NoteKind, RunId
from holdfast.model.budgets import BUDGET, BUDGETS, Budget, FamilyUse, Used, is_within_share, raised, reached
from holdfast.model.diagnoses import OverBudget
from holdfast.model.reasons import Blocked

if TYPE_CHECKING:
    from holdfast.journal.files import Patiently
    from holdfast.journal.journal import Journal
    from holdfast.running.activity import Activity
    from holdfast.running.host import Host

_OLD_US: Final = 1_000_000  # what is known of a family is not older than this when a body begins
_POLL_S: Final = 0.05
_NOBODY: Final = FamilyUse(None, Used(), 0, 0)


class _Known:
    """What is known of the family of one budget."""

    __slots__ = ("at_us", "family", "own")

    def __init__(self, family: FamilyUse, own: Used, at_us: int) -> None:
        self.family = family
        self.own = own  # of this run, then
        self.at_us = at_us


class SpendingRun(Protocol):
    """The execution that it is of."""

    id: RunId
    host: Host
    journal: Journal
    activity: Activity

    @property
    def patiently(self) -> Patiently: ...

    async def block(self, reason: Blocked) -> Any: ...


class Spending:
    """Of one execution of a run that has a budget, or came of one that has."""

    def __init__(self, run: SpendingRun, *, may_have_others: bool) -> None:
        self._run: SpendingRun = weakref.proxy(run)  # which holds this
        self._known: dict[str, _Known] = {}
        self._has_started = False
        self._may_have_others = may_have_others  # from before this execution; a look tells
        self._looking = asyncio.Lock()

    @property
    def limit(self) -> Budget | None:
        """Its own."""
        return Budget.read(self._run.journal.summary.get(BUDGET))

    @property
    def owners(self) -> tuple[str, ...]:
        """The runs whose budgets bind it, and all that comes of it: itself, if it has one, first."""
        above = tuple(self._run.journal.summary.get(BUDGETS, ()))
        return above if self.limit is None else (self._run.id, *above)

    def start(self) -> None:
        """It starts another run, which shares its budgets."""
        self._has_started = True

    def change(self, given: Budget, said: Mapping[str, Any]) -> None:
        """It has these limits from here on, as somebody said."""
        journal = self._run.journal
        limit = journal.summary[BUDGET] = raised(self.limit, given).plain()
        journal.add(Kind.noted, "", NoteKind.budget, payload=json.dumps({"limit": limit, **said}))

    async def toll(self) -> None:
        """Return when a new body may begin; at the limit the run is blocked, once nothing of it is under way."""
        run = self._run
        while (over := await self._over()) is not None:
            if not (run.activity.is_at_work or run.activity.threads):
                await run.block(Blocked(over))
            await asyncio.sleep(_POLL_S)

    async def _over(self) -> OverBudget | None:
        """The limit that is reached, by what is known, or by what is found if that is not enough."""
        for owner in self.owners:
            is_alone = owner == self._run.id and not (self._has_started or self._may_have_others)
            family = _NOBODY if is_alone else await self._family(owner)
            limit = self._limit(owner, family)
            found = None if limit is None else reached(limit, self._counted(limit, family.used + self._own()))
            if found is not None:
                return OverBudget(owner, found.what, found.limit, found.used)
        return None

    async def _family(self, owner: str) -> FamilyUse:
        """What others have used of a budget: as it is known, if that is enough."""
        async with self._looking:
            known = self._known.get(owner)
            if known is None or not self._is_enough(owner, known):
                with self._run.activity.busy():
                    known = await self._look(owner)
            return known.family

    async def _look(self, owner: str) -> _Known:
        run = self._run
        if owner in self._known:
            await run.journal.barrier()  # the others see what it has used before it asks for more
        at_us, own = monotonic_us(), self._own()
        family = await run.patiently(lambda: run.host.store.family_use(RunId(owner), run.id))
        if owner == run.id and not family.runs:
            self._may_have_others = False
        known = self._known[owner] = _Known(family, own, at_us)
        return known

    def _is_enough(self, owner: str, known: _Known) -> bool:
        """May it go on with what it knows? A limit that is reached is looked at again: it may have been raised."""
        if monotonic_us() - known.at_us > _OLD_US:
            return False
        own, limit = self._own(), self._limit(owner, known.family)
        if limit is None:
            return True
        used = known.family.used + own
        if reached(limit, self._counted(limit, used)) is not None:
            return False
        return is_within_share(limit, used, since=own - known.own, of=known.family.live + 1)

    def _limit(self, owner: str, family: FamilyUse) -> Budget | None:
        return self.limit if owner == self._run.id else family.limit

    def _own(self) -> Used:
        return Used.of(self._run.journal.summary)

    def _counted(self, limit: Budget, used: Used) -> Used:
        """With the steps that have begun: each is one, however long it takes."""
        activity = self._run.activity
        if limit.steps is None or used.steps + len(activity.tasks) < limit.steps:
            return used
        return used + Used(steps=activity.begun)
