"""The plan of a run, for people: as `todo.md`, and what somebody changed in that file."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

from holdfast.base.characters import escaped
from holdfast.base.data import data
from holdfast.errors import UsageError
from holdfast.history.facts import Facts
from holdfast.journal.blobs import stored_text
from holdfast.journal.checkpoints import Past
from holdfast.journal.pages import record_pages
from holdfast.model import Kind, Mail, MailKind, Record, RunId
from holdfast.model.plans import PLAN, Op, Plan, PlanItem
from holdfast.store.contract import Store

#: A line of the file: the box, the id of the item if it has one, and its text.
_LINE = re.compile(r"\s{0,3}[-*+]\s+\[(?P<box>[ xX])\]\s+(?:(?P<id>\d+|e\d+\.\d+):(?:\s+|$))?(?P<text>.*)")


@data
class PlanInfo(Facts):
    """The plan of a run, with what people have changed and the run has not taken yet."""

    items: tuple[PlanItem, ...]
    missed: tuple[str, ...]  #: what was done to items that were gone, and changed nothing
    pending: tuple[str, ...]  #: who changed something that the run takes with its next call of the plan

    def as_dict(self) -> dict[str, Any]:
        """Everything in it, ready for JSON."""
        items = [{"id": i.id, "text": i.text, "done": i.done, "note": i.note} for i in self.items]
        return {"items": items, "missed": list(self.missed), "pending": list(self.pending)}


async def plan_of(store: Store, run_id: RunId, *, records: Sequence[Record] | None = None) -> PlanInfo | None:
    """The plan of a run; None: it has none. `records`: those of its plan and its checkpoints, for who has them."""
    plan, missed, taken = Plan(), list[str](), set[int]()
    turn = 0
    async for record in _planning(store, run_id, records):
        if record.kind == Kind.checkpoint:
            if record.turn > turn + 1:
                plan.restore(Past.read(record).plan)  # a fork has no earlier turns
            turn = record.turn
        elif record.name == PLAN and record.kind == Kind.done:
            said = json.loads(await stored_text(store, run_id, record.payload))
            taken |= _taken(record)
            for each in said["took"]:
                missed += plan.take(each["ops"], each["mail"])
            if said["op"] is not None and (why := plan.apply(said["op"])):
                missed.append(why)
    if not plan.has_begun:
        return None
    pending = [mail for mail in await store.mail(run_id, after=0) if _is_pending(mail, taken)]
    for mail in pending:
        missed += plan.take(json.loads(mail.body)["ops"], mail.number)
    by = [str(json.loads(mail.body).get("by")) for mail in pending]
    return PlanInfo(tuple(plan.items), tuple(missed), tuple(by))


async def _planning(store: Store, run_id: RunId, records: Sequence[Record] | None) -> AsyncIterator[Record]:
    row = await store.run(run_id) if records is None else None
    for record in records or ():
        yield record
    if row is not None:
        async for page in record_pages(store, row):
            for record in page:
                yield record


def _taken(record: Record) -> set[int]:
    return set(json.loads(record.args)["mail"]) if record.args else set()


def _is_pending(mail: Mail, taken: set[int]) -> bool:
    return mail.kind == MailKind.plan and mail.number not in taken


# as text


def prompt_text(items: Sequence[PlanItem]) -> str:
    """A line for each item: `- [x] 1: read the tests (3 failed)`."""
    return "\n".join(_line(item) for item in items)


def todo_text(run_id: str, items: Sequence[PlanItem]) -> str:
    """The plan as a file that people read and edit, without anything that is not seen."""
    return escaped(f"# Plan of {run_id}\n\n{prompt_text(items)}\n")


def _line(item: PlanItem) -> str:
    return f"- [{'x' if item.done else ' '}] {item.id}: {item.text}{_note(item)}"


def _note(item: PlanItem) -> str:
    return f" ({' '.join(item.note.split())})" if item.note else ""


# and back


def changes_in(shown: Sequence[PlanItem], edited: str) -> list[Op]:
    """What somebody changed in the file that they were shown, and nothing else; UsageError if a line makes no sense."""
    was = {item.id: item for item in shown}
    ops: list[Op] = []
    seen: list[str] = []
    new = 0
    behind = ""
    for number, line in enumerate(edited.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        item_id, text = found["id"], " ".join(found["text"].split())
        if item_id is None:
            if not text:
                raise UsageError(f"Line {number} is an item without a text.")
            new += 1
            name = f"new-{new}"
            ops.append({"op": "add", "text": text, "after": behind, "as": name})
            if found["box"] != " ":
                ops.append({"op": "tick", "id": name, "note": ""})
            behind = name
            continue
        item = was.get(item_id)
        if item is None:
            raise UsageError(f"Line {number}: there is no item {item_id}. A new item has no number.")
        if item_id in seen:
            raise UsageError(f"Line {number}: item {item_id} is there twice. A new item has no number.")
        seen.append(item_id)
        behind = item_id
        ops += _changed(item, is_done=found["box"] != " ", text=text)
    ops += [{"op": "drop", "id": item_id} for item_id in was if item_id not in seen]
    if moved := _moved([item_id for item_id in was if item_id in seen], seen):
        ops.insert(0, {"op": "reorder", "ids": moved})
    return ops


def _moved(was: list[str], now: list[str]) -> list[str]:
    """The stretch that is in another order, as it is now."""
    differ = [place for place, (before, after) in enumerate(zip(was, now, strict=True)) if before != after]
    return now[differ[0] : differ[-1] + 1] if differ else []


def _changed(item: PlanItem, *, is_done: bool, text: str) -> list[Op]:
    """What a line says that was not shown; the note behind a text is not part of it."""
    ops: list[Op] = []
    if is_done != item.done:
        ops.append({"op": "tick", "id": item.id, "note": ""} if is_done else {"op": "untick", "id": item.id})
    shown = " ".join(escaped(f"{item.text}{_note(item)}").split())
    if text != shown:
        text = text.removesuffix(escaped(_note(item)))
        if not text:
            raise UsageError(f"Item {item.id} has no text any more. To drop it, remove its line.")
        ops.append({"op": "rewrite", "id": item.id, "text": text})
    return ops
