"""Programs on stores of both sorts."""

from __future__ import annotations

from tests.stores import nursery

__all__ = ["nursery"]
