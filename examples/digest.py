"""What was new, by mail, every morning: a schedule, and the mornings of a week when nobody was there to send it.

python examples/digest.py

For good it is a worker, which calls `setup` before it begins: `holdfast worker examples/digest.py`. Each digest knows
its own morning and has what came since the one before. Kill it in the middle and run it again: each morning has one.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import holdfast as hf

OUTBOX = Path("digests.jsonl")  # the mail server of this example
FIRST = datetime(2026, 3, 2, tzinfo=UTC)


@hf.step(retries=3)
async def read_feed(since: datetime, until: datetime) -> list[str]:
    """A feed with something new every nine hours."""
    hours = [FIRST + timedelta(hours=9 * number) for number in range(40)]
    return [f"news of {at:%d.%m. %H:%M}" for at in hours if since < at <= until]


@hf.step(retries=3, timeout=60)
async def summarise(news: list[str]) -> str:
    hf.usage(model="table", input_tokens=50 * len(news), output_tokens=60, cost=0.001)  # a model, in real life
    return f"{len(news)} things happened, the last one: {news[-1]}" if news else "nothing happened"


@hf.effect(settle=0)  # 0: a local file cannot act late; leave the default for a server
async def send(day: str, text: str) -> str:
    key = hf.this_step().idempotency_key
    with OUTBOX.open("a") as outbox:
        outbox.write(json.dumps({"key": key, "day": day, "text": text}) + "\n")
    return key


@send.verify
async def find_sent(day: str, text: str) -> hf.Verdict[str]:
    key = hf.this_step().idempotency_key
    return hf.landed(key) if OUTBOX.exists() and key in OUTBOX.read_text() else hf.not_landed()


@hf.agent(queue="digests")
async def digest() -> str:
    morning = hf.this_run().scheduled_at or hf.now()  # not today: this may be a morning of last week
    text = await summarise(await read_feed(morning - timedelta(days=1), morning))
    await send(f"{morning:%Y-%m-%d}", text)
    return f"{morning:%A}: {text}"


async def setup(app: hf.Holdfast) -> None:
    """Every worker process calls it: declaring the same again changes nothing."""
    await app.queue("digests", concurrency=2)
    await app.schedule("digest", digest(), cron="0 7 * * *", tz="Europe/Lisbon", overlap="allow")


async def main() -> str:
    async with hf.connect(agents=[digest]) as app:
        await setup(app)
        started = await app.backfill_schedule("digest", FIRST + timedelta(days=1), FIRST + timedelta(days=8))
        print(f"{len(started)} mornings to make up for")
        sent = [await app.get(info.id).result() for info in await app.runs(agent="digest")]
        return f"{len(sent)} digests, {sum('3 things' in text for text in sent)} of them with 3 things"


if __name__ == "__main__":
    print(asyncio.run(main()))
