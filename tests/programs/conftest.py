"""Programs on stores of both sorts."""

from __future__ import annotations

from tests.stores import forkserver

__all__ = ["forkserver"]
