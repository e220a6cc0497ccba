"""A worker with a queue and a schedule: ten reports, two at a time, and one more every morning.

python examples/worker.py

For good it is a process of its own, which calls `setup` before it begins: `holdfast worker examples/worker.py`. Any
other process starts runs as a client: `async with hf.connect() as app: await app.start(report("Oslo"))`.
"""

import asyncio

import holdfast as hf

CITIES = "Bergen Oslo Turku Gdansk Riga Lyon Porto Genoa Split Izmir".split()


@hf.step(retries=3)
async def fetch(city: str) -> str:
    await asyncio.sleep(0.02)
    return f"nothing new in {city}"


@hf.agent(queue="reports")
async def report(city: str) -> str:
    return await fetch(city)


async def setup(app: hf.Holdfast) -> None:
    """Every worker process calls it: declaring the same again changes nothing."""
    await app.queue("reports", concurrency=2, per_key=1)
    await app.schedule("morning", report("Bergen"), cron="0 7 * * MON-FRI", tz="Europe/Oslo")


async def main() -> str:
    async with hf.connect(agents=[report]) as app:
        await setup(app)
        runs = [await app.start(report(city), id=f"report-{city}", queue_key=city[0]) for city in CITIES]
        found = [await run.result() for run in runs]
        (morning,) = await app.schedules()
        print(f"{morning.explained}, {morning.tz}")
        return f"{len(found)} reports, the last one: {found[-1]}"


if __name__ == "__main__":
    print(asyncio.run(main()))
