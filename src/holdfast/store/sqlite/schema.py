"""Whether a database has the tables that it should have: whoever could write the file could have put others there.

A view in the place of a table shows runs that are none, a trigger changes what is stored. Tables, views and triggers of
the user's own are theirs, as long as they are not about ours.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from holdfast.store import migrate
from holdfast.store.queries import load_queries


class SchemaPart(NamedTuple):
    """A table, index, view or trigger; `about`: the table that it belongs to."""

    kind: str
    name: str
    about: str
    sql: str | None


def problems(connection: apsw.Connection) -> list[str]:
    """What is not as the migrations that were applied have made it."""
    wanted = {part.name: part for part in _parts(migrate.made_by(len(migrate.applied(connection))))}
    tables = {part.name for part in wanted.values() if part.kind == "table"}
    found = {part.name: part for part in _parts(connection)}
    told = []
    for name, part in wanted.items():
        there = found.get(name)
        if there is None:
            told.append(f"the schema has no {part.kind} {name}")
        elif there.kind != part.kind:
            told.append(f"the schema has {name} as {there.kind}, not as {part.kind}")
        elif there != part:
            told.append(f"the {part.kind} {name} is not the one that Holdfast made")
    told += [
        f"the table {part.about} has the {part.kind} {name}, which Holdfast did not make"
        for name, part in found.items()
        if part.about in tables and name not in wanted
    ]
    advice = "somebody changed the database: compare it with a backup"
    return [f"{each}; {advice}" for each in told]


def _parts(connection: apsw.Connection) -> list[SchemaPart]:
    return [SchemaPart(*row) for row in connection.execute(load_queries("sqlite")["schema_parts"])]
