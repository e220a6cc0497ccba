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
from holdfast.cli.text import clean, folded, table, to_json
from holdfast.history.words import duration


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
        print(folded(clean(nothing), sys.stderr), file=sys.stderr)
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
        print(folded(clean(footer), sys.stderr), file=sys.stderr)


def line_of(parts: Sequence[object]) -> str:
    """A line for a pipe; what is missing is empty."""
    return "\t".join("" if part is None else clean(str(part), one_line=True) for part in parts)


# times


def ago(at: datetime | None) -> str:
    """How long ago, in few letters."""
    return "" if at is None else duration(max(0.0, now_us() / 1e6 - at.timestamp()))


def stamp(at: datetime | None) -> str | None:
    """A time for machines."""
    return None if at is None else at.isoformat(timespec="milliseconds")
