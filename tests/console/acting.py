"""A store with a bit of everything that can be acted upon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import holdfast as hf
from tests.console import acme as company
from tests.console.acme_store import kill, worker
from tests.console.served import Served, start_run
from tests.eventually import eventually_now


@contextmanager
def acting(url: str) -> Iterator[Served]:
    """It, served, with a worker: two payments are in doubt, and there are a queue, a schedule and a trigger."""

    async def define() -> None:
        async with hf.connect(url) as app:
            await app.queue("gpu", concurrency=1)
            await app.schedule("daily", company.digest(), cron="0 7 * * *")
            await app.on("ticket.opened", company.welcome, name="tickets")

    asyncio.run(define())
    first = worker(url, pace=0.05)
    try:
        with Served(url) as served:
            start_run(served, "billing", "bill-1", customer="cy", cents=2400)
            start_run(served, "billing", "bill-2", customer="dora", cents=900)
            records = "/runs/bill-{}/records"
            for number in (1, 2):
                eventually_now(
                    lambda number=number: "intent" in str(served.ask("GET", records.format(number)))  # type: ignore[misc]
                )
            kill(first)
            first = worker(url, pace=0.05)
            eventually_now(lambda: len(served.ask("GET", "/in-doubt")["items"]) == 2)
            yield served
    finally:
        kill(first)


def until(served: Served, run_id: str, *statuses: str) -> None:
    """Wait until a run is in one of these."""
    eventually_now(lambda: served.ask("GET", f"/runs/{run_id}")["status"] in statuses)
