"""The timeline as people read it: without what only machines need, long series of the same call as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from holdfast.base.data import data
from holdfast.history.facts import Facts
from holdfast.history.timeline import TimelineItem

_CALLS = frozenset({"step", "effect", "child"})
_GROUPED_FROM = 4
#: Statuses that a mark tells: they need no word of their own.
_TOLD = frozenset({"done", "failed", "retried", "waiting"})
#: What people do to a run.
_ACTS = frozenset({"paused", "resumed", "told to stop", "refused"})


@data
class Series(Facts):
    """One thing that happened, or the same call several times in a row."""

    last: TimelineItem  #: the item, or the last one
    number: int  #: of items
    name: str
    kind: str  #: of a call; empty for what needs no kind
    took_s: float | None  #: all of them together
    was_in_doubt: bool  #: and settled since
    word: str  #: the status in words, where a mark alone does not tell it
    detail: str


def series_of(timeline: Sequence[TimelineItem]) -> list[Series]:
    """What there is to read, in order."""
    told = [
        item
        for item in timeline
        if item.kind not in ("now", "started", "cancel") and not (item.kind == "timeout" and item.status == "done")
    ]
    found: list[Series] = []
    for (name, kind, status), same in groupby(told, key=lambda item: (item.name, item.kind, item.status)):
        items = list(same)
        if len(items) >= _GROUPED_FROM and status == "done" and kind in _CALLS:
            took_s = sum(item.took_s or 0 for item in items)
            detail = f"{items[0].key} … {items[-1].key}"
            found.append(Series(items[-1], len(items), f"{name} ×{len(items)}", kind, took_s, False, "", detail))
        else:
            found += [_alone(item) for item in items]
    return found


def _alone(item: TimelineItem) -> Series:
    is_act = item.kind == "note" and item.status in _ACTS
    name = item.key or (item.status if is_act else item.name if item.kind in ("note", "patched") else item.kind)
    if item.kind == "interrupt" and name.endswith(".end"):
        name = f"{name.removesuffix('.end')} reply"
    return Series(
        last=item,
        number=1,
        name=name.removeprefix("hf:"),
        kind="" if item.kind in ("finished", "retried", "note", "patched") else item.kind,
        took_s=item.took_s,
        was_in_doubt="in doubt (" in item.detail and item.status in ("done", "failed"),
        word=item.status if item.kind == "finished" or not (is_act or item.status in _TOLD) else "",
        detail=item.detail,
    )
