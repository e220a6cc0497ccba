"""What `watch` shows at one moment, as lines that fit the terminal; drawn by `live.py`, or printed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.base.hints import hint
from holdfast.cli.text import LOST, SHAPES, clean, pad, shorten, width
from holdfast.cli.timeline import Line, fitted, timeline_lines
from holdfast.history.info import RunInfo
from holdfast.history.snapshot import Snapshot, in_order
from holdfast.history.timeline import TimelineItem
from holdfast.history.waiting import next_steps, now_of
from holdfast.history.words import amount, count, duration
from holdfast.model import Status

_BAR = 10
_LEAST_NOW = 20  #: columns that NOW keeps before another column is given up
_SHORT_ID = 11  #: enough of a run's id to be unique: most of its time of creation


# all runs


def snapshot_lines(snapshot: Snapshot, columns: int, rows: int) -> list[Line]:
    """The whole picture, in so many columns and rows."""
    lines = [_counts(snapshot, columns), []]
    if not snapshot.runs:
        return [*lines, [("No runs.", "dim")]]
    shown, room = snapshot.runs, max(1, rows - 5)
    left = len(shown) - room
    if left > 0:
        shown = [*in_order(snapshot.open), *snapshot.ended][:room]
    lines += _table(shown, snapshot.at, columns)
    if left > 0 or snapshot.is_cut:
        lines.append([(f"… {left if left > 0 else ''}{'' if not snapshot.is_cut else '+'} more: holdfast runs", "dim")])
    return [fitted(line, columns) for line in lines]


def _counts(snapshot: Snapshot, columns: int) -> Line:
    """`2 running · 1 waiting      1 worker · mail 12 queued · 1 question (holdfast questions)`"""
    states = Counter(info.status for info in snapshot.open)
    lost = sum(info.is_lost for info in snapshot.open)
    line: Line = []
    for status, number in sorted(states.items(), key=lambda each: list(Status).index(each[0])):
        shape, word, style = SHAPES[status]
        line += [(" · " if line else "", "dim"), (f"{shape} {number} {word}", style)]
    if lost:
        line += [(" · ", "dim"), (f"{LOST[0]} {lost} {LOST[1]}", LOST[2])]
    if not line:
        line = [("nothing under way", "dim")]
    used = sum(width(text) for text, _ in line)
    is_first = True
    for texts, style in _facts(snapshot):
        fitting = [text for text in texts if used + width(text) + 3 < columns]
        if not fitting:
            continue
        line += [(" │ " if is_first else " · ", "dim"), (fitting[0], style)]
        used, is_first = used + width(fitting[0]) + 3, False
    return line


def _facts(snapshot: Snapshot) -> list[tuple[tuple[str, ...], str]]:
    """What stands beside the counts: in long, and in short where there is less room; the most important first."""
    facts: list[tuple[tuple[str, ...], str]] = []
    if snapshot.questions:
        asked = count(snapshot.questions, "question")
        facts.append(((f"{asked} (holdfast questions)", asked), "yellow"))
    facts.append(((count(snapshot.workers, "worker"),), "") if snapshot.workers else (("no worker",), "yellow"))
    for name, number in list(snapshot.queues.items())[:2]:
        facts.append(((clean(f"queue {name}: {number}", one_line=True),), ""))
    return facts


Cell = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    of: Callable[[RunInfo, datetime], Cell]
    rank: int  #: those of the highest rank are given up first on a narrow terminal; 0: never
    is_right: bool = False


def _status(info: RunInfo, at: datetime) -> Cell:
    shape, word, style = LOST if info.is_lost else SHAPES[info.status]
    return f"{shape} {word}", style


def _progress(info: RunInfo, at: datetime) -> Cell:
    share = share_of(info.progress)
    return ("" if share is None or info.status.is_final else bar(share)), "green"


_COLUMNS = (
    _Column("STATUS", _status, 0),
    _Column("RUN", lambda info, at: (clean(info.id, one_line=True), ""), 0),
    _Column("AGENT", lambda info, at: (clean(info.agent, one_line=True), ""), 2),
    _Column("NOW", lambda info, at: (clean(now_of(info, now=at), one_line=True), ""), 0),
    _Column("PROGRESS", _progress, 5),
    _Column("CALLS", lambda info, at: (str(info.steps + info.effects), ""), 3, is_right=True),
    _Column("AGE", lambda info, at: (_age(info, at), ""), 1, is_right=True),
    _Column("COST", lambda info, at: (amount(info.cost), ""), 4, is_right=True),
)


def _age(info: RunInfo, at: datetime) -> str:
    end = info.updated_at if info.status.is_final else at
    return duration(max(0.0, (end - info.created_at).total_seconds()))


def share_of(progress: Mapping[str, Any] | None) -> float | None:
    """How much is done, from 0 to 1; None if nobody knows how much there is."""
    if not progress:
        return None
    done, total = progress.get("done"), progress.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return None
    return min(1.0, max(0.0, done / total))


def bar(share: float, columns: int = _BAR) -> str:
    """`━━━━────── 40%`; readable without colours."""
    filled = int(share * columns)
    return f"{'━' * filled}{'─' * (columns - filled)} {share:.0%}"


def _table(infos: list[RunInfo], at: datetime, columns: int) -> list[Line]:
    cells = {column.name: [column.of(info, at) for info in infos] for column in _COLUMNS}
    kept = [c for c in _COLUMNS if c.name not in ("PROGRESS", "COST") or any(text for text, _ in cells[c.name])]
    widths = {c.name: max(width(c.name), *(width(text) for text, _ in cells[c.name])) for c in kept}
    wished = min(widths["NOW"], _LEAST_NOW)

    def over() -> int:
        others = sum(widths[c.name] for c in kept if c.name != "NOW")
        return others + wished + 2 * (len(kept) - 1) - (columns - 1)

    while over() > 0 and any(c.rank for c in kept):
        if widths["RUN"] > _SHORT_ID and max(c.rank for c in kept) < 4:
            widths["RUN"] = max(_SHORT_ID, widths["RUN"] - over())
            if over() <= 0:
                break
        kept.remove(max(kept, key=lambda c: c.rank))
    widths["NOW"] = max(len("NOW"), min(widths["NOW"], wished - over()))
    lines: list[Line] = [[("  ".join(_aligned(c.name, widths[c.name], c.is_right) for c in kept), "dim")]]
    for number, info in enumerate(infos):
        line: Line = []
        for c in kept:
            text, style = cells[c.name][number]
            line += [
                ("  " if line else "", ""),
                (_aligned(shorten(text, widths[c.name]), widths[c.name], c.is_right), style),
            ]
        lines.append([(text, "dim") for text, _ in line] if info.status is Status.cancelled else line)
    return lines


def _aligned(text: str, columns: int, is_right: bool) -> str:
    return " " * (columns - width(text)) + text if is_right else pad(text, columns)


# one run


def run_lines(
    info: RunInfo, timeline: list[TimelineItem], at: datetime, columns: int, rows: int, *, source: str | None = None
) -> list[Line]:
    """One run: how it stands, its latest history, and what to do if it needs somebody."""
    shape, word, style = LOST if info.is_lost else SHAPES[info.status]
    now = clean(now_of(info, now=at), one_line=True)
    title = f"{clean(info.agent, one_line=True)}  {clean(info.id, one_line=True)}  "
    status = f"{shape} {word}" + (f": {now}" if now and not info.is_lost else "")
    head: list[Line] = [[(title, "bold"), (shorten(status, max(20, columns - width(title) - 1)), style)]]
    share = share_of(info.progress)
    facts = [
        count(info.steps + info.effects, "call"),
        _age(info, at),
        amount(info.cost),
        count(info.input_tokens + info.output_tokens, "token") if info.input_tokens + info.output_tokens else "",
    ]
    second: Line = [(" · ".join(part for part in facts if part), "dim")]
    if share is not None and not info.status.is_final:
        second = [(bar(share, 20), "green"), ("  ", ""), *second]
    head += [second, []]
    foot = [[(text, "bold")] for text in next_steps(info, source)]
    body = list(timeline_lines(timeline, columns, now=at))
    room = max(3, rows - len(head) - len(foot) - 3)
    if len(body) > room:
        body = [[(f"… {len(body) - room} earlier: {hint('show', info.id)}", "dim")], *body[-room:]]
    # Commands are never cut: they are there to be copied.
    return [*(fitted(line, columns) for line in [*head, *body]), *([[]] if foot else []), *foot]
