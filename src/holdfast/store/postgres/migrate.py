"""Migrations of a PostgreSQL schema: one migrator at a time, each migration in a transaction with the row that says so.

A schema that is newer than this code is accepted if its last migration says so (`min_version`): changes come in two
releases, first what old and new code both work with, then what the old code needed is removed.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

from asyncpg import exceptions as pg

from holdfast.base import clock, faults
from holdfast.base.telemetry import warn
from holdfast.errors import SchemaTooNew, StoreError
from holdfast.store.migrate import Migration, migrations
from holdfast.store.postgres.connection import Backoff, Target
from holdfast.store.postgres.locks import holder
from holdfast.store.queries import Queries

_ATTEMPTS = 6
_LOCK_TIMEOUT = "5s"
_PATIENCE_S = 30.0  # with another one that migrates
_MIN_VERSION = re.compile(r"^-- min_version: (\d+)$", re.MULTILINE)


class Version(NamedTuple):
    """A migration as the database has it."""

    number: int
    name: str
    sha256: str
    min_version: int


async def applied(connection: Any, queries: Queries, target: Target) -> list[Version]:
    """What this schema has."""
    if not await connection.fetchval(queries["has_migrations"], f"{target.schema}.migrations"):
        return []
    return [Version(*row) for row in await connection.fetch(queries["migrations"])]


async def check_version(connection: Any, queries: Queries, target: Target) -> int:
    """How many migrations the schema has; SchemaTooNew when this code must not touch it."""
    found, known = await applied(connection, queries, target), len(migrations("postgres"))
    needed = max((version.min_version for version in found), default=0)
    if needed > known:
        raise SchemaTooNew(
            f"{target.shown} has schema {len(found)}, which works with code that knows {needed} or more; this Holdfast "
            f"knows up to {known}. It was written by a newer version: upgrade this process. Nothing was changed."
        )
    return len(found)


async def migrate(connection: Any, queries: Queries, target: Target) -> None:
    """Bring a schema up to date; a killed migration leaves no trace."""
    known = migrations("postgres")
    attempts, backoff, give_up_us = 0, Backoff(), clock.monotonic_us() + int(_PATIENCE_S * 1e6)
    told = ""
    while (count := await check_version(connection, queries, target)) < len(known):
        try:
            if await _apply(connection, queries, target, known[count]):
                continue
            who = await holder(connection, queries, name="holdfast migration " + target.schema)
            if clock.monotonic_us() > give_up_us:
                raise StoreError(
                    f"{target.shown}: schema {target.schema} could not be changed: {who} has had the lock of "
                    f"migrations for {_PATIENCE_S:g} s. If that is no Holdfast that migrates, end the session; then "
                    "try again."
                )
            if who != told:
                warn("migration.locked", store=target.shown, by=who, advice="waiting for it for a while")
                told = who
            await asyncio.sleep(backoff.next_s())
        except pg.LockNotAvailableError as error:
            attempts += 1
            if attempts == _ATTEMPTS:
                raise StoreError(
                    f"{target.shown}: schema {target.schema} could not be changed, because others hold locks on it. "
                    "Look for a long transaction in pg_stat_activity, or another Holdfast that migrates."
                ) from error


async def _apply(connection: Any, queries: Queries, target: Target, migration: Migration) -> bool:
    """Apply one, unless somebody was faster. False: not now, since somebody else has the lock."""
    found = _MIN_VERSION.search(migration.sql)
    min_version = int(found[1]) if found else migration.number
    async with connection.transaction():
        is_ours, _ = await connection.fetchrow(queries["lock_migrating"], target.schema, _LOCK_TIMEOUT)
        if not is_ours:
            return False
        if not await connection.fetchval(queries["has_schema"], target.schema):
            await connection.execute(queries["create_schema"])
        if await check_version(connection, queries, target) >= migration.number:
            return True
        await connection.execute(migration.sql.replace("{schema}", target.schema))
        await connection.execute(
            queries["add_migration"],
            migration.number,
            migration.name,
            clock.now_us(),
            migration.sha256,
            min_version,
        )
        faults.point("migrate.before_commit")
    return True
