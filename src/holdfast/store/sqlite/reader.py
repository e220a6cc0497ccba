"""Connections that only read. They cannot bring tables up to date, so they ask older ones in their own words."""

from __future__ import annotations

import functools
from typing import Any

import apsw

from holdfast.store.queries import OLDER_TURN, load_queries


class Reader(apsw.Connection):
    """A connection that reads, also what nobody has brought up to date yet."""

    def execute(self, statements: str, bindings: apsw.Bindings | None = None, **options: Any) -> apsw.Cursor:
        try:
            return super().execute(statements, bindings, **options)
        except apsw.SQLError:
            older = _older().get(statements, statements)
            if older == statements:
                raise
            return super().execute(older, bindings, **options)


@functools.cache
def _older() -> dict[str, str]:
    """What asks a store for a turn that has the name of before, by what asks for it now."""
    new, old = load_queries("sqlite"), load_queries("sqlite", turn=OLDER_TURN)
    return {new[name]: old[name] for name in new}
