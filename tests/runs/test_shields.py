"""What a shield waits for, when ends and cancellations come in the same turn of the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import anyio
import pytest

from holdfast.base.shields import Shield

#: In which order one turn of the loop has both: the task hears of the first one first.
ORDERS: dict[str, Callable[[Callable[[], object], Callable[[], object]], None]] = {
    "cancelled, then done": lambda cancel, end: (cancel(), end(), None)[-1],
    "done, then cancelled": lambda cancel, end: (end(), cancel(), None)[-1],
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("message", [None, "Cancelled via cancel scope 7f00"], ids=["asyncio", "anyio"])
def test_an_end_that_is_told_late_does_not_end_the_next_wait(message: str | None, order: str) -> None:
    assert anyio.__name__ in sys.modules  # or nobody knows its cancellations, which get through once

    async def main() -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()

        async def work() -> str:
            return f"{await first} {await second}"

        shield = Shield(lambda: False)
        task = loop.create_task(shield.drive(work()))
        await asyncio.sleep(0)
        ORDERS[order](lambda: task.cancel(message), lambda: first.set_result("one"))
        for _ in range(5):
            await asyncio.sleep(0)
            assert not task.done()
        second.set_result("two")
        assert await task == "one two"
        assert isinstance(shield.kept, asyncio.CancelledError)
        assert shield.kept.args == (() if message is None else (message,))

    asyncio.run(main())
