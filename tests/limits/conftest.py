"""Places with workers."""

from __future__ import annotations

from tests.stores import forkserver
from tests.waiting.conftest import postgres_databases

__all__ = ["forkserver", "postgres_databases"]
