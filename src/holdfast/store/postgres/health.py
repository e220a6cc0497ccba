"""What `doctor` wants to know of a PostgreSQL store."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from holdfast.base import clock
from holdfast.model import RunId
from holdfast.store.migrate import migrations
from holdfast.store.postgres import access, migrate
from holdfast.store.postgres.connection import Target
from holdfast.store.problems import Concern, Problem
from holdfast.store.queries import Queries

_CLOCK_SLACK_S = 5
_FEW_CONNECTIONS = 10
_TABLE = re.compile(r" TABLE \{schema\}\.(\w+) \($", re.MULTILINE)


class ServerFacts(NamedTuple):
    """Of the server, as this user sees it."""

    version: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    is_standby: bool
    clock_us: int
    connections_left: int
    schema_bytes: int
    database_bytes: int
    standbys: str

    @classmethod
    async def of(cls, connection: Any, queries: Queries, target: Target) -> ServerFacts:
        return cls(*await connection.fetchrow(queries["server_facts"], target.schema))


def durability(fsync: str, full_page_writes: str) -> str:
    """`full`, or what is switched off."""
    off = [name for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes)) if value != "on"]
    return " and ".join(f"{name}=off" for name in off) or "full"


async def check(connection: Any, queries: Queries, target: Target) -> list[Problem]:
    """Problems; empty when sound."""
    facts = await ServerFacts.of(connection, queries, target)
    places = []
    losses = []
    if facts.fsync != "on":
        losses.append(f"{target.shown} has fsync=off: a power loss can destroy everything; set fsync=on")
    if facts.full_page_writes != "on":
        losses.append(f"{target.shown} has full_page_writes=off: a power loss can tear pages; set it on")
    if facts.synchronous_commit not in ("on", "remote_apply"):
        places.append(
            f"{target.shown} has synchronous_commit={facts.synchronous_commit} for this user. Holdfast sets it on for "
            "its own commits, but other programs of this user lose what they committed; set it on"
        )
    if facts.is_standby:
        places.append(f"{target.shown} is a standby: it can be read only; name the primary in the url")
    apart_s = (facts.clock_us - clock.now_us()) / 1e6
    if abs(apart_s) > _CLOCK_SLACK_S:
        places.append(
            f"the clock of {target.shown} is {abs(apart_s):.0f} s {'ahead of' if apart_s > 0 else 'behind'} this "
            "machine's; run a time service on both"
        )
    if facts.connections_left < _FEW_CONNECTIONS:
        places.append(
            f"{target.shown} takes only {facts.connections_left} more connections (a worker needs five); raise "
            "max_connections, or use a pooler with ?pooler=transaction"
        )
    strangers = await access.strangers(connection, queries, target)
    known = {migration.number: migration for migration in migrations("postgres")}
    applied = await migrate.applied(connection, queries, target)
    damage = [
        f"migration {version.number} ({version.name}) was applied with another text than this Holdfast has"
        for version in applied
        if version.number in known and known[version.number].sha256 != version.sha256
    ]
    damage += await _schema_problems(connection, queries, target, applied={version.number for version in applied})
    found = (
        (Concern.loss, losses),
        (Concern.place, places),
        (Concern.access, strangers),
        (Concern.damage, damage),
    )
    return [Problem(concern, text) for concern, texts in found for text in texts]


async def _schema_problems(connection: Any, queries: Queries, target: Target, *, applied: set[int]) -> list[str]:
    """What stands in the place of our tables, or changes what is written to them."""
    ours = {name for each in migrations("postgres") if each.number in applied for name in _TABLE.findall(each.sql)}
    found = [tuple(row) for row in await connection.fetch(queries["schema_parts"], target.schema)]
    there = {name: kind for kind, name, _ in found if kind not in ("trigger", "rule")}
    told = [f"has no table {name}" for name in sorted(ours - there.keys())]
    told += [f"has {n} as {there[n]}, not as table" for n in sorted(ours) if there.get(n, "table") != "table"]
    told += [
        f"has the {kind} {name} on {about}, which Holdfast did not make"
        for kind, name, about in found
        if about in ours and kind in ("trigger", "rule")
    ]
    return [f"schema {target.schema} {each}; somebody changed it: compare it with a backup" for each in told]


async def largest(connection: Any, queries: Queries, limit: int) -> list[tuple[RunId, int, int]]:
    """The runs that take most: their records, and the bytes of their values."""
    found = await connection.fetch(queries["largest_runs"], limit)
    return [(RunId(run_id), records, size) for run_id, records, size in found]


async def statistics(connection: Any, queries: Queries, target: Target) -> dict[str, int | str]:
    """Sizes and versions."""
    facts = await ServerFacts.of(connection, queries, target)
    runs, records, blobs, mail, workers = await connection.fetchrow(queries["counts"])
    private, cipher = access.privacy(connection)
    return {
        "runs": runs,
        "records": records,
        "blob_chunks": blobs,
        "mail": mail,
        "workers": workers,
        "schema": len(await migrate.applied(connection, queries, target)),
        "postgres": facts.version,
        "schema_bytes": facts.schema_bytes,
        "database_bytes": facts.database_bytes,
        "fsync": facts.fsync,
        "full_page_writes": facts.full_page_writes,
        "synchronous_commit": facts.synchronous_commit,
        "synchronous_standby_names": facts.standbys,
        "standby": int(facts.is_standby),
        "connections_left": facts.connections_left,
        "clock_difference_ms": (facts.clock_us - clock.now_us()) // 1000,
        "privacy": private.value,
        "cipher": cipher,
        "durability": durability(facts.fsync, facts.full_page_writes),
    }
