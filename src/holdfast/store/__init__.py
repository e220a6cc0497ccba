"""Where runs live. `open_store` is the only place that knows which backends there are."""

from __future__ import annotations

from holdfast.base.config import Settings, checked_url, is_server
from holdfast.errors import UsageError
from holdfast.store.contract import Store

_POSTGRES = ("postgresql://", "postgres://")


def open_store(url: str, *, settings: Settings) -> Store:
    """The store for a url, not opened yet."""
    url = checked_url(url)
    if url.startswith(_POSTGRES):
        try:
            from holdfast.store.postgres.store import PostgresStore
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "asyncpg":
                raise
            raise UsageError(
                "A PostgreSQL store needs the driver asyncpg, which is not installed: pip install 'holdfast[postgres]'"
            ) from error
        return PostgresStore(url, settings=settings)
    if is_server(url):
        from holdfast.store.served.store import served_store

        return served_store(url)
    from holdfast.store.sqlite.store import SqliteStore

    if "://" in url and not url.startswith("sqlite:///"):
        raise UsageError(
            f"Unknown store url {url.partition('://')[0]}://…; use sqlite:///PATH, a plain path, or postgresql://…"
        )
    return SqliteStore(url.removeprefix("sqlite:///"), settings=settings)
