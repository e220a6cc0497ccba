"""A store as a company has it after a bad morning: processes were killed, code was changed, bytes were damaged."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw

import holdfast as hf
from holdfast.model import RunId
from tests.console import acme
from tests.eventually import eventually

_HERE = Path(__file__).parent
_AGENTS = _HERE / "acme.py"
PACE = 0.5


def worker(url: str, *agents: str, code: str = "", pace: float = PACE, stands_at: str = "") -> subprocess.Popen[bytes]:
    """A process that executes agents of the company; a crawl stands still at that address, until it is killed."""
    sources = [f"{_AGENTS}:{each}" for each in agents] or [str(_AGENTS)]
    told = {"ACME_CODE": code, "ACME_PACE": str(pace), "ACME_STANDS_AT": stands_at}
    environment = os.environ | told | {"HOLDFAST_URL": url}
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", *sources],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9, of all that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def has(app: hf.Holdfast, run_id: str, *, key: str, kind: str) -> bool:
    """Does the journal have such a record of a call?"""
    return any(each.key == key and each.kind == kind for each in await app._store.records(RunId(run_id)))


def standing(app: hf.Holdfast, run_id: str, *statuses: str) -> Callable[[], Awaitable[bool]]:
    """Is the run in one of these?"""

    async def is_so() -> bool:
        return (await app.get(run_id).status()).value in statuses

    return is_so


def _recorded(app: hf.Holdfast, run_id: str, key: str, kind: str) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return await has(app, run_id, key=key, kind=kind)

    return is_so


def has_said(app: hf.Holdfast, run_id: str, word: str) -> Callable[[], Awaitable[bool]]:
    """Has a stream of the run such a word?"""

    async def is_so() -> bool:
        return any(word in str(each) for each in await app._store.records(RunId(run_id)))

    return is_so


async def make(url: str, *, tickets: int = 60) -> list[subprocess.Popen[bytes]]:
    """Fill a store; the processes that go on with it."""
    app = hf.connect(url)
    async with app:
        await app.queue("gpu", concurrency=1)
        await app.queue("reports", concurrency=2, rate=(30, 60))
        await app.queue("tickets", concurrency=4, per_key=1)
        first = worker(url)
        await app.start(acme.research("sea level"), id="report-sea-level", thread_id="t_editorial", queue="reports")
        await app.start(acme.billing("cy", 24_000), id="bill-0941")
        await app.start(acme.billing("dora", 2_490), id="bill-0940")
        await app.start(acme.localise("pricing"), id="l10n-pricing")
        await app.start(acme.refund("A-7750", 1_200), id="refund-7750")
        await app.start(acme.handbook("shop"), id="handbook-shop")
        for number in range(tickets):
            await app.start(
                acme.triage(f"T-{4300 + number}", number % 11 == 3), id=f"ticket-{4300 + number}", queue="tickets"
            )
        await eventually(standing(app, "l10n-pricing", "waiting"), timeout=60)
        await eventually(standing(app, "refund-7750", "waiting"), timeout=60)
        await eventually(_recorded(app, "bill-0940", "charge_card#1", "intent"), timeout=60)
        await eventually(_recorded(app, "report-sea-level", "dig~1/search#2", "done"), timeout=60)
        await eventually(has_said(app, "handbook-shop", "parcel"), timeout=60)
        await asyncio.sleep(0.1)
        kill(first)  # in the middle of parallel reads, of a sentence, and of two payments
        await asyncio.sleep(4)
        second = worker(url, code="new")  # its code has changed
        await eventually(_recorded(app, "report-sea-level", "publish_pr#1", "intent"), timeout=90)
        kill(second)  # a pull request is being made
        await asyncio.sleep(6)
        third = worker(url, *(each.name for each in acme.ALL if each is not acme.crawl), code="new")
        await eventually(standing(app, "report-sea-level", "waiting"), timeout=60)
        await eventually(standing(app, "bill-0940", "in_doubt"), timeout=60)
        await eventually(standing(app, "bill-0941", "in_doubt"), timeout=60)
        for question in await app.get("l10n-pricing").questions():
            await question.answer(True, by="ana")
        await app.start(acme.refund("A-7731", 24_000), id="refund-7731")
        await app.start(acme.refund("A-7742", 8_900, "wrong size"), id="refund-7742")
        await app.start(acme.deploy("2.14.0"), id="deploy-2.14.0")
        await app.start(acme.reply("T-4117"), id="reply-4117")
        await app.start(acme.research("tides"), id="report-tides", thread_id="t_editorial", queue="reports")
        await app.start(acme.watch_price("kettle"), id="price-kettle")
        await app.start(acme.index_corpus("handbook"), id="index-handbook-2")
        await app.start(acme.index_corpus("mail"), id="index-mail-2025")
        cancelled = await app.start(acme.watch_price("lamp"), id="price-lamp")
        await app.schedule("daily-digest", acme.digest(), cron="0 7 * * 1-5", tz="Europe/Oslo")
        await app.schedule("minutely", acme.digest("short"), cron="* * * * *")
        await app.schedule("month-end", acme.billing("all", 0), cron="30 23 L * *", tz="Europe/Vienna", missed="skip")
        await app.schedule("tide-check", acme.watch_price("tide"), cron="*/15 * * * *")
        await app.pause_schedule("tide-check")
        await app.on("ticket.opened", acme.welcome, name="tickets", where={"plan": "pro"})
        for plan in ("free", "free", "pro"):
            await app.emit("ticket.opened", {"plan": plan})
        lone = worker(url, "crawl")
        await app.start(acme.crawl(400), id="crawl-docs", queue="default")
        await cancelled.cancel(by="ana", note="not sold any more")
        await eventually(_recorded(app, "crawl-docs", "fetch#12", "done"), timeout=60)
        await eventually(standing(app, "report-tides", "waiting"), timeout=90)
        kill(lone)
        await eventually(standing(app, "l10n-pricing", "blocked"), timeout=60)
        await eventually(standing(app, "handbook-shop", "waiting"), timeout=60)
    _damage(url)
    async with hf.connect(url) as app:
        for question in await app.get("refund-7750").questions():
            await question.answer(True, by="ana")
        await eventually(standing(app, "refund-7750", "quarantined"), timeout=60)
    return [third]


def _damage(url: str) -> None:
    """What a disk, or somebody, does to a record."""
    connection = apsw.Connection(url)
    connection.set_busy_timeout(30_000)
    connection.execute("UPDATE records SET payload = '{\"damaged\": 1}' WHERE run_id = 'refund-7750' AND seq = 2")
    connection.close()


if __name__ == "__main__":
    left = asyncio.run(make(sys.argv[1]))
    print(*(each.pid for each in left))
