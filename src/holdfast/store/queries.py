"""SQL as named blocks in a file: `-- name: x` starts a query, `-- fragment: x` a piece included elsewhere as `{x}`.

A query with `[[(?, ?)]]` is a row template: `rows(name, 64)` is its text for 64 rows. Such texts exist for powers of
two only, so that the driver's cache of prepared statements holds all of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from importlib import resources

_BLOCK = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"\{(\w+)\}")
_ROW = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)

#: Most rows that one statement takes.
MOST_ROWS = 256


class Queries:
    """The queries of one dialect, by name."""

    def __init__(self, text: str) -> None:
        pieces = _BLOCK.split(text)[1:]
        fragments: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self.purposes: dict[str, str] = {}
        for sort, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            purpose, _, sql = body.strip().partition("\n")
            if not purpose.startswith("-- ") or not sql.strip():
                raise ValueError(f"query {name!r} needs a purpose comment and a statement")
            if name in self._texts or name in fragments:
                raise ValueError(f"query {name!r} is defined twice")
            if sort == "fragment":
                fragments[name] = sql.strip()
            else:
                self._texts[name] = _INCLUDE.sub(lambda include: fragments[include[1]], sql.strip())
                self.purposes[name] = purpose.removeprefix("-- ")
        self._repeated: dict[tuple[str, int], str] = {}

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def rows(self, name: str, count: int) -> str:
        """The text of a row template for `count` rows."""
        text = self._repeated.get((name, count))
        if text is None:
            text = _ROW.sub(lambda row: ", ".join([row[1]] * count), self._texts[name])
            self._repeated[name, count] = text
        return text


def chunk_sizes(count: int) -> Iterator[int]:
    """How to split rows into as few statements as powers of two allow."""
    while count:
        size = min(1 << (count.bit_length() - 1), MOST_ROWS)
        yield size
        count -= size


@functools.cache
def load_queries(dialect: str) -> Queries:
    """The queries of a dialect, parsed once; they never change."""
    return Queries(resources.files("holdfast.store").joinpath("sql", dialect, "queries.sql").read_text("utf-8"))
