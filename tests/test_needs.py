"""What a run needs of somebody, as far as it cannot be seen from outside at will."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.history.needs import needs_of
from holdfast.model import RunId, Status, reasons
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import ALICE, new_run, opened

#: Rows are made up: nobody executes these runs.
pytestmark = pytest.mark.corrupts


@pytest.mark.parametrize("status", [Status.done, Status.failed, Status.running, Status.queued])
def test_nobody_is_needed_while_a_child_is_under_way_or_has_just_ended(tmp_path: Path, status: Status) -> None:
    """The parent was read as waiting; it is about to hear of it."""

    async def main() -> None:
        async with opened(lambda: SqliteStore(tmp_path / "runs.db")) as store:
            child = await store.create(new_run("r.child", status=status), owner=ALICE)
            waits = [{"kind": "child", "child": child.id, "key": "child#1"}]
            parent = new_run("r", status=Status.waiting, reason=reasons.of({"waits": waits})).row
            needs = await needs_of(store, parent)
            assert not needs.is_far
            assert needs.open == ()
            gone = [{"kind": "child", "child": RunId("r.other"), "key": "child#1"}]
            parent = new_run("r", status=Status.waiting, reason=reasons.of({"waits": gone})).row
            assert (await needs_of(store, parent)).is_far

    asyncio.run(main())
