"""The thread that reads: whoever waits for it is told, and nobody else holds it up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.store.sqlite.side_thread import SideThread
from tests.eventually import eventually_now


def test_what_is_done_there_is_returned_or_raised_in_order() -> None:
    async def main() -> None:
        side = SideThread("side")
        names = await asyncio.gather(*(side.do(lambda: threading.current_thread().name) for _ in range(3)))
        assert names == ["side"] * 3
        with pytest.raises(ZeroDivisionError):
            await side.do(lambda: 1 // 0)
        assert await side.do(lambda: 7) == 7
        side.stop()

    asyncio.run(main())
    eventually_now(lambda: all(thread.name != "side" for thread in threading.enumerate()))


def test_whoever_is_cancelled_or_gone_does_not_hold_up_the_others() -> None:
    side, go_on, done = SideThread("other side"), threading.Event(), list[int]()

    async def leaves() -> None:
        under_way = asyncio.ensure_future(side.do(go_on.wait))
        queued = asyncio.ensure_future(side.do(lambda: done.append(1)))
        await asyncio.sleep(0)
        for task in (under_way, queued):
            task.cancel()
        assert all(isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(
            under_way, queued, return_exceptions=True
        ))  # fmt: skip

    async def comes() -> None:
        assert await side.do(lambda: len(done)) == 0, "nobody waited for it any more"

    asyncio.run(leaves())
    go_on.set()  # its loop is closed by now
    asyncio.run(comes())
    side.stop()
