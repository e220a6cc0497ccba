"""Raising what a run may use, and waking up those that waited for that."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.base import faults
from holdfast.base.hints import hint
from holdfast.control.acting import act_of, existing
from holdfast.control.amendments import amend
from holdfast.control.mail import Unowned, send_mail
from holdfast.errors import UsageError
from holdfast.model import Kind, MailKind, NoteKind, RunFilter, RunId, RunRow, Status
from holdfast.model.budgets import BUDGET, Budget, Used, raised, reached
from holdfast.model.diagnoses import OverBudget
from holdfast.model.reasons import Blocked
from holdfast.store.contract import Store
from holdfast.store.runs import every_run


async def change_budget(store: Store, run_id: RunId, given: Budget, *, by: str | None, note: str) -> bool:
    """Have a run use no more than this from now on, with all that comes of it. True: that is written down.

    False: its owner was told, and wakes up who waited for it. UsageError if that would not let it go on: it has used
    more already, or waits for the budget of another run. To say it twice is to say it once.
    """
    given.checked("budget=")
    act = act_of(by, note, "")
    while True:
        row = await existing(store, run_id)
        await _refuse(store, row, given)
        limit = raised(Budget.read(row.summary.get(BUDGET)), given).plain()
        if row.owner is None:
            noted = [(Kind.noted, NoteKind.budget, {"limit": limit, **act})]
            if await amend(store, row, noted, status=row.status, reason=row.reason, wake_at=row.wake_at, budget=limit):
                faults.point("budget.raised")
                return True
            continue
        try:
            await send_mail(store, run_id, MailKind.budget, "", {"limit": given.plain(), **act})
        except Unowned:
            continue
        return False


async def _refuse(store: Store, row: RunRow, given: Budget) -> None:
    if row.status.is_final:
        raise UsageError(f"Run {row.id} is {row.status}: it uses nothing any more, and needs no budget.")
    match row.reason:
        case Blocked(found=OverBudget(owner=owner)) if owner != row.id:
            raise UsageError(
                f"Run {row.id} waits for the budget of run {owner}, which it came of. Raise that one: "
                f"`{hint('resume', owner, options=('--budget', 'cost=AMOUNT'))}`."
            )
    family = await store.family_use(row.id, row.id)
    over = reached(given, family.used + Used.of(row.summary))
    if over is not None:
        raise UsageError(
            f"Run {row.id} has used {over.used:g} {over.what} already, with all that came of it: a budget of "
            f"{over.limit:g} would not let it go on. Give more."
        )


async def waiting_for_budget(store: Store, owner: RunId) -> AsyncIterator[RunId]:
    """The runs that came of one with a budget, and are blocked because it was used up."""
    above = [owner]
    while above:
        async for row in every_run(store, RunFilter(parent_id=above.pop())):
            above.append(row.id)
            if is_over(row, owner):
                yield row.id


def is_over(row: RunRow, owner: RunId) -> bool:
    """Is it blocked because this one's budget was used up?"""
    if row.status is not Status.blocked or row.owner is not None:
        return False
    match row.reason:
        case Blocked(found=OverBudget(owner=found)):
            return found == owner
        case _:
            return False
