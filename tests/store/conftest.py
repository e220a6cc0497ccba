"""Tests of stores use rows and records made up by `holdfast.testing.samples`, which are no histories of real runs."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def histories_hold() -> None:
    """In place of the check that every other test ends with."""
