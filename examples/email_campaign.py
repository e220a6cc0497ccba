"""A mail to each of sixty people, eight at a time. Killed anywhere, it goes on, and nobody gets a second one.

python examples/email_campaign.py

Kill it in the middle (`kill -9`) and run it again. Mails that were cut off are looked up at the mail server by their
key: `verify`. An address that does not exist is a failure that proves itself, and is no reason to stop.
"""

import asyncio
import json
from pathlib import Path

import holdfast as hf

OUTBOX = Path("outbox.jsonl")  # the mail server of this example
PEOPLE, AT_ONCE = 60, 8


class NoSuchAddress(Exception):
    """The server took nothing."""


@hf.step
async def addressees() -> list[str]:
    return [f"person{number:02}" for number in range(PEOPLE)]


@hf.step(retries=3)
async def write(name: str, offer: str) -> str:
    hf.usage(model="table", input_tokens=200, output_tokens=40, cost=0.01)  # a model, in real life
    return f"Dear {name}, have a look at our {offer}."


@hf.effect(settle=0, raises=NoSuchAddress)  # 0: a local file cannot act late; leave the default for a server
async def send(to: str, text: str) -> str:
    if to.startswith("person13"):
        raise NoSuchAddress(to)
    key = hf.this_step().idempotency_key
    with OUTBOX.open("a") as outbox:
        outbox.write(json.dumps({"key": key, "to": to, "text": text}) + "\n")
    return key


@send.verify
async def find_sent(to: str, text: str) -> hf.Verdict[str]:
    key = hf.this_step().idempotency_key
    is_there = OUTBOX.exists() and any(json.loads(line)["key"] == key for line in OUTBOX.read_text().splitlines())
    return hf.landed(key) if is_there else hf.not_landed()


@hf.agent(budget=hf.Budget(cost=2.0))
async def campaign(offer: str) -> str:
    people = await addressees()
    slots = asyncio.Semaphore(AT_ONCE)
    done: list[str] = []

    async def serve(name: str) -> bool:
        async with slots:
            try:
                await send(f"{name}@example.org", await write(name, offer))
            except NoSuchAddress:
                return False
            finally:
                done.append(name)
                hf.progress(len(done), len(people), "people")
            return True

    sent = await asyncio.gather(*(serve(name) for name in people))
    return f"{sum(sent)} of {len(people)} mails sent"


if __name__ == "__main__":
    print(hf.run(campaign("boats"), id="spring"))
