"""Text for terminals: harmless characters, colours, widths, tables."""

from __future__ import annotations

import json
import os
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

from holdfast.base.characters import escaped
from holdfast.history.words import word_of
from holdfast.model import Status

_STYLES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "dim": 2, "bold": 1}

#: status: (shape, word, colour); never the colour alone.
SHAPES = {
    status: (shape, word_of(status), style)
    for status, shape, style in (
        (Status.queued, "○", "cyan"),
        (Status.running, "▶", "blue"),
        (Status.sleeping, "◷", "cyan"),
        (Status.waiting, "✋", "yellow"),
        (Status.paused, "⏸", "yellow"),
        (Status.in_doubt, "◈", "magenta"),
        (Status.blocked, "▲", "yellow"),
        (Status.quarantined, "⛔", "red"),
        (Status.done, "✔", "green"),
        (Status.failed, "✖", "red"),
        (Status.cancelled, "⊘", "dim"),
    )
}
LOST = ("↯", "cut off", "yellow")


def clean(text: str, *, one_line: bool = False) -> str:
    """The text with everything visible that a terminal would act upon or show nothing of."""
    if one_line:
        text = re.sub(r"\s+", " ", text).strip()
    return escaped(text.replace("\r\n", "\n"))


def wrapped(text: str, columns: int, *, indent: int = 0) -> str:
    """The text on as many lines as it takes; no word is broken, however long it is: it may be there to be copied."""
    return textwrap.fill(
        text,
        max(20, columns),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


#: What a line is not broken in: a word, a command in backticks, one that another follows, one that the line ends with.
_UNITS = re.compile(
    r"""`[^`]*`\S*
    | holdfast\ [a-z-]+\ (?: [^'";] | '(?: \\. | [^'\\] )*' | "[^"]*" )*; (?=\ or\ )
    | holdfast\ [a-z-]+\ .*
    | \S+""",
    re.VERBOSE,
)


def folded(text: str, stream: TextIO) -> str:
    """Sentences as they fit a terminal: no word is broken, and no command, which is there to be copied.

    Lines that begin with a blank are left as they are; so is everything that no terminal shows.
    """
    if not stream.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    if not os.environ.get("COLUMNS"):  # the other stream may be no terminal
        with suppress(OSError):
            columns = os.get_terminal_size(stream.fileno()).columns or columns
    return "\n".join(_folded(line, columns) for line in text.split("\n"))


def _folded(line: str, columns: int) -> str:
    if width(line) <= columns or line.startswith((" ", "\x1b[2m ")):
        return line
    lines = [""]
    for unit in _UNITS.findall(line):
        longer = f"{lines[-1]} {unit}".lstrip()
        if lines[-1] and width(longer) > columns:
            lines.append(unit)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that can be read by people and cannot do anything to their terminal."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent), _in_json)


def _in_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def paint(text: str, style: str, has_color: bool) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if has_color and style in _STYLES else text


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str, columns: int) -> str:
    """The text, cut to so many columns."""
    if width(text) <= columns:
        return text
    kept = ""
    for character in text:
        if width(kept + character) > columns - 1:
            break
        kept += character
    return f"{kept}…"


def pad(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    columns: int,
    flexible: int,
    styles: Sequence[str],
    has_color: bool,
) -> str:
    """A table that fits the terminal: the column `flexible` gives way, then the second. `styles` colour the first."""
    widths = [max(width(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for column, least in ((flexible, 20), (1, 20), (flexible, len(head[flexible]))):
        over = sum(widths) + 2 * len(widths) - columns
        if over > 0:
            widths[column] = max(min(least, widths[column]), widths[column] - over)
    lines = []
    for number, row in enumerate([head, *rows]):
        cells = [pad(shorten(cell, size), size) for cell, size in zip(row, widths, strict=True)]
        if number:
            cells[0] = paint(cells[0], styles[number - 1], has_color)
        else:
            cells = [paint(cell, "dim", has_color) for cell in cells]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)
