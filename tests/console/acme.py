"""Agents of a small company, with which the console is looked at: they read, charge, publish, ask and wait."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

import holdfast as hf

PACE = float(os.environ.get("ACME_PACE", "1"))
STANDS_AT = os.environ.get("ACME_STANDS_AT", "")


async def _work(seconds: float) -> None:
    await asyncio.sleep(seconds * PACE)


class Release(BaseModel):
    """How a report is released."""

    audience: Annotated[Literal["public", "team", "customers"], Field(description="Who can read it")]
    title: Annotated[str, Field(min_length=3, max_length=80, description="Shown in the list of reports")]
    notify: Annotated[bool, Field(description="Mail the subscribers of this topic")] = True
    priority: Annotated[int, Field(ge=1, le=5, description="1 is urgent")] = 3
    labels: Annotated[list[str], Field(description="Free words")] = []


# reading and writing

_tries: dict[str, int] = {}


@hf.step
async def plan(topic: str) -> list[str]:
    await _work(0.8)
    hf.usage(model="large", input_tokens=812, output_tokens=1904, cost=0.155)
    return [f"What drives {topic}?", f"How is {topic} measured?", f"Who depends on {topic}?"]


@hf.step(retries=hf.Retry(3, first=0.2))
async def search(query: str) -> list[str]:
    _tries[query] = _tries.get(query, 0) + 1
    await _work(0.35)
    if query.startswith(("How", "Who")) and _tries[query] == 1:
        raise ConnectionError("search.example.org answered 503, try again later")
    return [f"https://example.org/{abs(hash(query)) % 10_000}/{n}" for n in range(1, 4)]


@hf.step
async def read_page(url: str, depth: int = 1) -> str:
    await _work(0.3 + 0.1 * depth)
    return f"Three sources agree on it; one is older than 2010. ({url})"


@hf.step
async def summarise(question: str, pages: list[str]) -> str:
    await _work(0.7)
    hf.usage(model="large", input_tokens=3400, output_tokens=980, cost=0.087)
    return f"{question} In short: the moon, mostly. {len(pages)} sources."


@hf.step
async def draft(parts: list[str]) -> str:
    await _work(1.0)
    hf.usage(model="large", input_tokens=2100, output_tokens=1700, cost=0.12)
    return "# Report\n\n" + "\n\n".join(parts)


@hf.step
async def critique(text: str, round_: int) -> str:
    await _work(0.6)
    hf.usage(model="small", input_tokens=900, output_tokens=300, cost=0.02)
    return "units mixed: ft and m" if round_ == 1 else "source 3 is from 2009"


@hf.agent
async def reviewer(text: str) -> dict[str, Any]:
    return {"verdict": "publish after edits", "issues": [await critique(text, n) for n in (1, 2)]}


@hf.effect(settle=0)
async def publish_pr(repo: str, branch: str, title: str) -> dict[str, Any]:
    await _work(0.4)
    return {"number": 91, "url": f"https://git.example.org/{repo}/pull/91", "head": branch}


@publish_pr.verify
async def find_pr(repo: str, branch: str, title: str) -> hf.Verdict[dict[str, Any]]:
    await _work(0.3)
    return hf.landed({"number": 91, "url": f"https://git.example.org/{repo}/pull/91", "head": branch})


async def dig(question: str) -> str:
    first = await search(question)
    await search(f"{question} news")
    pages = await asyncio.gather(*(read_page(url, n) for n, url in enumerate(first)))
    return await summarise(question, list(pages))


@hf.agent(version="4")
async def research(topic: str) -> str:
    hf.progress(0, 5, "planning")
    questions = await plan(topic)
    hf.progress(1, 5, "reading")
    parts = await asyncio.gather(*(dig(each) for each in questions))
    hf.progress(3, 5, "writing")
    text = await draft(list(parts))
    review = await reviewer(text)
    hf.progress(4, 5, "publishing")
    made = await publish_pr("acme/site", f"report/{topic}", f"Report: {topic}")
    await hf.sleep(2 * PACE)
    show = {
        "pull request": made,
        "words": 2480,
        "review": review,
        "excerpt": f"# {topic.title()}\n\n{parts[0]}\n\n{parts[1]}",
    }
    release = await hf.ask(f"Release the report on {topic}?", Release, show=show, timeout=72_000)
    return f"released to {release.audience}"


# people decide


@hf.agent
async def refund(order: str, cents: int, reason: str = "never arrived") -> str:
    ok = await hf.ask(
        f"Refund €{cents / 100:.0f} for order {order}?",
        show={"order": order, "cents": cents, "reason": reason, "orders so far": 14},
        timeout=10_200,
    )
    return "paid" if ok else "refused"


@hf.agent
async def deploy(version: str) -> str:
    where = await hf.ask(f"Where shall {version} go?", options=["nowhere", "staging", "production"])
    return f"{version} is on {where}"


@hf.agent
async def reply(ticket: str) -> str:
    text = await hf.ask(f"Send this reply to ticket {ticket}?", draft="Dear Cy,\n\nyour parcel left yesterday.\n\nDora")
    return f"sent: {text}"


# money


@hf.effect(settle=0)
async def charge_card(customer: str, cents: int, currency: str) -> str:
    await _work(30)
    return "ch_1"


@hf.agent
async def billing(customer: str, cents: int) -> str:
    return await charge_card(customer, cents, "EUR")


# long and many


@hf.step
async def fetch(url: str) -> int:
    if url == STANDS_AT:
        await asyncio.Event().wait()
    await _work(0.12)
    return len(url)


@hf.agent
async def crawl(pages: int) -> int:
    total = 0
    for number in range(pages):
        total += await fetch(f"https://example.org/p/{number}")
    return total


@hf.step
async def embed(number: int) -> int:
    await _work(0.15)
    hf.usage(model="embed", input_tokens=420, output_tokens=0, cost=0.0009)
    return number


@hf.agent(queue="gpu")
async def index_corpus(name: str, pages: int = 4000) -> int:
    for number in range(pages):
        hf.progress(number, pages, f"embedding {name}")
        await embed(number)
    return pages


class TooOld(Exception):
    """A ticket from before the migration."""


@hf.step
async def classify(ticket: str) -> str:
    hf.usage(model="small", input_tokens=310, output_tokens=12, cost=0.0008)
    return "billing"


@hf.agent
async def triage(ticket: str, old: bool = False) -> str:
    kind = await classify(ticket)
    if old:
        raise TooOld(f"ticket {ticket} is from before the migration; its customer record has no 'region'")
    return kind


@hf.agent
async def digest(kind: str = "daily") -> str:
    return kind


@hf.agent
async def welcome(ticket: dict[str, str]) -> str:
    return await classify(ticket["plan"])


@hf.step
async def translate(text: str) -> str:
    await _work(0.2)
    return text.upper()


@hf.effect(settle=0)
async def upload(name: str) -> str:
    await _work(0.1)
    return f"s3://acme/{name}"


@hf.effect(settle=0)
async def announce(name: str) -> str:
    return name


@hf.agent
async def localise(page: str) -> str:
    await translate(page)
    if os.environ.get("ACME_CODE") == "new":
        await announce(page)
    else:
        await upload(f"{page}/de")
        await upload(f"{page}/fr")
    return "released" if await hf.ask("Looks right?") else "dropped"


@hf.agent
async def watch_price(product: str) -> str:
    await hf.sleep(hours=6)
    return product


# turns, files, streams

CHAPTERS = {
    "Opening": "Doors open at eight. The alarm is off by then, or the landlord comes running.",
    "Returns": "A parcel that comes back is weighed first. What is heavier than it was is not ours.",
    "Closing": "Count the till twice. The second number is the one that is written down.",
}


def _picture(width: int, height: int) -> bytes:
    """Stripes, as PNG."""
    rows = b"".join(
        b"\0" + b"".join(bytes((29, 91, 209) if (x + y) // 12 % 2 else (231, 238, 251)) for x in range(width))
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


@hf.step(retries=3)
async def compose(title: str) -> str:
    """Says it word by word; a process with the old code never gets to the end of the second chapter."""
    out = hf.stream("draft")
    for n, word in enumerate(CHAPTERS[title].split()):
        if title == "Returns" and n == 9 and os.environ.get("ACME_CODE") != "new":
            await asyncio.Event().wait()
        out.write(f"{word} ")
        await _work(0.05)
    hf.usage(model="large", input_tokens=300, output_tokens=420, cost=0.03)
    return CHAPTERS[title]


def house_style() -> str:
    """What the writers agreed on, and changed since."""
    return "version 8, of November" if os.environ.get("ACME_CODE") == "new" else "version 7, of March"


@hf.agent
async def handbook(name: str) -> str:
    await hf.guard("house style", house_style)
    await hf.artifact("cover.png", _picture(240, 160))
    await hf.artifact("request", ref=f"https://git.example.org/acme/{name}/pull/7", kind="draft-pr")
    begun: dict[str, Any] = {"phase": "planned", "chapters": [], "left": list(CHAPTERS)}
    async for state in hf.turns(begun):
        title = state["left"].pop(0)
        state["chapters"].append(f"## {title}\n\n{await compose(title)}\n")
        state["phase"] = f"{title} is written"
        await hf.artifact("handbook.md", f"# {name}\n\n" + "\n".join(state["chapters"]))
        if not state["left"]:
            break
    await hf.ask("Print the handbook?", show={"chapters": len(CHAPTERS)})
    return "printed"


ALL: list[hf.Agent[..., Any]] = [
    research, reviewer, refund, deploy, reply, billing, crawl, index_corpus, triage, digest, welcome, localise,
    watch_price, handbook,
]  # fmt: skip
