"""Where a PostgreSQL store is, connections to it, and what its errors mean.

An error has one of a few meanings, and each is met in one way (`Sort`): the server is away, and with it perhaps the
answer to a commit; two writes were in each other's way; the server has no room; or the write itself is at fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from dataclasses import field
from enum import Enum
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

from holdfast.base import clock
from holdfast.base.config import UNREADABLE, checked_url
from holdfast.base.data import data
from holdfast.codec import said_by
from holdfast.errors import HoldfastError, StoreAway, StoreCorrupt, StoreError, StoreFull, UsageError
from holdfast.store.postgres.path import PATH, Pinned

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_HOST = re.compile(r"(\[[^]]*\]|[^:]*)(:\d*)?")
_CONNECT_S = 10.0
#: Seconds after which a statement counts as lost. Locks are held for milliseconds, so nothing waits that long for one.
STATEMENT_S = 60.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.05, 1.0

#: For every session. Statements of a store are by key or along an index, and must be so without statistics too.
_PLANS = {
    "jit": "off",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
}
_SETTINGS = {
    "idle_in_transaction_session_timeout": "60s",
    "statement_timeout": "0",
    "lock_timeout": "0",
    # A server that hears nothing of a session for this long ends it, and with it the lock of a worker that is gone.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


class Role(Enum):
    """What a connection is for."""

    write = "write"
    read = "read"
    session = "session"  #: a worker's own: its lock, its lease, the bell
    effect = "effect"  #: the user's, for effects on tables of their own


@data
class Target:
    """A store's url, taken apart: `dsn` is for the driver and secret, `shown` is for people."""

    dsn: str = field(repr=False)
    shown: str
    schema: str = "holdfast"
    is_pooled: bool = False
    attributes: str | None = None  #: target_session_attrs

    @classmethod
    def of(cls, url: str) -> Target:
        """Take apart a url; `schema` and `pooler` are Holdfast's own parameters, the others are the driver's."""
        parts = urlsplit(checked_url(url))
        given = parse_qsl(parts.query, keep_blank_values=True)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        if not all(_HOST.fullmatch(host) for host in hosts):
            raise UsageError(UNREADABLE)  # a password with / in it looks like that
        own = dict(given)
        kept = [(name, value) for name, value in given if name not in ("schema", "pooler", "target_session_attrs")]
        schema, pooler = own.get("schema", "holdfast"), own.get("pooler", "session")
        if not _SCHEMA.fullmatch(schema):
            raise UsageError(f"?schema={schema!r} of the store's url: use small letters, digits and _, at most 40.")
        if pooler not in ("session", "transaction"):
            raise UsageError(f"?pooler={pooler!r} of the store's url: use transaction, or leave it out.")
        dsn = urlunsplit(parts._replace(query=urlencode(kept)))
        return cls(dsn, _masked(url), schema, pooler == "transaction", own.get("target_session_attrs"))

    async def connect(self, role: Role) -> Any:
        """A new connection of the driver. Raises what the driver does, UsageError if the url cannot be read."""
        attributes = self.attributes
        settings = {"application_name": f"holdfast {role.value}"}
        if not self.is_pooled:  # a pooler in transaction mode refuses settings of a session, or loses them
            settings |= _SETTINGS if role is Role.effect else _SETTINGS | _PLANS | {"search_path": PATH}
            if role is Role.write:
                settings["plan_cache_mode"] = "force_generic_plan"
            if role is Role.read:
                settings["default_transaction_read_only"] = "on"
                if attributes == "read-write":
                    attributes = "primary"  # read-only by our own wish is not what is meant
        try:
            connection = await asyncpg.connect(
                self.dsn,
                timeout=_CONNECT_S,
                server_settings=settings,
                statement_cache_size=0 if self.is_pooled else 200,
                max_cached_statement_lifetime=0,
                target_session_attrs=attributes,
            )
        except ssl.SSLCertVerificationError:
            raise  # which is a ValueError too
        except (pg.ClientConfigurationError, ValueError):
            raise UsageError(UNREADABLE) from None
        _notice_silence(connection)
        if self.is_pooled and role is not Role.effect:
            return await Pinned.of(connection, self.schema, read_only=role is Role.read)
        return connection


def _masked(url: str) -> str:
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    secret = re.sub(r"(?i)\b((?:ssl)?password)=[^&]*", r"\1=***", parts.query)
    return urlunsplit(parts._replace(netloc=f"{user}{':***' if colon else ''}{at}{hosts}", query=secret))


def _notice_silence(connection: Any) -> None:
    """Have the system give up on a peer that does not answer, in seconds and not in hours."""
    transport = getattr(connection, "_transport", None)
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.family == getattr(socket, "AF_UNIX", None):
        return
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 2),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 15_000),
    ):
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(level, getattr(socket, name), value)


def drop(connection: Any) -> None:
    """End a connection that is of no use any more, without a word to the server."""
    with contextlib.suppress(Exception):
        connection.terminate()


class Backoff:
    """How long to wait before the next attempt: twice as long each time, and never in step with others."""

    def __init__(self) -> None:
        self._delay_s = _FIRST_DELAY_S

    def next_s(self) -> float:
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, _LONGEST_DELAY_S)
        return delay_s * (0.5 + clock.monotonic_us() % 1000 / 1000)  # processes are not in step by the microsecond


class Sort(Enum):
    """What an error means for a write."""

    away = "away"  #: no server, or none that takes writes; if the write was under way, its outcome is unknown
    conflict = "conflict"  #: two transactions were in each other's way; nothing was changed
    full = "full"  #: the server has no disk, memory or connection left; nothing was changed
    own = "own"  #: the write itself is at fault


_AWAY = (
    OSError,
    EOFError,
    TimeoutError,
    asyncio.IncompleteReadError,
    pg.PostgresConnectionError,
    pg.InterfaceError,
    pg.InternalClientError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    pg.QueryCanceledError,
    pg.IdleInTransactionSessionTimeoutError,
    pg.ReadOnlySQLTransactionError,
    pg.TargetServerAttributeNotMatched,
    pg.IdleSessionTimeoutError,
    pg.DuplicatePreparedStatementError,
    pg.InvalidSQLStatementNameError,
)
_CONFLICT = (
    pg.SerializationError,
    pg.DeadlockDetectedError,
    pg.LockNotAvailableError,
    pg.InvalidCachedStatementError,  # the schema was changed under a prepared statement
)


def sort_of(error: BaseException) -> Sort:
    if isinstance(error, ValueError | TypeError):
        return Sort.own  # a value that the driver cannot encode
    if isinstance(error, _CONFLICT):
        return Sort.conflict
    if isinstance(error, pg.InsufficientResourcesError):
        return Sort.full
    if isinstance(error, _AWAY):
        return Sort.away
    return Sort.own


def is_starting(error: BaseException) -> bool:
    """Whether the server is there, and starts or stops."""
    return isinstance(error, pg.CannotConnectNowError)


def explain(error: BaseException, target: Target) -> HoldfastError:
    """The error to raise for a driver's."""
    if isinstance(error, HoldfastError):
        return error
    detail = said_by(error)[:300]
    where = target.shown
    match error:
        case pg.DiskFullError():
            return StoreFull(
                f"{where} has no disk left ({detail}). Free some; waiting appends then go on by themselves."
            )
        case pg.TooManyConnectionsError():
            return StoreAway(
                f"{where} takes no more connections ({detail}). Raise max_connections, or put a pooler in front of it "
                "and add ?pooler=transaction to the url."
            )
        case pg.InsufficientResourcesError():
            return StoreError(f"{where} is out of resources ({detail}). See the server's log.")
        case pg.InvalidPasswordError() | pg.InvalidAuthorizationSpecificationError():
            return StoreError(f"{where} does not let us in ({detail}). Check user, password and pg_hba.conf.")
        case ssl.SSLCertVerificationError():
            return StoreError(
                f"{where} has not shown that it is the server that was meant ({detail}). Check sslrootcert, and that "
                "the certificate names the host of the url."
            )
        case pg.InvalidCatalogNameError():
            return StoreError(f"{where}: there is no such database ({detail}). Create it with `createdb`.")
        case pg.InsufficientPrivilegeError():
            return StoreError(
                f"{where}: the user may not do this ({detail}). Let it own the schema {target.schema}, or grant it "
                "what the message names; the first start also needs the right to make a schema in the database."
            )
        case pg.UndefinedTableError() | pg.UndefinedFunctionError() | pg.InvalidSchemaNameError():
            return StoreError(
                f"{where} has no Holdfast tables in schema {target.schema}, or lost some ({detail}). Open it once to "
                "write, which makes them, or check ?schema=…; if they were there, restore a backup."
            )
        case pg.CharacterNotInRepertoireError() | pg.UntranslatableCharacterError():
            return StoreError(
                f"A text has a character that PostgreSQL cannot store, most likely NUL ({detail}). Take it out of the "
                "id, name, key or tag that has it; nothing of this write was stored."
            )
        case UnicodeEncodeError():
            return StoreError(f"A text is not valid Unicode ({detail}); nothing of this write was stored.")
        case pg.ProgramLimitExceededError() | OverflowError() | pg.DataError():
            return StoreError(
                f"A value is too large or of the wrong type for the database ({detail}). Store it outside and keep a "
                "reference; nothing of this write was stored."
            )
        case pg.DataCorruptedError() | pg.IndexCorruptedError():
            return StoreCorrupt(
                f"{where} is damaged ({detail}). Stop all workers, run `holdfast verify`, and restore a backup."
            )
        case pg.IntegrityConstraintViolationError():
            return StoreError(f"{where} refused a write ({detail}); nothing of it was stored.")
        case pg.ReadOnlySQLTransactionError() | pg.TargetServerAttributeNotMatched():
            return StoreError(
                f"{where} is a read-only standby ({detail}). Name all hosts in the url, with "
                "?target_session_attrs=read-write, so that the primary is found after a failover."
            )
        case _ if sort_of(error) is Sort.away:
            return StoreAway(f"{where} cannot be reached ({detail}). Check that the server runs.")
        case _:
            return StoreError(f"{where}: {detail}")


class Keeper:
    """One connection that is made when it is needed, and made anew when it was lost."""

    def __init__(self, target: Target, role: Role, first: str | None = None) -> None:
        self._target = target
        self._role = role
        self._first = first  # the statement that every new session begins with
        self.connection: Any = None

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and not self.connection.is_closed()

    async def get(self) -> Any:
        """The connection; raises what keeps it from being made."""
        if self.is_connected:
            return self.connection
        self.connection = None
        connection = await self._target.connect(self._role)
        if self._first is not None:
            try:
                await connection.fetchval(self._first, timeout=_CONNECT_S)
            except BaseException:
                drop(connection)
                raise
        self.connection = connection
        return connection

    def drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            drop(connection)

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            try:
                await connection.close(timeout=2)
            except Exception:
                drop(connection)
