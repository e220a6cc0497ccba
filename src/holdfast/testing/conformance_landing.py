"""What every store must do with transactions on the user's own tables."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from holdfast.errors import UsageError
from holdfast.model import Applied, Kind, Landing, RunId
from holdfast.store.contract import Store, UserTransaction
from holdfast.testing.samples import ALICE, Case, MakeStore, append, extend, new_run, opened

_FIRST = Landing(RunId("r_1"), "hf-1", 1)
_SECOND = Landing(RunId("r_1"), "hf-1", 2)


async def begun(transaction: UserTransaction) -> Any:
    """The connection, from the loop or from a thread, whichever the store lends it to."""
    try:
        return await transaction.begin()
    except UsageError:
        return await asyncio.to_thread(transaction.begin_here)


async def execute(connection: Any, sql: str) -> None:
    """Execute a statement, whatever the connection is."""
    done = connection.execute(sql)
    if inspect.isawaitable(done):
        await done


async def rows(store: Store) -> list[tuple[Any, ...]]:
    """What the user's table has."""
    transaction = store.transaction(Landing(RunId("r_reads"), "hf-reads", 1))
    connection = await begun(transaction)
    read = "SELECT n FROM mine ORDER BY n"
    try:
        found = connection.execute(read) if not hasattr(connection, "fetch") else await connection.fetch(read)
        return [tuple(row) for row in found]
    finally:
        await transaction.roll_back()


async def made(store: Store, landing: Landing, n: int) -> UserTransaction:
    """A transaction in which a row was inserted."""
    transaction = store.transaction(landing)
    connection = await begun(transaction)
    await execute(connection, "CREATE TABLE IF NOT EXISTS mine (n INTEGER)")
    await execute(connection, f"INSERT INTO mine VALUES ({n})")  # noqa: S608 - a number
    return transaction


async def what_lands_is_there_with_its_result(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        transaction = await made(store, _FIRST, 7)
        assert transaction.has_begun
        assert await transaction.land('"seven"')
        assert await rows(other) == [(7,)]
        assert await other.landed(_FIRST) == '"seven"'
        assert await store.landed(_SECOND) == '"seven"'
        assert await store.landed(Landing(_FIRST.run_id, "hf-2", 1)) is None


async def of_two_attempts_one_lands(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        assert await (await made(store, _FIRST, 7)).land('"first"')
        assert not await (await made(other, _SECOND, 8)).land('"second"')
        assert await rows(store) == [(7,)]
        assert await store.landed(_SECOND) == '"first"'


async def an_attempt_that_was_given_up_does_not_land(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        assert await (await made(store, Landing(RunId("r_0"), "hf-0", 1), 1)).land("null")
        assert await other.landed(_FIRST) is None
        assert not await (await made(store, _FIRST, 7)).land('"late"')
        assert await rows(store) == [(1,)]
        assert await store.landed(_FIRST) is None
        assert await (await made(other, _SECOND, 8)).land('"second"')
        assert await rows(store) == [(1,), (8,)]
        assert await store.landed(_FIRST) == '"second"'


async def what_is_rolled_back_leaves_nothing(make: MakeStore) -> None:
    async with opened(make) as store:
        assert await (await made(store, _FIRST, 1)).land("null")
        second = await made(store, Landing(RunId("r_1"), "hf-2", 1), 2)
        await second.roll_back()
        third = await made(store, Landing(RunId("r_1"), "hf-3", 1), 3)
        third.spoil()
        assert not third.has_begun
        await asyncio.sleep(0.05)
        assert await rows(store) == [(1,)]
        assert await store.landed(Landing(RunId("r_1"), "hf-2", 1)) is None


async def others_write_before_and_after_a_transaction(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        transaction = await made(store, Landing(row.id, "hf-1", 1), 1)
        landing = asyncio.create_task(transaction.land("1"))
        step = extend(row, Kind.done)
        assert await append(store, step) == [Applied.committed]
        assert await landing
        assert await store.run(row.id) == step.row
        assert await rows(store) == [(1,)]


CASES: tuple[Case, ...] = (
    what_lands_is_there_with_its_result,
    of_two_attempts_one_lands,
    an_attempt_that_was_given_up_does_not_land,
    what_is_rolled_back_leaves_nothing,
    others_write_before_and_after_a_transaction,
)
