"""That a run is quarantined is in the log, whoever found out."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import holdfast as hf

go = hf.Signal("go", bool)


@hf.agent(signals=[go])
async def waits() -> bool:
    return await hf.receive(go)


@pytest.mark.corrupts
@pytest.mark.parametrize("who", ["a script", "a person"])
def test_a_run_that_is_quarantined_when_it_is_resumed_is_told_of_in_the_log(
    who: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = str(tmp_path / "store.db")
    with pytest.raises(hf.NeedsHuman):
        hf.run(waits(), id="r", url=url)

    async def send() -> None:
        async with hf.connect(url) as app:
            await app.get("r").send(go, True)

    with closing(apsw.Connection(url)) as store:
        store.execute("UPDATE records SET payload = '11' WHERE run_id = 'r' AND kind = 'claimed'")
        assert store.changes() >= 1  # one for each time that it was taken up

    async def resume() -> None:
        async with hf.connect(url, agents=[waits]) as app:
            await app.get("r").resume()

    def go_on() -> None:
        if who == "a script":
            hf.run(waits(), id="r", url=url)
        else:
            asyncio.run(resume())

    asyncio.run(send())
    with caplog.at_level(logging.WARNING, "holdfast"), pytest.raises(hf.CorruptJournal) as caught:
        go_on()
    told = [record.getMessage() for record in caplog.records if record.event == "run.quarantined"]  # type: ignore[attr-defined]
    assert told == [f"run.quarantined run=r error={str(caught.value)!r}"]
