"""The roles of `deploy/roles.sql`: each can do what it is for, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import asyncpg
import pytest

import holdfast as hf
from holdfast.base.ids import new_uuid
from holdfast.model import RunId
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import conformance, conformance_landing
from holdfast.testing.postgres import PostgresServer, run_client
from holdfast.testing.processes import environment
from holdfast.testing.samples import Case
from tests.eventually import eventually
from tests.postgres.traps import SCRIPTS

OWNER, WORKER, READER, STRANGER = "holdfast_owner", "holdfast_worker", "holdfast_reader", "stranger"


class Site:
    """A server with a database that the three roles share."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        server.ask(f"CREATE ROLE {STRANGER} LOGIN PASSWORD '{STRANGER}'")
        server.create_database("site")
        self.apply("site")
        for role in (OWNER, WORKER, READER):
            server.ask(f"ALTER ROLE {role} PASSWORD '{role}'")
        self.command(OWNER, "migrate", database="site")
        self.apply("site")

    def apply(self, database: str) -> None:
        script = str(SCRIPTS / "roles.sql")
        options = ["--no-psqlrc", "--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1"]
        run_client("psql", *options, "--file", script, self._server.url(database))

    def url(self, role: str, database: str) -> str:
        return f"postgresql://{role}:{role}@{self._server.host}:{self._server.port}/{database}"

    def fresh(self) -> str:
        """A database as the first one, and empty. What roles may do to a database itself is not copied with it."""
        name = f"site_{new_uuid().hex[:12]}"
        self._server.create_database(name, template="site")
        self.apply(name)
        return name

    def command(self, role: str, *words: str, database: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "holdfast", "--db", self.url(role, database), *words],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in ended.stderr
        if ended.returncode:
            return ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with PostgresServer(tmp_path_factory.mktemp("site") / "server") as server:
        yield Site(server)


@hf.step
async def think(n: int) -> int:
    return n * 2


@hf.effect
async def publish(n: int) -> str:
    return f"published {n}"


@hf.agent
async def child(n: int) -> int:
    return await think(n)


@hf.agent
async def careful(n: int) -> list[object]:
    found: list[object] = [await think(n), await child(n), await publish(n)]
    return [*found, await hf.ask("Go on?", options=["yes", "no"]), await hf.receive(("word", str))]


async def finished(url: str) -> str:
    async with hf.connect(url, agents=[careful, child]) as app:
        await app.queue("few", concurrency=1)
        run = await app.start(careful(4), queue="few")

        async def asked() -> bool:
            return bool(await app.questions())

        await eventually(asked)
        (question,) = await app.questions()
        await question.answer("yes")
        await run.send("word", "hello")
        assert await run.result() == [8, 8, "published 4", "yes", "hello"]
        return run.id


async def refused(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            found: object = "nothing"
            try:
                await connection.execute(statement)
            except asyncpg.PostgresError as error:
                found = error
            assert isinstance(found, asyncpg.InsufficientPrivilegeError), (statement, found)
    finally:
        await connection.close()


def test_the_worker_executes_runs_and_the_reader_looks_at_them(site: Site) -> None:
    database = site.fresh()
    run_id = asyncio.run(finished(site.url(WORKER, database)))
    assert run_id in site.command(READER, "runs", database=database)
    assert "publish#1" in site.command(READER, "show", run_id, database=database)
    assert "no problem found" in site.command(READER, "doctor", database=database)
    assert site.command(READER, "verify", database=database)
    assert site.command(WORKER, "prune", "--older-than", "0s", "--yes", database=database)


#: Some of each sort; `make prove` takes all of them. Those about the user's own tables make one, in `public`.
CASES = [case for case in conformance.CASES if case not in conformance_landing.CASES]
FEW = CASES[::9]


@pytest.mark.corrupts
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.prove] * (case not in FEW)) for case in CASES],
    ids=lambda case: case.__name__,
)
def test_conformance_as_the_worker(case: Case, site: Site) -> None:
    database = site.fresh()
    asyncio.run(case(lambda: PostgresStore(site.url(WORKER, database))))  # type: ignore[arg-type]


_CHANGES_OF_THE_SCHEMA = (
    "CREATE TABLE holdfast.more (n int)",
    "CREATE FUNCTION holdfast.more() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER TABLE holdfast.runs ADD COLUMN more int",
    "ALTER TABLE holdfast.runs DISABLE TRIGGER ALL",
    "CREATE TRIGGER more BEFORE INSERT ON holdfast.runs EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE more AS ON INSERT TO holdfast.runs DO INSTEAD NOTHING",
    "DROP TABLE holdfast.runs",
    "DROP INDEX holdfast.runs_newest",
    "TRUNCATE holdfast.records",
    "ALTER FUNCTION holdfast.durable_1() RESET ALL",
    "DROP SCHEMA holdfast CASCADE",
    "CREATE SCHEMA more",
    "CREATE TABLE public.more (n int)",
    "CREATE TEMPORARY TABLE more (n int)",
    "INSERT INTO holdfast.migrations VALUES (99, 'more', 0, '', 99)",
    "DELETE FROM holdfast.migrations",
    "SET ROLE holdfast_owner",
    "CREATE ROLE more",
)
_WRITES = (
    "UPDATE holdfast.runs SET priority = 9",
    "DELETE FROM holdfast.records",
    "INSERT INTO holdfast.mailbox VALUES ('r', 1, '', '', '', 0, '', NULL)",
    "SELECT 1 FROM holdfast.runs FOR SHARE",
    "SELECT holdfast.land_1('r', 'k', 1, '1', 0)",
    "SELECT holdfast.close_question_1('r', 'k', 'answered', 0, NULL, NULL, NULL)",
)


def test_the_worker_cannot_change_the_schema(site: Site) -> None:
    asyncio.run(refused(site.url(WORKER, site.fresh()), *_CHANGES_OF_THE_SCHEMA))


def test_the_reader_can_only_read(site: Site) -> None:
    database = site.fresh()
    url = site.url(READER, database)
    asyncio.run(refused(url, *_CHANGES_OF_THE_SCHEMA, *_WRITES))
    run_id = asyncio.run(finished(site.url(WORKER, database)))

    async def acting() -> None:
        async with hf.connect(url) as app:
            await app.get(run_id).retry()

    with pytest.raises(hf.HoldfastError):
        asyncio.run(acting())
    assert "may not do this" in site.command(READER, "queues", "pause", "few", database=database)

    async def priorities() -> None:
        store = PostgresStore(url)
        await store.open(read_only=True)
        assert (await store.run(RunId(run_id))) is not None
        await store.close()

    asyncio.run(priorities())


def test_a_stranger_cannot_even_connect(site: Site) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        asyncio.run(refused(site.url(STRANGER, site.fresh())))


def test_a_store_that_was_made_without_roles_is_handed_over(site: Site) -> None:
    """And a migration that the owner makes later grants by itself what it makes."""
    name = f"site_{new_uuid().hex[:12]}"
    site._server.create_database(name)
    url = site._server.url(name)

    async def opened() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    asyncio.run(opened())
    site.apply(name)
    owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'holdfast'"
    assert site._server.ask(owners, name) == OWNER
    asyncio.run(finished(site.url(WORKER, name)))
    site._server.ask("SET ROLE holdfast_owner; CREATE TABLE holdfast.later (n int)", name)
    granted = "SELECT has_table_privilege('{0}', 'holdfast.later', 'SELECT, INSERT, UPDATE, DELETE')"
    assert site._server.ask(granted.format(WORKER), name) == "t"
    asyncio.run(refused(site.url(READER, name), "INSERT INTO holdfast.later VALUES (1)"))
    assert site._server.ask("SET ROLE holdfast_reader; TABLE holdfast.later", name) == "SET"
