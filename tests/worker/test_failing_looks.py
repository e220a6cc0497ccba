"""A worker that looks in vain says so, and does not fill a disk with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

import holdfast as hf
from holdfast.errors import StoreCorrupt
from tests.eventually import eventually
from tests.worker.logged import logged


@hf.agent
async def idle() -> None:
    pass


def test_what_fails_with_each_look_is_told_once_and_again_when_it_is_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, why = 0, "the page 7 is damaged"

    async def main() -> None:
        async def fail(*args: object, **more: object) -> NoReturn:
            nonlocal looks
            looks += 1
            raise StoreCorrupt(why)

        nonlocal looks, why
        async with hf.connect(str(tmp_path / "runs.db"), agents=[idle], settings=hf.Settings(sweep_s=0.01)) as app:
            monkeypatch.setattr(app._store, "mail_counts", fail)
            with logged() as log:
                working = asyncio.create_task(app.work())
                await eventually(lambda: looks >= 20)
                assert [each["error"] for each in log.named("sweep.failed")] == [why]
                why = "the page 8 is damaged"
                await eventually(lambda: len(log.named("sweep.failed")) == 2)
                working.cancel()
                await asyncio.wait([working])

    asyncio.run(main())
