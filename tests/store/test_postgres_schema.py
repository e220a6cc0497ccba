"""The schema of a PostgreSQL store, compared with what it should be."""

from __future__ import annotations

import asyncio
import gzip
import subprocess

import asyncpg
import pytest

from holdfast.store.migrate import functions, migrations
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.problems import Concern
from holdfast.testing.postgres import binaries
from holdfast.testing.samples import opened
from tests.golden.write import POSTGRES
from tests.store.test_dialects import SUPERSEDED

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


#: Of each part of a schema, the text that makes it.
_PARTS = """
SELECT p.proname::text, pg_get_functiondef(p.oid) FROM pg_proc AS p WHERE p.pronamespace = 'holdfast'::regnamespace
UNION ALL
SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'holdfast'
UNION ALL
SELECT table_name || '.' || column_name, concat_ws(' ', data_type, is_nullable, column_default, collation_name)
FROM information_schema.columns WHERE table_schema = 'holdfast'
UNION ALL
SELECT conname::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'holdfast'::regnamespace
UNION ALL
SELECT 'migration ' || number, name || ' ' || sha256 || ' ' || min_version FROM holdfast.migrations
"""


def test_a_schema_that_was_made_before_is_the_same_as_a_new_one_once_it_is_brought_up_to_date(
    postgres_url: str,
) -> None:
    """Functions, indexes, columns, constraints, and the texts that were applied."""

    async def parts() -> dict[str, str]:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            assert [each.text for each in await store.check() if each.concern is Concern.damage] == []
        connection = await asyncpg.connect(postgres_url)
        try:
            return dict(map(tuple, await connection.fetch(_PARTS)))
        finally:
            await connection.close()

    new = asyncio.run(parts())
    assert {f"migration {each.number}" for each in migrations("postgres")} <= new.keys()
    assert functions("postgres").keys() - SUPERSEDED <= new.keys()
    assert not SUPERSEDED & new.keys()
    old = b"SET client_min_messages = warning;\nDROP SCHEMA holdfast CASCADE;\n" + gzip.decompress(
        POSTGRES.read_bytes()
    )
    psql = [str(binaries() / "psql"), "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", postgres_url]
    subprocess.run(psql, input=old, check=True, stdout=subprocess.DEVNULL)
    assert asyncio.run(parts()) == new
