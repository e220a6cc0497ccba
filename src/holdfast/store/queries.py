"""SQL as named blocks in a file: `-- name: x` starts a query, `-- fragment: x` a piece included elsewhere as `{x}`.

A query with `[[(?, ?)]]` is a row template: `rows(name, 64)` is its text for 64 rows. Such texts exist for powers of
two only, so that the driver's cache of prepared statements holds all of them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from importlib import resources
from typing import Final

_BLOCK = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"\{(\w+)\}")
_NUMBER = re.compile(r"\$(\d+)")
_MARK = re.compile(r"\?(?=::)")
_ROW = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)

#: Fragments of the first may be included by the others.
_FILES = ("queries", "lists", "workers", "database", "retention", "turns", "files", "surveys", "threads", "families")

#: The first migration after which a turn is called so in the tables, and what it was called before.
TURNS_SINCE: Final = 10
OLDER_TURN: Final = "generation"
#: The first migration with tags.
TAGS_SINCE: Final = 3

#: Most rows that one statement takes.
MOST_ROWS = 256


class Queries:
    """The queries of one dialect, by name."""

    def __init__(self, text: str, **given: str) -> None:
        pieces = _BLOCK.split(text)[1:]
        fragments = dict(given)
        self._texts: dict[str, str] = {}
        self.purposes: dict[str, str] = {}
        for sort, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            purpose, _, sql = body.strip().partition("\n")
            if not purpose.startswith("-- ") or not sql.strip():
                raise ValueError(f"query {name!r} needs a purpose comment and a statement")
            if name in self._texts or name in fragments:
                raise ValueError(f"query {name!r} is defined twice")
            sql = _INCLUDE.sub(lambda include: fragments[include[1]], sql.strip())
            if sort == "fragment":
                fragments[name] = sql
            else:
                self._texts[name] = sql
                self.purposes[name] = purpose.removeprefix("-- ")
        self._repeated: dict[tuple[str, int], str] = {}

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def become(self, other: Queries) -> None:
        """Have the texts of another one."""
        self._texts, self._repeated = other._texts, other._repeated

    def rows(self, name: str, count: int) -> str:
        """The text of a row template for `count` rows."""
        text = self._repeated.get((name, count))
        if text is None:
            text = _numbered(_ROW.sub(lambda row: ", ".join([row[1]] * count), self._texts[name]))
            self._repeated[name, count] = text
        return text


def _numbered(text: str) -> str:
    """Where parameters have numbers ($1), those of the repeated rows (?) get the ones that follow."""
    last = max((int(number) for number in _NUMBER.findall(text)), default=0)
    if not last:
        return text
    numbers = itertools.count(last + 1)
    return _MARK.sub(lambda _: f"${next(numbers)}", text)


def chunk_sizes(count: int) -> Iterator[int]:
    """How to split rows into as few statements as powers of two allow."""
    while count:
        size = min(1 << (count.bit_length() - 1), MOST_ROWS)
        yield size
        count -= size


@functools.cache
def load_queries(dialect: str, schema: str = "", *, turn: str = "turn", has_tags: bool = True) -> Queries:
    """The queries of a dialect, parsed once; they never change. `schema`: where the tables are, in SQL.

    Of tables that nobody has brought up to date: `turn` is what a turn is called in them (`OLDER_TURN`), and they may
    have no tags.
    """
    folder = resources.files("holdfast.store").joinpath("sql", dialect)
    text = "".join(folder.joinpath(f"{name}.sql").read_text("utf-8") + "\n" for name in _FILES)
    if not has_tags:
        text = text.replace("{tags}", "{no_tags}")
    return Queries(text, schema=schema, turn=turn) if schema else Queries(text, turn=turn)
