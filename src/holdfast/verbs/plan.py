"""The plan of a run: what it has to do, what of it is done; the run changes it, and so do people."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.base import faults
from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.secrets import SECRETS
from holdfast.codec import Coder, coder_for, digest
from holdfast.errors import UsageError
from holdfast.history.plans import prompt_text
from holdfast.journal.drafts import OpenCall
from holdfast.model import Kind
from holdfast.model.plans import PLAN, Op, PlanItem
from holdfast.running.call import DurableCall
from holdfast.running.outcomes import answer, deliver
from holdfast.running.scopes import Scope, in_branch

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

_CODER: Coder[Any] = coder_for(Any)


async def plan(items: Iterable[str] = ()) -> Plan:
    """The plan of this run: a list of items that survives with it. `items` are those that it begins with.

    A run has one plan: where there is one already, it is that, and `items` are not looked at. Each change is a call, so
    a replay makes it once. People change it too (`holdfast plan RUN --edit`); what they did is there after the next
    call of the plan, and nobody's changes undo another's.

    Example:
        todo = await hf.plan(["read the tests", "fix the bug"])
        while item := todo.next():
            await todo.tick(item, note=await work_on(item.text))
    """
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise UsageError(f"hf.plan() takes a list of texts, one for each item; got {items!r}.")
    texts = [checked_text(each, "hf.plan()") for each in items]
    scope = in_branch("hf.plan()")
    op: Op = {"op": "begin", "items": texts}
    await PlanCall(scope, op, begins=True).make()
    return Plan(scope.run)


class Plan:
    """The plan of a run. What it shows is what is known since its last call; `refresh` has people's changes."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    @property
    def items(self) -> tuple[PlanItem, ...]:
        """All items, in order."""
        return tuple(self._run.plan.items)

    def remaining(self) -> tuple[PlanItem, ...]:
        """Those that are not done."""
        return tuple(item for item in self.items if not item.done)

    def next(self) -> PlanItem | None:
        """The first that is not done; None: all are.

        Example: `item = todo.next()`
        """
        return next(iter(self.remaining()), None)

    def prompt(self) -> str:
        """The plan as text for a model: a line for each item, with the id by which it is named."""
        return prompt_text(self.items)

    async def tick(self, item: PlanItem | str | int, note: str = "") -> None:
        """An item is done. One that somebody dropped meanwhile stays dropped.

        Example: `await todo.tick(item, note="3 tests failed")`
        """
        if not isinstance(note, str):
            raise UsageError(f"Plan.tick() takes note= as text; got {note!r}.")
        await self._change({"op": "tick", "id": self._id(item), "note": _kept(note)})

    async def add(self, text: str, after: PlanItem | str | int | None = None) -> PlanItem:
        """A new item, at the end or behind another one.

        Example: `await todo.add("write a changelog", after=item)`
        """
        behind = None if after is None else self._id(after)
        await self._change({"op": "add", "text": checked_text(text, "Plan.add()"), "after": behind})
        return next(item for item in self.items if item.id == str(self._run.plan.added))

    async def drop(self, item: PlanItem | str | int) -> None:
        """An item is not to be done.

        Example: `await todo.drop(item)`
        """
        await self._change({"op": "drop", "id": self._id(item)})

    async def reorder(self, items: Sequence[PlanItem | str | int]) -> None:
        """Have these items in this order, at the places that they have; the others stay where they are.

        Example: `await todo.reorder([3, 1])`
        """
        if isinstance(items, str) or not isinstance(items, Iterable):
            raise UsageError(f"Plan.reorder() takes a list of items, or of their ids; got {items!r}.")
        await self._change({"op": "reorder", "ids": [self._id(each) for each in items]})

    async def refresh(self) -> None:
        """Have what people have changed meanwhile.

        Example: `await todo.refresh()`
        """
        await self._change(None)

    def _id(self, item: PlanItem | str | int) -> str:
        found = item.id if isinstance(item, PlanItem) else str(item)
        if not self._run.plan.knows(found):
            there = ", ".join(each.id for each in self.items) or "none"
            raise UsageError(f"Run {self._run.id}: the plan has no item {found!r}; its items are {there}.")
        return found

    async def _change(self, op: Op | None) -> None:
        scope = in_branch("the plan of a run")
        if scope.run is not self._run:
            raise UsageError(f"This plan is of run {self._run.id}; here is run {scope.run.id}. Use hf.plan() there.")
        await PlanCall(scope, op).make()


class PlanCall(DurableCall[Any]):
    """One change to the plan, or a look at it; it takes what people have sent before."""

    __slots__ = ("begins", "op")

    def __init__(self, scope: Scope, op: Op | None, *, begins: bool = False) -> None:
        recognised = {"op": "begin"} if begins else op  # what it begins with may be another text by now
        super().__init__(scope, PLAN, digest(json.dumps(recognised, sort_keys=True)))
        self.op = op
        self.begins = begins

    @property
    def coder(self) -> Coder[Any]:
        return _CODER

    async def answer(self, entry: Entry) -> None:
        outcome = entry.outcome
        assert outcome is not None
        # At its turn, as when it was recorded: other branches see it then, too.
        await answer(
            self.scope, entry, self.coder, (), on_turn=lambda: self._fold(json.loads(self.run.text(outcome.payload)))
        )

    async def execute(self) -> None:
        scope, run, key, journal = self.scope, self.run, self.key, self.run.journal
        began = monotonic_us()
        call = OpenCall(key, self.name, 1, now_us(), self.digest, None)

        def record(tick: int) -> None:
            said, call.args = self._said()
            took = monotonic_us() - began
            journal.end(key, Kind.done, tick=tick, took=took, payload=json.dumps(said), args=call.args)
            self._fold(said)

        scope.enter_call()
        try:
            journal.begin(call)
            with run.activity.busy():
                await run.host.read_mail(run.id)  # what a person did before this call is part of it
            faults.point("plan.before_record")
            await deliver(scope, record)
        except asyncio.CancelledError:
            if not run.life.dead and journal.is_open(key):
                took = monotonic_us() - began
                journal.end(key, Kind.cancelled, tick=run.ticks.tick, took=took, payload=None)
            raise
        finally:
            scope.leave_call()
        faults.point("plan.after_record")

    def _said(self) -> tuple[dict[str, Any], str | None]:
        """What is recorded: what people sent, then the run's own operation; and the numbers of the mail, apart."""
        taken = self.run.inbox.take_plan_changes()
        took = [{"mail": mail.number, **json.loads(mail.body)} for mail in taken]
        own = None if self.begins and self.run.plan.has_begun else self.op
        numbers = json.dumps({"mail": [mail.number for mail in taken]}) if taken else None
        return {"op": own, "took": took}, numbers

    def _fold(self, said: dict[str, Any]) -> None:
        plan = self.run.plan
        for each in said["took"]:
            plan.take(each["ops"], each["mail"])
        if said["op"] is not None:
            plan.apply(said["op"])


def checked_text(text: Any, verb: str) -> str:
    """An item's text: one line, as it is recorded, so that a replay finds no other."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{verb} takes texts that are not empty; got {text!r}.")
    return _kept(" ".join(text.split()))


def _kept(text: str) -> str:
    return SECRETS.without(text) if SECRETS.is_in(text) else text
