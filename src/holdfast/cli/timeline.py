"""A run's timeline as lines for a terminal; `show` prints it, `watch` lets it grow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from holdfast.cli.text import clean, pad, paint, shorten, width
from holdfast.history.series import series_of
from holdfast.history.timeline import TimelineItem
from holdfast.history.words import duration

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
    rows = [(series, clean(series.name, one_line=True)) for series in series_of(timeline)]
    names = min(max([width(name) for _, name in rows], default=0), max(20, columns // 3))
    for series, name in rows:
        item = series.last
        local = item.at.astimezone()
        if local.date() != day:
            day = local.date()
            yield [(f"{day}", "dim")]
        if item.kind in ("outage", "resumed"):
            yield [(outage_line(item, columns), "yellow")]
            continue
        took_s = series.took_s
        if now is not None and item.status == "running":
            took_s = max(0.0, (now - item.at).total_seconds())
        took = "" if took_s is None else duration(took_s)
        mark, style = MARKS.get(item.status, ("·", ""))
        mark = f"◈→{mark}" if series.was_in_doubt else mark
        detail = ": ".join(part for part in (series.word, clean(series.detail, one_line=True)) if part)
        start = f"{local:%H:%M:%S}  {pad(shorten(name, names), names)}  {pad(series.kind, 10)}"
        rest = f"{pad(mark, 3)} {took:>6}  {detail}".rstrip()
        yield [(start, ""), (shorten(rest, max(20, columns - width(start) - 1)), style)]


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
