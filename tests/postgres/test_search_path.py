"""Whoever may create in `public` gets nothing of us: neither functions nor operators of theirs are ever executed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

import holdfast as hf
from holdfast.base.ids import new_uuid
from holdfast.store.postgres.connection import Role, Target
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.queries import load_queries
from holdfast.testing import conformance
from holdfast.testing.postgres import PostgresServer, run_client
from holdfast.testing.samples import Case
from tests.eventually import eventually
from tests.postgres.traps import SCRIPTS, our_sql, traps
from tests.store.pooler import pooled

_SETTING_UP = """
CREATE ROLE app LOGIN PASSWORD 'app';
CREATE ROLE mallory LOGIN PASSWORD 'mallory';
CREATE ROLE other LOGIN PASSWORD 'other';
"""


class Site:
    """A server with a database that a stranger was in first."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        server.ask(_SETTING_UP)
        self._template = server.create_database("trapped")
        server.ask("GRANT CREATE ON SCHEMA public TO PUBLIC; GRANT CREATE ON DATABASE trapped TO app", "trapped")
        asyncio.run(execute(self.url("trapped", "mallory"), traps()))

    def url(self, database: str, role: str) -> str:
        return f"postgresql://{role}:{role}@{self._server.host}:{self._server.port}/{database}"

    def admin_url(self, database: str) -> str:
        return self._server.url(database)

    def fresh(self) -> str:
        """The name of a new database with traps, and nothing else."""
        name = f"trapped_{new_uuid().hex[:12]}"
        self._server.create_database(name, template=self._template)
        self._server.ask(f"GRANT CREATE ON DATABASE {name} TO app")
        return name

    def ask(self, what: str, database: str) -> str:
        return self._server.ask(what, database)

    def assert_nobody_was_caught(self, database: str) -> None:
        assert self.ask("TABLE public.caught", database) == ""
        assert self.ask("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'", database) == "f"


async def execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with PostgresServer(tmp_path_factory.mktemp("site") / "server", fsync=False) as server:
        yield Site(server)


def test_the_traps_are_set(site: Site) -> None:
    database = site.fresh()
    with pytest.raises(asyncpg.RaiseError, match="caught in cardinality"):
        asyncio.run(execute(site.url(database, "app"), "SELECT cardinality('{}'::text[])"))


@asynccontextmanager
async def reached(url: str, way: str) -> AsyncIterator[str]:
    if way == "direct":
        yield url
    else:
        async with pooled(url) as address:
            yield f"{address}?pooler=transaction"


#: Some of each sort, and each of them in one way; `make prove` takes all of them.
FEW = {(case, ("direct", "pooled")[n % 2]) for n, case in enumerate(conformance.CASES[::6])}
#: Behind a pooler nobody hears a bell.
BELLS = {case for case in conformance.CASES if "bell" in case.__name__}


@pytest.mark.parametrize(
    ("case", "way"),
    [
        pytest.param(case, way, marks=[pytest.mark.prove] * ((case, way) not in FEW), id=f"{case.__name__}-{way}")
        for case in conformance.CASES
        for way in ("direct", "pooled")
        if case.__name__ != "a_sound_store_has_no_problems"  # it has one
    ],
)
@pytest.mark.corrupts
def test_conformance_among_traps(case: Case, way: str, site: Site) -> None:
    if way == "pooled" and case in BELLS:
        pytest.skip("no sessions, no bell")
    database = site.fresh()

    async def story() -> None:
        async with reached(site.url(database, "app"), way) as url:
            await case(lambda: PostgresStore(url))

    asyncio.run(story())
    site.assert_nobody_was_caught(database)


@hf.effect
async def note(text: str) -> str:
    async with hf.transaction() as connection:
        await connection.execute("INSERT INTO notes VALUES ($1)", text)  # found by the user's own path
        path: str = await connection.fetchval("SHOW search_path")
    return path


@hf.agent
async def noting(text: str) -> str:
    path = await note(text)
    await hf.sleep(0.01)
    answer = await hf.ask("Go on?", options=["yes", "no"])
    return f"{path} {answer}"


@pytest.mark.parametrize("way", ["direct", "pooled"])
def test_a_run_its_lists_its_mail_and_its_end_execute_nothing_of_a_stranger(way: str, site: Site) -> None:
    database = site.fresh()
    asyncio.run(execute(site.admin_url(database), "CREATE TABLE public.notes (t text); GRANT ALL ON notes TO app"))

    async def story() -> None:
        async with reached(site.url(database, "app"), way) as url, hf.connect(url, agents=[noting]) as app:
            await app.queue("careful", concurrency=1, per_key=1)
            run = await app.start(noting("secret"), queue="careful", queue_key="k")

            async def asked() -> bool:
                return bool(await app.questions())

            await eventually(asked)
            (question,) = await app.questions()
            await question.answer("yes")
            assert await run.result() == '"$user", public yes'
            assert [each.id for each in await app.runs(agent="noting")] == [run.id]
            await app._store.check()
            await app._store.statistics()
            await app._store.dead_workers()

    asyncio.run(story())
    site.assert_nobody_was_caught(database)
    assert site.ask("TABLE public.notes", database) == "secret"


def test_every_connection_but_the_lent_one_has_a_path_of_its_own(site: Site) -> None:
    target = Target.of(site.url(site.fresh(), "app"))

    async def path(role: Role) -> str:
        connection = await target.connect(role)
        try:
            return str(await connection.fetchval("SHOW search_path"))
        finally:
            await connection.close()

    async def story() -> dict[Role, str]:
        return {role: await path(role) for role in Role}

    found = asyncio.run(story())
    assert found.pop(Role.effect) == '"$user", public'
    assert set(found.values()) == {"pg_catalog, pg_temp"}


def test_every_function_that_is_called_from_outside_has_a_path_of_its_own(postgres_url: str) -> None:
    queries = load_queries("postgres", "holdfast")
    called = set(re.findall(r"\bholdfast\.(\w+_\d+)\(", "\n".join(queries[name] for name in queries)))

    async def paths() -> dict[str, str]:
        connection = await asyncpg.connect(postgres_url)
        try:
            found = await connection.fetch(
                "SELECT proname, coalesce(array_to_string(proconfig, ';'), '') FROM pg_proc "
                "WHERE pronamespace = 'holdfast'::regnamespace"
            )
            return {str(name): str(settings) for name, settings in found}
        finally:
            await connection.close()

    found = asyncio.run(paths())
    assert called - {"durable_1"} <= set(found)
    assert {name for name in called if "search_path=" not in found[name]} == {"durable_1"}  # `begin` has the path
    assert "SECURITY DEFINER" not in our_sql()


def psql(url: str, script: Path, *options: str) -> None:
    run_client("psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", *options, "--file", str(script), url)


@hf.agent
async def hello(name: str) -> str:
    return f"Hello {name}."


async def once(url: str, name: str) -> str:
    async with hf.connect(url, agents=[hello]) as app:
        return await (await app.start(hello(name))).result()


async def opened(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


_GRANTS = """
SELECT c.relname, pg_get_userbyid(c.relowner), a.grantee::regrole, a.privilege_type, a.is_grantable
FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1, 2, 3, 4
"""


@pytest.mark.parametrize("options", [["--single-transaction"], []], ids=["in one transaction", "by itself"])
def test_partitions_hand_nothing_to_a_stranger_and_keep_owners_and_grants(options: list[str], site: Site) -> None:
    database = site.fresh()
    asyncio.run(opened(site.url(database, "app")))
    site.ask(
        "GRANT USAGE ON SCHEMA holdfast TO other, mallory;"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO other;"
        "GRANT SELECT ON holdfast.runs TO mallory WITH GRANT OPTION;"
        "GRANT SELECT ON holdfast.questions TO PUBLIC;",
        database,
    )
    before = site.ask(_GRANTS, database)
    assert "app" in before
    psql(site.admin_url(database), SCRIPTS / "partition.sql", *options)
    assert site.ask(_GRANTS, database) == before
    owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'holdfast'"
    assert site.ask(owners, database) == "app"
    assert asyncio.run(once(site.url(database, "other"), "you")) == "Hello you."
    site.assert_nobody_was_caught(database)


def test_doctor_names_schemas_that_everybody_may_create_in(site: Site) -> None:
    database = site.fresh()

    async def problems() -> list[str]:
        async with hf.connect(site.url(database, "app")) as app:
            return [each.text for each in await app._store.check() if "create in" in each.text]

    (found,) = asyncio.run(problems())
    assert "public" in found
    assert "REVOKE CREATE ON SCHEMA public FROM PUBLIC" in found
    site.ask("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database)
    assert asyncio.run(problems()) == []
    site.ask("GRANT CREATE ON SCHEMA holdfast TO mallory", database)
    (found,) = asyncio.run(problems())
    assert "mallory" in found
    assert "REVOKE CREATE ON SCHEMA holdfast FROM mallory" in found
