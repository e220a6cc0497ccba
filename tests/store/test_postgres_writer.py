"""The PostgreSQL store when others are in its way: lost connections, a server that dies, two processes, a pooler."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.base import clock
from holdfast.base.config import Settings
from holdfast.errors import ForkedConnection, HoldfastError, SchemaTooNew, StoreError, UsageError
from holdfast.model import (
    Append,
    Applied,
    Claim,
    Kind,
    Outgoing,
    Proof,
    RunFilter,
    RunId,
    RunRow,
    Status,
    WorkerId,
    reasons,
)
from holdfast.store import open_store
from holdfast.store.migrate import migrations
from holdfast.store.postgres.connection import Target
from holdfast.store.postgres.liveness import APART_US, Liveness, WorkerSigns
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import conformance
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.samples import (
    ALICE,
    BOB,
    START,
    Case,
    append,
    extend,
    left,
    mail_for,
    new_run,
    new_worker,
    opened,
    parked,
    taken_over,
    woken,
)
from tests.eventually import eventually
from tests.store.pooler import pooled


def stored_in(url: str) -> Callable[[], PostgresStore]:
    return lambda: PostgresStore(url)


@asynccontextmanager
async def admin(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def assert_whole(store: PostgresStore, heads: dict[RunId, RunRow]) -> None:
    """Every run ends where its last acknowledged append did, and has each record and each mail once."""
    for run_id, row in heads.items():
        loaded = await store.load(run_id)
        assert loaded is not None
        stored, records = loaded
        assert (stored.head_seq, stored.head_hash) == (row.head_seq, row.head_hash)
        assert [record.seq for record in records] == list(range(1, row.head_seq + 1))
        assert records[-1].hash == row.head_hash
        mail = await store.mail(run_id, after=0)
        assert [each.number for each in mail] == list(range(1, stored.mail + 1))
        assert len({each.body for each in mail}) == len(mail)


# two processes


def test_two_opposite_batches_never_deadlock(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as one, opened(stored_in(postgres_url)) as two:
            rows = [await one.create(new_run(), owner=ALICE) for _ in range(6)]
            for number in range(1000):
                steps = [extend(row, Kind.done) for row in rows]
                told = [(two if number % 2 else one).send(mail_for(row.id), wake=left) for row in reversed(rows)]
                results, *_ = await asyncio.gather(append(one if number % 2 else two, *steps), *told)
                assert results == [Applied.committed] * 6
                rows = [step.row for step in steps]
            for row in rows:
                stored = await one.run(row.id)
                assert stored is not None
                assert stored.mail == 1000
        async with admin(postgres_url) as connection:
            await connection.execute("SELECT pg_stat_force_next_flush()")
            deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            assert await connection.fetchval(deadlocks) == 0

    asyncio.run(main())


def test_what_is_refused_is_set_aside_alone(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as store:
            rows = [await store.create(new_run(), owner=ALICE) for _ in range(40)]
            steps = [extend(row, Kind.done) for row in rows]
            steps[7] = dataclasses.replace(steps[7], row=dataclasses.replace(steps[7].row, epoch=9))
            steps[20] = dataclasses.replace(steps[20], records=(steps[20].records[0]._replace(name="a\0b"),))
            steps[33] = dataclasses.replace(steps[33], base_hash=bytes(16), base_seq=0)
            results = await append(store, *steps)
            assert results[7] is Applied.fenced
            assert isinstance(results[20], StoreError)
            assert "NUL" in str(results[20])
            assert results[33] is Applied.diverged
            assert all(each is Applied.committed for i, each in enumerate(results) if i not in (7, 20, 33))
            assert store.trouble is None

    asyncio.run(main())


def test_what_is_ready_is_nobodys(postgres_url: str) -> None:
    """The answer is put together from several statements; in between, others claim."""

    async def main() -> None:
        async with opened(stored_in(postgres_url)) as one, opened(stored_in(postgres_url)) as two:
            for _ in range(30):
                rows = [await one.create(new_run(status=Status.queued, wake_at=START), owner=None) for _ in range(8)]
                claims = [Claim(taken_over(row, wake_at=None), row.epoch, None) for row in rows]

                async def look() -> None:
                    for _ in range(4):
                        ready = await two.ready(agents=["agent"], queues=None, now=START, limit=100)
                        assert [row.owner for row in ready] == [None] * len(ready)

                looking = [look() for _ in range(2)]
                await asyncio.gather(*looking, *(one.claim_many([claim], owner=ALICE) for claim in claims))

    asyncio.run(main())


# lost connections


async def _terminate(connection: Any, chance: random.Random) -> int:
    found = await connection.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'holdfast%' AND datname = current_database()"
    )
    if not found:
        return 0
    victim = chance.choice(found)["pid"]
    return int(await connection.fetchval("SELECT pg_terminate_backend($1)", victim))


@pytest.mark.parametrize("lost", [60, pytest.param(300, marks=pytest.mark.prove)])
def test_every_write_is_done_once_over_many_lost_connections(postgres_url: str, lost: int) -> None:
    chance = random.Random(7)

    async def main() -> None:
        heads: dict[RunId, RunRow] = {}
        over = False

        async def live(store: PostgresStore, number: int) -> None:
            row = await store.create(new_run(f"r_{number}"), owner=ALICE)
            sent = 0
            while not over:
                if chance.random() < 0.2:
                    sent += 1
                    await store.send(mail_for(row.id, f"{sent}"), wake=left)
                chain: list[Append] = []
                for _ in range(chance.randrange(1, 4)):
                    chain.append(extend(chain[-1].row if chain else row, *[Kind.done] * chance.randrange(1, 9)))
                assert await append(store, *chain) == [Applied.committed] * len(chain)
                row = chain[-1].row
                heads[row.id] = row

        async with opened(stored_in(postgres_url)) as store, admin(postgres_url) as connection:
            assert isinstance(store, PostgresStore)
            lives = [asyncio.create_task(live(store, number)) for number in range(12)]
            kills = 0

            def written() -> int:
                assert not any(task.done() for task in lives), [t.exception() for t in lives if t.done()]
                return sum(row.head_seq for row in heads.values())

            while kills < lost:
                before = written()
                for _ in range(3):  # at any moment, also while it connects again; then it gets the time to write
                    await asyncio.sleep(chance.uniform(0.0, 0.02))
                    kills += await _terminate(connection, chance)
                await eventually(lambda before=before: written() > before)  # type: ignore[misc]
            over = True
            await asyncio.gather(*lives)
            await assert_whole(store, heads)
            assert store.trouble is None

    asyncio.run(main())


def test_a_server_that_dies_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "server") as server:
        url = server.url(server.create_database("runs"))

        async def main() -> None:
            heads: dict[RunId, RunRow] = {}
            over = False

            async def live(store: PostgresStore) -> None:
                row = await store.create(new_run(), owner=ALICE)
                while not over:
                    step = extend(row, Kind.started, Kind.done)
                    assert await append(store, step) == [Applied.committed]
                    row = heads[row.id] = step.row

            async with opened(stored_in(url)) as store:
                assert isinstance(store, PostgresStore)
                lives = [asyncio.create_task(live(store)) for _ in range(20)]

                def written() -> int:
                    return sum(row.head_seq for row in heads.values())

                for _ in range(3):
                    before = written()
                    await eventually(lambda before=before: written() >= before + 200)  # type: ignore[misc]
                    await asyncio.to_thread(server.stop, "immediate")
                    await eventually(lambda: "waiting" in (store.trouble or ""))
                    await asyncio.to_thread(server.start)
                over = True
                await asyncio.gather(*lives)
                assert store.trouble is None
                await assert_whole(store, heads)
            async with opened(stored_in(url)) as store:
                assert isinstance(store, PostgresStore)
                await assert_whole(store, heads)

        asyncio.run(main())


def test_a_store_whose_server_is_gone_says_so_and_closes(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "server") as server:
        url = server.url(server.create_database("runs"))

        async def main() -> None:
            store = PostgresStore(url)
            await store.open()
            row = await store.create(new_run(), owner=ALICE)
            await asyncio.to_thread(server.stop, "immediate")
            results: list[Applied | BaseException] = []
            store.submit(extend(row, Kind.done), results.append, urgent=True)
            with pytest.raises(StoreError, match="cannot be reached"):
                await store.run(row.id)
            assert not results
            await asyncio.wait_for(store.close(), 60)
            assert isinstance(results[0], StoreError)

        asyncio.run(main())


# reads


def test_two_connections_are_enough_for_any_number_of_reads(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as store:
            rows = [await store.create(new_run(), owner=ALICE) for _ in range(20)]
            reads = [store.load(rows[number % 20].id) for number in range(200)]
            found = await asyncio.wait_for(asyncio.gather(*reads), 60)
            assert [each[0].id for each in found if each] == [rows[number % 20].id for number in range(200)]
            cancelled = [asyncio.create_task(store.load(row.id)) for row in rows]
            await asyncio.sleep(0.002)
            for task in cancelled:
                task.cancel()
            await asyncio.gather(*cancelled, return_exceptions=True)
            assert await asyncio.wait_for(store.run(rows[0].id), 60) == rows[0]
            async with admin(postgres_url) as connection:
                count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast read'"
                assert await connection.fetchval(count) <= 2

    asyncio.run(main())


def test_reading_writes_nothing(postgres_url: str) -> None:
    async def main() -> None:
        with pytest.raises(StoreError, match="no store in schema other"):
            await PostgresStore(f"{postgres_url}?schema=other").open(read_only=True)
        async with admin(postgres_url) as connection:
            assert not await connection.fetchval("SELECT to_regnamespace('other') IS NOT NULL")
        async with opened(stored_in(postgres_url)), opened(stored_in(postgres_url), read_only=True) as reader:
            assert isinstance(reader, PostgresStore)
            with pytest.raises(StoreError, match="read-only"):
                await reader.quarantine(RunId("r"), "no")
            with pytest.raises(StoreError, match="read-only"):
                await reader.add_worker(new_worker(ALICE, lease_until_ms=0))

    asyncio.run(main())


# the bell


def test_the_bell_is_rung_no_more_often_than_it_may_and_once_more_at_the_end(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as store, opened(stored_in(postgres_url)) as other:
            assert isinstance(store, PostgresStore)
            assert store._database.session is not None
            session = store._database.session

            def is_quiet() -> bool:
                return not session._wants_ring and not session._ringing.is_set()

            began = time.monotonic()
            while time.monotonic() - began < 0.5 or session.rings_sent < 2:
                for _ in range(20):
                    store.ring()
                await asyncio.sleep(0.001)
            await eventually(is_quiet)
            assert session.rings_sent <= (time.monotonic() - began) * 50 + 2
            while await other.changed(1):
                pass
            sent = (
                store._database.session.rings_sent
            )  # while nothing is under way: a ring is heard before it is counted
            store.ring()
            assert await other.changed(60)
            store.ring()
            assert await other.changed(60), "rung while the last one was under way"
            await eventually(is_quiet)
            assert store._database.session.rings_sent <= sent + 2

    asyncio.run(main())


# workers


def test_a_worker_that_lost_its_session_takes_its_lock_again(postgres_url: str) -> None:
    async def main() -> None:
        settings = Settings(lease_s=0.0)  # so that the server is up for long enough
        async with (
            opened(stored_in(postgres_url)) as one,
            opened(lambda: PostgresStore(postgres_url, settings=settings)) as two,
        ):
            await one.add_worker(new_worker(ALICE, lease_until_ms=one.lease_clock_ms() + 60_000))
            async with admin(postgres_url) as connection:
                backend = "SELECT backend_pid FROM holdfast.workers"
                first = await connection.fetchval(backend)
                assert await connection.fetchval("SELECT pg_terminate_backend($1)", first)

                async def is_back() -> bool:
                    return await connection.fetchval(backend) != first  # type: ignore[no-any-return]

                await eventually(is_back)
                held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
                assert await connection.fetchval(held) == 1
            began = time.monotonic()
            while time.monotonic() - began < 1.2:
                assert await two.dead_workers() == {}
                await asyncio.sleep(0.1)
            assert await one.renew_worker(ALICE, one.lease_clock_ms() + 60_000)

    asyncio.run(main())


@pytest.mark.parametrize(("host", "proof"), [("", "lock"), ("elsewhere", "session")])
def test_a_killed_process_is_dead_before_its_lease_is_over(host: str, proof: str, postgres_url: str) -> None:
    """Of a process on another machine it is not known whether it was killed, or cut off."""
    code = f"""
import asyncio, dataclasses, os, platform, signal
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.samples import ALICE, new_worker
async def main():
    store = PostgresStore({postgres_url!r})
    await store.open()
    worker = new_worker(ALICE, lease_until_ms=store.lease_clock_ms() + 60_000)
    await store.add_worker(dataclasses.replace(worker, host={host!r} or platform.node()))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""

    async def main() -> None:
        async with opened(lambda: PostgresStore(postgres_url, settings=Settings(lease_s=0.0))) as store:
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=False)
            assert [worker.id for worker in await store.workers()] == [ALICE]
            began = time.monotonic()
            dead = await eventually(store.dead_workers)
            assert dead == {ALICE: proof}
            assert time.monotonic() - began >= 0.3

    asyncio.run(main())


def judged(
    liveness: Liveness, signs: WorkerSigns, now_us: int, *, is_settled: bool = True
) -> tuple[dict[WorkerId, Proof], int]:
    found = [signs, signs._replace(id=BOB, is_absent=True, is_expired=True)]
    return liveness.judge(found, own={BOB}, now_us=now_us, is_settled=is_settled)


def test_a_missing_session_proves_death_at_the_second_look() -> None:
    signs = WorkerSigns(ALICE, 1000, False, True, False, 17, 1, True)
    liveness = Liveness()
    assert judged(liveness, signs, 0) == ({}, APART_US)
    assert judged(liveness, signs, APART_US - 10) == ({}, 10)
    assert judged(liveness, signs, APART_US) == ({ALICE: "session"}, 0)
    for changed in (
        signs._replace(lease_until_ms=1001),
        signs._replace(backend_pid=18),
        signs._replace(is_absent=False),
    ):
        liveness = Liveness()
        judged(liveness, signs, 0)
        assert judged(liveness, changed, APART_US)[0] == {}, "it renewed, moved, or is back"
    assert judged(Liveness(), signs._replace(is_absent=False, let_go=True), 0) == ({ALICE: "lock"}, 0)


def test_a_lease_that_ran_out_while_the_server_was_away_proves_nothing() -> None:
    signs = WorkerSigns(ALICE, 1000, True, True, False, 17, 1, False)
    assert judged(Liveness(), signs, 0, is_settled=False) == ({ALICE: "lease"}, 0)
    before = signs._replace(is_current=False)
    assert judged(Liveness(), before, 0, is_settled=False) == ({}, 0)
    assert judged(Liveness(), before, 0) == ({ALICE: "lease"}, 0)


def test_a_worker_that_could_not_renew_is_given_time_when_the_server_is_back(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "server") as server:
        url = server.url(server.create_database("runs"))

        async def main() -> None:
            async with opened(stored_in(url)) as one:
                await one.add_worker(new_worker(ALICE, lease_until_ms=one.lease_clock_ms() + 300))
                await asyncio.to_thread(server.stop, "immediate")
                await asyncio.to_thread(server.start)
                async with opened(stored_in(url)) as fresh:
                    (worker,) = await fresh.workers()
                    await eventually(lambda: worker.lease_until_ms < fresh.lease_clock_ms())
                    assert await fresh.dead_workers() == {}
                    assert await one.renew_worker(ALICE, one.lease_clock_ms() - 1000)  # two clocks differ by some ms
                    assert await fresh.dead_workers() == {ALICE: "lease"}, "it was renewed on this server"

        asyncio.run(main())


def test_the_lease_clock_is_never_behind_the_database(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as store, admin(postgres_url) as connection:
            await store.add_worker(new_worker(ALICE, lease_until_ms=0))
            for _ in range(20):
                await store.renew_worker(ALICE, store.lease_clock_ms() + 1000)
                database_us = int(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000000"))
                assert store.lease_clock_ms() >= database_us // 1000 - 1
                assert store.lease_clock_ms() - database_us / 1000 < 500

    asyncio.run(main())


# the url


SECRET = "s3cr3t-pass"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/db",
        f"postgres://ann:{SECRET}@127.0.0.1:1,127.0.0.1:2/db?target_session_attrs=read-write",
        f"postgresql://127.0.0.1:1/db?user=ann&password={SECRET}&sslmode=disable",
        f"postgresql://ann:{SECRET}@127.0.0.1:{SECRET}/db",
        f"postgresql://ann:{SECRET}/x@127.0.0.1:1/db",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    async def use() -> None:
        store = open_store(url, settings=Settings())
        assert SECRET not in store.url
        assert SECRET not in repr(store)
        await store.open()

    with pytest.raises(HoldfastError) as caught:
        asyncio.run(use())
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if "/x@" not in url and url.count(SECRET) == 1:
        assert SECRET not in repr(Target.of(url))
        assert Target.of(url).dsn.count(SECRET) == 1


def test_what_the_url_may_not_say() -> None:
    for bad in ("postgresql://h/d?schema=Robert'); --", "postgresql://h/d?schema=", "postgresql://h/d?pooler=maybe"):
        with pytest.raises(UsageError):
            open_store(bad, settings=Settings())


def test_schemas_are_stores_of_their_own(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as one, opened(stored_in(f"{postgres_url}?schema=two")) as two:
            row = await one.create(new_run(), owner=None)
            assert await two.run(row.id) is None
            assert not await two.changed(0.1)
            await two.create(new_run(row.id), owner=ALICE)
            assert await one.run(row.id) == row

    asyncio.run(main())


def test_a_newer_schema_is_accepted_if_it_says_so(postgres_url: str) -> None:
    async def main() -> None:
        async with admin(postgres_url) as connection:
            newer = "INSERT INTO holdfast.migrations VALUES (99, 'more', 0, '', 1)"
            await connection.execute(newer)
            async with opened(stored_in(postgres_url)) as store:
                await store.create(new_run(), owner=ALICE)
            await connection.execute("UPDATE holdfast.migrations SET min_version = 99 WHERE number = 99")
            for read_only in (False, True):
                with pytest.raises(SchemaTooNew):
                    await PostgresStore(postgres_url).open(read_only=read_only)

    asyncio.run(main())


def test_many_may_open_a_new_store_at_once(postgres_url: str) -> None:
    async def main() -> None:
        stores = [PostgresStore(f"{postgres_url}?schema=fresh") for _ in range(8)]
        await asyncio.gather(*(store.open() for store in stores))
        assert (await stores[0].statistics())["schema"] == len(migrations("postgres"))
        assert await stores[0].check() == []
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(main())


def test_settings_that_lose_commits_are_reported(postgres_url: str) -> None:
    async def main() -> None:
        async with admin(postgres_url) as connection:
            name = await connection.fetchval("SELECT current_database()")
            await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        async with opened(stored_in(postgres_url)) as store:
            assert isinstance(store, PostgresStore)
            assert any("synchronous_commit=off" in problem.text for problem in await store.check())
            await store.create(new_run(), owner=ALICE)
            assert store._database.writer is not None
            (connection, *_) = store._database.writer.connections
            assert await connection.fetchval("SHOW synchronous_commit") == "on"

    asyncio.run(main())


# text


def test_nul_is_refused_where_it_cannot_be_stored_and_kept_where_it_can(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as store:
            row = await store.create(
                new_run(summary={"now": "a\0b"}, reason=reasons.Other({"tags": {"k\0": "v\0"}}), status=Status.waiting),
                owner=None,
            )
            assert await store.run(row.id) == row, "escaped in JSON"
            await store.send(mail_for(row.id, '{"value":"\\u0000"}'), wake=left)
            for bad in (new_run("r_\0"), new_run(queue="q\0"), new_run(thread_id="t\0"), new_run(agent="a\0")):
                with pytest.raises(StoreError, match="NUL"):
                    await store.create(bad, owner=None)
            for mail in (mail_for(row.id, key="k\0"), mail_for(row.id, dedup="d\0")):
                with pytest.raises(StoreError, match="NUL"):
                    await store.send(mail, wake=left)
            with pytest.raises(StoreError, match="NUL"):
                await store.run(RunId("r_\0"))
            stored = await store.run(row.id)
            assert stored is not None
            assert stored.mail == 1
            assert len(await store.runs(RunFilter())) == 1

    asyncio.run(main())


# forks


def test_a_forked_child_is_refused_and_the_parent_goes_on(postgres_url: str) -> None:
    code = f"""
import asyncio, os, sys
from holdfast.errors import ForkedConnection
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.samples import ALICE, append, extend, new_run
async def main():
    store = PostgresStore({postgres_url!r})
    await store.open()
    row = await store.create(new_run(), owner=ALICE)
    assert await store.run(row.id) == row
    pid = os.fork()
    if pid == 0:
        try:
            store.commit_alone(extend(row, "done"), print)
        except ForkedConnection:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    pid = os.fork()
    if pid == 0:
        del store
        import gc; gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    for _ in range(20):
        step = extend(row, "done")
        assert await append(store, step) == ["committed"]
        row = step.row
        assert (await store.run(row.id)).head_seq == row.head_seq
    assert store.trouble is None
    await store.close()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert ForkedConnection is not None


def test_writes_from_another_loop_and_thread_work(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as store:

            async def elsewhere() -> RunRow:
                row = await store.create(new_run(), owner=ALICE)
                assert await store.run(row.id) == row
                return row

            row = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            assert await store.run(row.id) == row

    asyncio.run(main())


def test_a_child_that_ends_tells_its_parent_after_what_it_appended_before(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as store:
            for _ in range(20):
                mother = await store.create(new_run(status=Status.waiting), owner=None)
                child = await store.create(new_run(parent_id=mother.id), owner=ALICE)
                chain = [extend(child, Kind.started)]
                for _ in range(5):
                    chain.append(extend(chain[-1].row, Kind.done))
                end = parked(chain[-1].row, Kind.finished, status=Status.done)
                letter = Outgoing(mail_for(mother.id, kind="child"), woken)
                chain.append(dataclasses.replace(end, outgoing=letter))
                assert await append(store, *chain) == [Applied.committed] * 7
                assert len(await store.mail(mother.id, after=0)) == 1

    asyncio.run(main())


# behind a pooler


#: Who needs a bell between processes has none there.
WITHOUT_SESSIONS = [
    case for case in conformance.CASES if "bell" not in case.__name__ and "handed_over" not in case.__name__
]


#: The statements are the same with and without a pooler; those that begin a session's work are tried always.
SOME = WITHOUT_SESSIONS[::10]


@pytest.mark.parametrize(
    "case",
    [pytest.param(each, marks=() if each in SOME else pytest.mark.prove) for each in WITHOUT_SESSIONS],
    ids=lambda case: case.__name__,
)
def test_conformance_behind_a_transaction_pooler(case: Case, postgres_url: str) -> None:
    async def main() -> None:
        async with pooled(postgres_url) as url:
            await case(stored_in(f"{url}?pooler=transaction"))
        async with admin(postgres_url) as connection:
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            assert await connection.fetchval(held) == 0

    asyncio.run(main())


def test_the_clock_is_the_databases(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(stored_in(postgres_url)) as store:
            before = store.lease_clock_ms()
            clock.shift_us(3_600_000_000)
            try:
                assert abs(store.lease_clock_ms() - before) < 60_000
            finally:
                clock.reset()

    asyncio.run(main())
