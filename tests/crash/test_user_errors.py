"""An error of the user's code that looks like one of ours or of the store's is the user's error."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import holdfast as hf
from holdfast.testing import check_history

LOOKALIKES: dict[str, Callable[[], Exception]] = {
    "sqlite3 locked": lambda: sqlite3.OperationalError("database is locked"),
    "apsw busy": lambda: apsw.BusyError("BusyError: database is locked"),
    "apsw full": lambda: apsw.FullError("FullError: database or disk is full"),
    "apsw i/o": lambda: apsw.IOError("IOError: disk I/O error"),
    "apsw corrupt": lambda: apsw.CorruptError("CorruptError: database disk image is malformed"),
    "os i/o": lambda: OSError(5, "Input/output error"),
    "store error": lambda: hf.StoreError("the store cannot do what was asked"),
    "corrupt journal": lambda: hf.CorruptJournal("stored data failed verification", run_id="r", seq=1),
    "needs human": lambda: hf.NeedsHuman("parked", run_id="r", token="r@t", command="x"),
    "run blocked": lambda: hf.RunBlocked("blocked", run_id="r", reason={"why": "user"}),
    "timeout": lambda: TimeoutError("too slow"),
    "cancelled": lambda: asyncio.CancelledError(),  # type: ignore[dict-item, return-value]
    "connection": lambda: ConnectionResetError(104, "reset by peer"),
}


def count(calls: str) -> None:
    with Path(calls).open("a") as file:
        file.write("called\n")


@hf.step
async def step_raises(name: str, calls: str) -> None:
    count(calls)
    raise LOOKALIKES[name]()


@hf.effect(on_doubt="fail")
async def effect_raises(name: str, calls: str) -> None:
    count(calls)
    raise LOOKALIKES[name]()


@hf.agent
async def in_a_step(name: str, calls: str) -> None:
    await step_raises(name, calls)


@hf.agent
async def in_an_effect(name: str, calls: str) -> None:
    await effect_raises(name, calls)


@hf.agent
async def in_the_agent(name: str, calls: str) -> None:
    count(calls)
    raise LOOKALIKES[name]()


@hf.agent
async def bystander(n: int) -> int:
    return n + 1


@pytest.mark.parametrize("agent", [in_a_step, in_an_effect, in_the_agent], ids=lambda agent: agent.name)
@pytest.mark.parametrize("name", LOOKALIKES)
def test_the_run_fails_once_and_the_store_goes_on(agent: hf.Agent[[str, str], None], name: str, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    url = str(tmp_path / "store.db")

    async def run() -> tuple[BaseException | None, int, hf.Status]:
        async with hf.connect(url, agents=[agent, bystander]) as app:
            failing = await app.start(agent(name, str(calls)), id="r")
            other = await app.start(bystander(1))
            async with asyncio.timeout(60):
                error: BaseException | None = None
                try:
                    await failing.result()
                except (hf.RunFailed, hf.RunCancelled) as caught:
                    error = caught
                return error, await other.result(), await failing.status()

    error, other, status = asyncio.run(run())
    assert error is not None
    assert other == 2
    assert status in (hf.Status.failed, hf.Status.cancelled)
    assert calls.read_text() == "called\n"
    if name != "cancelled":
        shown = f"{error} {error.__cause__!r}"
        assert str(LOOKALIKES[name]()).removeprefix("BusyError: ") in shown or "in doubt" in shown.lower(), shown
    assert check_history(url) == []
