"""The schema of a PostgreSQL store, compared with what it should be."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.samples import opened

PLANTED = {
    "view": (
        "ALTER TABLE holdfast.landed RENAME TO hidden; CREATE VIEW holdfast.landed AS SELECT * FROM holdfast.hidden",
        "has landed as view, not as table",
    ),
    "trigger": (
        "CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER evil BEFORE INSERT ON holdfast.records FOR EACH ROW EXECUTE FUNCTION evil()",
        "has the trigger evil on records, which Holdfast did not make",
    ),
    "rule": (
        "CREATE RULE evil AS ON DELETE TO holdfast.mailbox DO INSTEAD NOTHING",
        "has the rule evil on mailbox, which Holdfast did not make",
    ),
    "gone": ("DROP TABLE holdfast.landed", "has no table landed"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_schema_that_somebody_changed_is_noticed(postgres_url: str, what: str) -> None:
    sql, said = PLANTED[what]

    async def main() -> list[str]:
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(sql)
        await connection.close()
        async with opened(lambda: PostgresStore(postgres_url), read_only=True) as store:
            return [each.text for each in await store.check()]

    assert [each for each in asyncio.run(main()) if said in each]


def test_tables_and_views_of_others_are_theirs(postgres_url: str) -> None:
    async def main() -> list[str]:
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(
            "CREATE TABLE orders (id int); CREATE VIEW holdfast.few AS SELECT id FROM holdfast.runs"
        )
        await connection.close()
        async with opened(lambda: PostgresStore(postgres_url), read_only=True) as store:
            return [each.text for each in await store.check()]

    assert [each for each in asyncio.run(main()) if "schema" in each] == []
