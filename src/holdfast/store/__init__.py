"""Where runs live. `open_store` is the only place that knows which backends there are."""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.errors import UsageError
from holdfast.store.base import Store


def open_store(url: str, *, settings: Settings) -> Store:
    """The store for a url, not opened yet."""
    if url.startswith("postgresql://"):
        raise UsageError("PostgreSQL is not supported by this version; use sqlite:///PATH or a plain path.")
    from holdfast.store.sqlite import SqliteStore

    if "://" in url and not url.startswith("sqlite:///"):
        raise UsageError(f"Unknown store url {url!r}; use sqlite:///PATH or a plain path.")
    return SqliteStore(url.removeprefix("sqlite:///"), settings=settings)
