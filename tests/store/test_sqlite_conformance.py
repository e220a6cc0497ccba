"""The SQLite store does what every store must do."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import (
    conformance,
    conformance_files,
    conformance_landing,
    conformance_mail,
    conformance_retention,
    conformance_surveys,
    conformance_threads,
    conformance_turns,
    conformance_waiting,
)
from holdfast.testing.samples import Case


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.__name__)
def test_conformance(case: Case, tmp_path: Path) -> None:
    asyncio.run(case(lambda: SqliteStore(tmp_path / "runs.db")))  # type: ignore[arg-type]


def test_every_case_is_listed() -> None:
    defined = {
        function
        for module in (
            conformance,
            conformance_files,
            conformance_landing,
            conformance_mail,
            conformance_retention,
            conformance_surveys,
            conformance_threads,
            conformance_turns,
            conformance_waiting,
        )
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if inspect.iscoroutinefunction(function) and list(inspect.signature(function).parameters) == ["make"]
    }
    assert defined == set(conformance.CASES)
