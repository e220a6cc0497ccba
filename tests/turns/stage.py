"""Where loops are tried: an agent is executed until it waits or ends, and goes on later, perhaps with other code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.codec import decode_error
from holdfast.model import Loaded, RunId, reasons
from holdfast.testing.reading import read, read_run
from tests.eventually import eventually

RUN = "r"
STOPPED = (hf.Status.blocked, hf.Status.quarantined)
word = hf.Signal("word", str)


class Stage:
    """One run in a store of its own."""

    def __init__(self, url: str | Path) -> None:
        self.url = str(url)

    def go(self, call: hf.Call[Any], *said: str) -> Any:
        """Execute until it ends, or until it waits and has received all that was said; how it stands then."""

        async def go() -> Any:
            async with hf.connect(self.url, agents=[call.agent]) as app:
                run = await app.start(call, id=RUN)
                if (await run.info()).status in (hf.Status.blocked, hf.Status.failed):
                    await run.resume()
                for each in said:
                    await run.send(word, each)

                async def is_over() -> bool:
                    row = await app._store.run(RunId(RUN))
                    assert row is not None
                    reason = {} if row.reason is None else reasons.plain(row.reason)
                    waits = row.status is hf.Status.waiting and reason.get("mail") == row.mail
                    return waits or row.status in STOPPED or row.status.is_final

                await eventually(is_over)
                return await run.result() if (await run.info()).status is hf.Status.done else await run.info()

        return asyncio.run(go())

    def look_failed(self, call: hf.Call[Any]) -> str:
        """What it fails with."""
        assert self.go(call).status is hf.Status.failed
        error = read_run(self.url, RUN)[1][-1].payload
        return str(decode_error(error or "null"))

    def look(self, work: Any) -> Any:
        """What a client finds."""

        async def looked() -> Any:
            async with hf.connect(self.url) as app:
                return await work(app.get(RUN))

        return asyncio.run(looked())

    def resumable(self) -> Loaded:
        """What a resume reads."""
        return read(self.url, lambda store: store.load_many([RunId(RUN)]))[0]
