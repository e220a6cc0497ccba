"""A job for each night, and the nights that were missed: a schedule, a queue and a backfill.

python examples/nightly.py

For good it is a worker, which calls `setup` before it begins: `holdfast worker examples/nightly.py`. Run it twice, or
kill it in the middle and run it again: a night that has its run is not started again, and a night is counted once.
"""

import asyncio
from datetime import UTC, date, datetime

import holdfast as hf


@hf.step(retries=3)
async def count_visitors(day: date) -> int:
    await asyncio.sleep(0.05)  # a slow report
    return 100 + day.day


@hf.effect
def store(day: date, visitors: int) -> None:
    with hf.transaction() as connection:  # your own table, with the result of the effect in one commit
        connection.execute("CREATE TABLE IF NOT EXISTS visitors (day TEXT, visitors INTEGER)")
        connection.execute("INSERT INTO visitors VALUES (?, ?)", (day.isoformat(), visitors))


@hf.agent(queue="nightly")
async def nightly() -> str:
    day = (hf.this_run().scheduled_at or hf.now()).date()  # not today: this may be a night of last week
    visitors = await count_visitors(day)
    await store(day, visitors)
    return f"{day}: {visitors}"


async def setup(app: hf.Holdfast) -> None:
    """Every worker process calls it: declaring the same again changes nothing."""
    await app.queue("nightly", concurrency=2)  # a backfill starts all its nights at once
    await app.schedule("visitors", nightly(), cron="0 2 * * *", overlap="allow")


async def main() -> str:
    async with hf.connect(agents=[nightly]) as app:
        await setup(app)
        since, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)
        started = await app.backfill_schedule("visitors", since, until)  # only those that have no run yet
        print(f"{len(started)} nights to make up for")
        nights = [await app.get(info.id).result() for info in await app.runs(agent="nightly")]
        return f"{len(nights)} nights, the first is {min(nights)}"


if __name__ == "__main__":
    print(asyncio.run(main()))
