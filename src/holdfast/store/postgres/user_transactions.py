"""Connections lent to the bodies of effects, for changes to the user's own tables in the same database.

They are not those that the store writes with, so an effect that takes its time holds up nobody else's commits. That an
attempt has landed is a row in the user's own transaction, under the name of the call: of two that try, the second one
waits for the first, and then cannot. So whether a call has landed is found by trying to give it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast.base import clock, faults
from holdfast.base.telemetry import warn
from holdfast.errors import HoldfastError, UsageError
from holdfast.model import Definition, Landing
from holdfast.store.postgres import apply
from holdfast.store.postgres.connection import STATEMENT_S, Backoff, Keeper, Role, Sort, Target, explain, sort_of
from holdfast.store.queries import Queries

_SIZE = 8


class UserConnections:
    """A few connections. An effect has one at most, and needs no other while it has it."""

    def __init__(self, target: Target, queries: Queries, *, size: int = _SIZE) -> None:
        self.target = target
        self.queries = queries
        self._keepers = [Keeper(target, Role.effect) for _ in range(size)]
        self._idle = list(self._keepers)
        self._free = asyncio.Semaphore(size)

    @property
    def connections(self) -> list[Any]:
        return [keeper.connection for keeper in self._keepers if keeper.connection is not None]

    async def borrow(self) -> Keeper:
        """A connection that works, for one who gives it back; waits for the server, for as long as it takes."""
        await self._free.acquire()
        keeper = self._idle.pop()
        backoff = Backoff()
        try:
            while True:
                try:
                    connection = await keeper.get()
                    await connection.fetchval(self.queries["ping"], timeout=STATEMENT_S)
                    return keeper
                except Exception as error:
                    keeper.drop()
                    if isinstance(error, HoldfastError) or sort_of(error) is Sort.own:
                        raise explain(error, self.target) from error
                    warn("effect.waits_for_the_store", error=str(explain(error, self.target)))
                await asyncio.sleep(backoff.next_s())
        except BaseException:
            self.give_back(keeper)
            raise

    def give_back(self, keeper: Keeper) -> None:
        self._idle.append(keeper)
        self._free.release()

    async def landed(self, landing: Landing) -> str | None:
        keeper = await self.borrow()
        try:
            found: str | None = await keeper.connection.fetchval(
                self.queries["landed"],
                landing.run_id,
                landing.key,
                landing.attempt,
                clock.now_us(),
                timeout=STATEMENT_S,
            )
            return found
        except BaseException as error:
            keeper.drop()  # whatever it waits for, nobody waits for it any more
            if isinstance(error, Exception):
                raise explain(error, self.target) from error
            raise
        finally:
            self.give_back(keeper)

    async def close(self) -> None:
        for keeper in self._keepers:
            await keeper.close()


class PostgresUserTransaction:
    """One transaction for one attempt of an effect; see `holdfast.store.contract.UserTransaction`."""

    def __init__(self, landing: Landing, connections: UserConnections) -> None:
        self._landing = landing
        self._user_connections = connections
        self._keeper: Keeper | None = None
        self._transaction: Any = None
        self.was_lost = False  #: the connection broke before anything could be committed

    @property
    def has_begun(self) -> bool:
        return self._keeper is not None

    async def begin(self) -> Any:
        if self._keeper is None:
            keeper = await self._user_connections.borrow()
            try:
                self._transaction = keeper.connection.transaction()
                await self._transaction.start()
            except BaseException as error:
                keeper.drop()
                self._user_connections.give_back(keeper)
                if isinstance(error, Exception):
                    self.was_lost = sort_of(error) is Sort.away
                    raise explain(error, self._user_connections.target) from error
                raise
            self._keeper = keeper
        return self._keeper.connection

    def begin_here(self) -> Any:
        raise UsageError(
            "In a PostgreSQL store an effect that uses hf.transaction() is an `async def`, and has its connection with "
            "`async with hf.transaction() as connection:`."
        )

    def spoil(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self.was_lost = keeper.connection is None or keeper.connection.is_closed()
            keeper.drop()  # the server rolls back
            self._user_connections.give_back(keeper)

    async def land(self, result: str) -> bool:
        keeper, landing = self._keeper, self._landing
        assert keeper is not None
        connection, has_ended = keeper.connection, False
        try:
            if not connection.is_in_transaction():
                # It was committed by hand, so that is all that can be done.
                warn("effect.ended_its_transaction", run=landing.run_id, key=landing.key)
                has_ended = True
            may_land = await connection.fetchval(
                self._user_connections.queries["land"],
                landing.run_id,
                landing.key,
                landing.attempt,
                result,
                clock.now_us(),
                timeout=STATEMENT_S,
            )
            if not has_ended and not may_land:
                await self._transaction.rollback()
            elif not has_ended:
                faults.point("land.before_commit")
                await self._transaction.commit()
                faults.point("land.after_commit")
        except Exception as error:
            self.spoil()
            raise explain(error, self._user_connections.target) from error
        self._keeper = None
        self._user_connections.give_back(keeper)
        return bool(may_land)

    async def roll_back(self) -> None:
        keeper = self._keeper
        if keeper is None:
            return
        try:
            await self._transaction.rollback()
        except Exception:
            self.spoil()
            return
        self._keeper = None
        self._user_connections.give_back(keeper)


async def define_within(
    connection: Any, queries: Queries, channel: str, definitions: Sequence[Definition]
) -> list[bool]:
    """Write definitions with a connection of the user's own, in the transaction it has open; heard when it commits."""
    is_ours = hasattr(connection, "fetchval") and hasattr(connection, "is_in_transaction")
    if not is_ours or not connection.is_in_transaction():
        raise UsageError(
            "transaction= takes a connection of asyncpg with an open transaction, to the database of the store; got "
            f"{type(connection).__name__}{' without one' if is_ours else ''}."
        )
    path = await connection.fetchval(queries["path"])
    await connection.execute(queries["pin"])  # for what the driver looks up by itself
    won = await apply.define(connection, queries, definitions, again=False)
    await connection.fetchval(queries["notify_within"], channel)
    await connection.fetchval(queries["restore_path"], path)
    return won
