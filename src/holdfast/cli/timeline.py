"""A run's timeline as lines for a terminal; `show` prints it, `watch` lets it grow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from holdfast.cli.text import clean, duration, pad, paint, shorten, width
from holdfast.history.history import TimelineItem
from holdfast.model import QuestionRow

MARKS = {
    "done": ("✔", "green"),
    "failed": ("✖", "red"),
    "expired": ("✖", "red"),
    "cancelled": ("⊘", "dim"),
    "in doubt": ("◈", "magenta"),
    "cut off": ("↯", "yellow"),
    "running": ("▶", "blue"),
    "to be retried": ("↻", "yellow"),
    "not stored": ("▲", "yellow"),
    "retried": ("↻", "yellow"),
    "waiting": ("✋", "yellow"),
    "paused": ("⏸", "yellow"),
    "resumed": ("▶", "green"),
    "told to stop": ("⊘", "yellow"),
    "refused": ("▲", "yellow"),
}
_GROUPED_FROM = 4

Row = tuple[TimelineItem, str, str, str, str, str, str]
Line = list[tuple[str, str]]  #: pieces of text and their styles


def painted(line: Line, has_color: bool) -> str:
    """A line as it is printed."""
    return "".join(paint(text, style, has_color) for text, style in line)


def fitted(line: Line, columns: int) -> Line:
    """The line, cut to so many columns."""
    kept: Line = []
    for text, style in line:
        if width(text) > columns:
            return [*kept, (shorten(text, columns), style)] if columns > 0 else kept
        kept.append((text, style))
        columns -= width(text)
    return kept


def timeline_lines(timeline: list[TimelineItem], columns: int, *, now: datetime | None = None) -> Iterator[Line]:
    """One line for each row, below its day; with `now`, calls under way show how long they take so far."""
    day: object = None
    rows = rows_of(timeline)
    names = min(max([width(row[1]) for row in rows], default=0), max(20, columns // 3))
    for item, name, kind, mark, style, took, detail in rows:
        local = item.at.astimezone()
        if local.date() != day:
            day = local.date()
            yield [(f"{day}", "dim")]
        if item.kind in ("outage", "resumed"):
            yield [(outage_line(item, columns), "yellow")]
            continue
        if now is not None and item.status == "running":
            took = duration(max(0.0, (now - item.at).total_seconds()))
        start = f"{local:%H:%M:%S}  {pad(shorten(name, names), names)}  {pad(kind, 10)}"
        rest = f"{pad(mark, 3)} {took:>6}  {detail}".rstrip()
        yield [(start, ""), (shorten(rest, max(20, columns - width(start) - 1)), style)]


def with_deciders(timeline: list[TimelineItem], asked: Sequence[QuestionRow]) -> list[TimelineItem]:
    """The timeline with who answered which question: the journal has the answer, the question has the name."""
    decided = {row.key: row for row in asked if row.decided_by}

    def told(item: TimelineItem) -> TimelineItem:
        row = decided.get(item.key) if item.kind == "ask" and item.status == "done" else None
        if row is None:
            return item
        return replace(item, detail=f"{item.detail}, by {row.decided_by}" + (f": {row.note}" if row.note else ""))

    return [told(item) for item in timeline]


def rows_of(timeline: list[TimelineItem]) -> list[Row]:
    """What to print: without what only machines need, and with long series of the same call on one line."""
    told = [
        i
        for i in timeline
        if i.kind not in ("now", "started", "cancel") and not (i.kind == "timeout" and i.status == "done")
    ]
    rows: list[Row] = []
    for (name, kind, status), series in groupby(told, key=lambda i: (i.name, i.kind, i.status)):
        items = list(series)
        if len(items) >= _GROUPED_FROM and status == "done" and kind in ("step", "effect", "child"):
            took_s = sum(item.took_s or 0 for item in items)
            shown = f"{name} ×{len(items)}"
            detail = f"{items[0].key} … {items[-1].key}"
            rows.append(
                (
                    items[-1],
                    clean(shown, one_line=True),
                    kind,
                    *MARKS[status],
                    duration(took_s),
                    clean(detail, one_line=True),
                )
            )
        else:
            rows += [_row(item) for item in items]
    return rows


def _row(item: TimelineItem) -> Row:
    mark, style = MARKS.get(item.status, ("·", ""))
    if "in doubt (" in item.detail and item.status in ("done", "failed"):
        mark = f"◈→{mark}"
    is_act = item.kind == "note" and item.status in MARKS  # what a person did to the run
    name = item.key or (item.status if is_act else item.name if item.kind in ("note", "patched") else item.kind)
    if item.kind == "interrupt" and name.endswith(".end"):
        name = f"{name.removesuffix('.end')} reply"
    kind = "" if item.kind in ("finished", "retried", "note", "patched") else item.kind
    took = "" if item.took_s is None else duration(item.took_s)
    is_told = is_act or item.status in ("done", "failed", "retried", "waiting")
    word = item.status if item.kind == "finished" or not is_told else ""
    detail = ": ".join(part for part in (word, clean(item.detail, one_line=True)) if part)
    return item, clean(name.removeprefix("hf:"), one_line=True), kind, mark, style, took, detail


def outage_line(item: TimelineItem, columns: int) -> str:
    down_s = item.took_s or 0.0
    at, down = f"{item.at.astimezone():%H:%M:%S}", duration(down_s)
    lost, _, resumed = re.sub(r"\b(w_\w{4})\w+", r"\1…", clean(item.detail, one_line=True)).partition(", ")
    if item.kind == "outage":
        before = f"{datetime.fromtimestamp(item.at.timestamp() - down_s).astimezone():%H:%M:%S}"
        full = f"          ┄┄ {before} process {lost} ┄┄ {at} {resumed} ┄┄ down {down} ┄┄"
        short = f"          ┄┄ {before} process lost ┄┄ {at} resumed ┄┄ down {down} ┄┄"
        return full if width(full) < columns else short
    return shorten(f"          ┄┄ {at} resumed {lost}{f', {resumed}' if resumed else ''} after {down} ┄┄", columns - 1)
