"""Plans: the items that a run works through, and the operations that change them.

An operation names items by ids that stay what they are, and changes nothing else; so what a run and a person do at the
same time does not undo one another. One on an item that is gone changes nothing, and says so.

op        has                what it does
begin     items              the first items, if there is no plan yet
tick      id, note           done
untick    id                 not done after all
add       text, after, as    a new item behind another one; "" is the top, None the end. A person's has a name (`as`),
                             by which the same person's next operations call it
drop      id
rewrite   id, text
reorder   ids                these take the places that they have, in this order; the others stay where they are
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.base.data import data

Op = Mapping[str, Any]

#: The name of the calls that change a plan, or look at it.
PLAN: Final = "hf:plan"


@data
class PlanItem:
    """One item of a plan."""

    id: str  #: stays what it is; `3`, or `e7.1` for one that a person added
    text: str
    done: bool = False
    note: str = ""  #: what was said when it was ticked


class Plan:
    """The items of a run's plan, as the operations so far have left them."""

    def __init__(self, said: Mapping[str, Any] | None = None) -> None:
        self.restore(said)

    def restore(self, said: Mapping[str, Any] | None) -> None:
        """Have it as it was stored."""
        said = said or {}
        self.has_begun = bool(said)
        self.items: list[PlanItem] = [PlanItem(**each) for each in said.get("items", ())]
        self.added = int(said.get("added", 0))  #: items that the run itself has added so far
        self.gone: set[str] = set(said.get("gone", ()))

    def plain(self) -> dict[str, Any] | None:
        """As it is stored; None: there is no plan."""
        if not self.has_begun:
            return None
        items = [{"id": i.id, "text": i.text, "done": i.done, "note": i.note} for i in self.items]
        return {"items": items, "added": self.added, "gone": sorted(self.gone)}

    def knows(self, item_id: str) -> bool:
        """Is there such an item, or was there one?"""
        return item_id in self.gone or self._place(item_id) is not None

    def take(self, ops: Sequence[Op], mail: int) -> list[str]:
        """Apply what a person sent; what of it changed nothing, in words."""
        names: dict[str, str] = {}
        return [said for op in ops if (said := self.apply(op, mail=mail, names=names))]

    def apply(self, op: Op, *, mail: int = 0, names: dict[str, str] | None = None) -> str:
        """Apply one operation; why it changed nothing, if it did not. `names` are those that the sender gave items."""
        names = {} if names is None else names
        self.has_begun = True
        match op:
            case {"op": "begin", "items": items}:
                for text in items:
                    self.items.append(PlanItem(self._own_id(), text))
            case {"op": "add", "text": text}:
                new = self._own_id() if not mail else f"e{mail}.{len(names) + 1}"
                if mail:
                    names[str(op.get("as", new))] = new
                self._insert(PlanItem(new, text), op.get("after"), names)
            case {"op": "reorder", "ids": ids}:
                return self._reorder([names.get(each, each) for each in ids])
            case {"op": "tick" | "untick" | "drop" | "rewrite" as what, "id": item_id}:
                return self._change(what, names.get(str(item_id), str(item_id)), op)
            case _:
                return f"{op.get('op')!r} is not known here"
        return ""

    def _own_id(self) -> str:
        self.added += 1
        return str(self.added)

    def _place(self, item_id: str) -> int | None:
        return next((n for n, item in enumerate(self.items) if item.id == item_id), None)

    def _insert(self, item: PlanItem, after: str | None, names: Mapping[str, str]) -> None:
        if after == "":
            self.items.insert(0, item)
            return
        place = None if after is None else self._place(names.get(after, after))
        self.items.insert(len(self.items) if place is None else place + 1, item)

    def _change(self, what: str, item_id: str, op: Op) -> str:
        place = self._place(item_id)
        if place is None:
            return f"{what} of item {item_id}, which is gone"
        item = self.items[place]
        match what:
            case "tick":
                self.items[place] = replace(item, done=True, note=str(op.get("note") or item.note))
            case "untick":
                self.items[place] = replace(item, done=False)
            case "rewrite":
                self.items[place] = replace(item, text=str(op["text"]))
            case _:
                del self.items[place]
                self.gone.add(item_id)
        return ""

    def _reorder(self, ids: Sequence[str]) -> str:
        there = [each for each in dict.fromkeys(ids) if self._place(each) is not None]
        places = sorted(place for each in there if (place := self._place(each)) is not None)
        moved = [item for each in there for item in self.items if item.id == each]
        for place, item in zip(places, moved, strict=True):
            self.items[place] = item
        missing = [each for each in ids if each not in there]
        return f"reorder of items {', '.join(missing)}, which are gone" if missing else ""
