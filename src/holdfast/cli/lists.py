"""Lists as all commands print them: a table on a terminal, tab-separated lines in a pipe, JSON when asked."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.base.clock import now_us
from holdfast.cli.setup import Setup
from holdfast.cli.text import clean, duration, table, to_json


@dataclass(frozen=True, slots=True)
class Listed:
    """One item: what JSON, a pipe and a terminal get of it. The cell `style` colours is the first."""

    facts: dict[str, Any]
    line: Sequence[object]
    cells: Sequence[str]
    style: str = ""


def show_list(
    setup: Setup, items: Sequence[Listed], *, head: Sequence[str], flexible: int, nothing: str, footer: str = ""
) -> None:
    """Print the items; `nothing` is said on stderr if there are none, `footer` below a table.

    A column of a table that is empty is left out.
    """
    if setup.is_json:
        print(to_json({"items": [item.facts for item in items]}))
        return
    if not items:
        print(clean(nothing), file=sys.stderr)
        return
    if not setup.is_table:
        for item in items:
            print(line_of(item.line))
        return
    kept = [n for n in range(len(head)) if n in (0, 1, flexible) or any(item.cells[n] for item in items)]
    print(
        table(
            [head[n] for n in kept],
            [[clean(item.cells[n], one_line=True) for n in kept] for item in items],
            columns=shutil.get_terminal_size().columns,
            flexible=kept.index(flexible),
            styles=[item.style for item in items],
            has_color=setup.has_color(sys.stdout),
        )
    )
    if footer:
        print(clean(footer), file=sys.stderr)


def line_of(parts: Sequence[object]) -> str:
    """A line for a pipe; what is missing is empty."""
    return "\t".join("" if part is None else clean(str(part), one_line=True) for part in parts)


# times


def ago(at: datetime | None) -> str:
    """How long ago, in few letters."""
    return "" if at is None else duration(max(0.0, now_us() / 1e6 - at.timestamp()))


def clock_time(at: datetime, *, now: datetime) -> str:
    """`14:05:00`, or the day and `14:05` if it is not today, in local time."""
    local, today = at.astimezone(), now.astimezone()
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%Y-%m-%d %H:%M}"


def left_text(due: datetime, *, now: datetime | None = None) -> str:
    """`in 3h05m`"""
    left_s = due.timestamp() - (now_us() / 1e6 if now is None else now.timestamp())
    return f"in {duration(left_s)}" if left_s > 0 else "due now" if left_s > -5 else f"due {duration(-left_s)} ago"


def due_text(due: datetime, *, now: datetime) -> str:
    """`14:05 (in 3h05m)`"""
    return f"{clock_time(due, now=now)} ({left_text(due, now=now)})"


def stamp(at: datetime | None) -> str | None:
    """A time for machines."""
    return None if at is None else at.isoformat(timespec="milliseconds")
