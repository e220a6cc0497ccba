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
        except apsw.SQLError as error:
            for older in _older().get(statements, ()):
                try:
                    return super().execute(older, bindings, **options)
                except apsw.SQLError:
                    pass  # it is older still, or the first error is what there is to say
            raise error from None


@functools.cache
def _older() -> dict[str, list[str]]:
    """What asks an older store, the newest of them first, by what asks for the same now."""
    new = load_queries("sqlite")
    old = [load_queries("sqlite", turn=OLDER_TURN, has_tags=has_tags) for has_tags in (True, False)]
    return {new[name]: [each[name] for each in old if each[name] != new[name]] for name in new}
