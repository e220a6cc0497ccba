"""What a client does to runs and definitions, in a process that may be killed meanwhile: each may be repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime

import holdfast as hf
from tests.crash import waiting

Errand = Callable[[hf.Holdfast], Awaitable[object]]
ERRANDS: dict[str, Errand] = {}

RUN = "survivor"
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def errand(do: Errand) -> Errand:
    ERRANDS[do.__name__] = do
    return do


@errand
async def start(app: hf.Holdfast) -> None:
    await app.start(waiting.collector(1), id="started", queue="crash", tags={"by": "client"})


@errand
async def start_paused(app: hf.Holdfast) -> None:
    run = await app.start(waiting.collector(1), id="started", paused=True)
    await run.resume()


@errand
async def send(app: hf.Holdfast) -> None:
    with suppress(hf.RunFinished):  # then all of it was received before
        for n in range(2):
            await app.get(RUN).send(waiting.number, n, dedup=f"number-{n}")
        await app.get(RUN).send(waiting.go, True, dedup="go")


async def said_once(decision: Awaitable[object]) -> None:
    """Nobody else decides here: if it is decided, it was by the one that died."""
    try:
        await decision
    except hf.AlreadyDecided as error:
        if error.by != "ada":
            raise


async def first_question(app: hf.Holdfast) -> list[hf.Question]:
    """Those that come later are for others: whoever does this again after a death may find that the run went on."""
    return (await app.get(RUN).questions(only_open=False))[:1]


@errand
async def answer(app: hf.Holdfast) -> None:
    for question in await first_question(app):
        await said_once(question.answer("blue", by="ada"))


@errand
async def decline(app: hf.Holdfast) -> None:
    for question in await first_question(app):
        await said_once(question.decline(by="ada", note="no"))


@errand
async def pause_and_resume(app: hf.Holdfast) -> None:
    await app.get(RUN).pause(note="one moment")
    await app.get(RUN).resume()


@errand
async def pause_and_cancel(app: hf.Holdfast) -> None:
    """Paused, with something to undo: a worker is needed to do that."""
    await app.get(RUN).pause()
    await app.get(RUN).cancel(timeout=0.2)


@errand
async def cancel(app: hf.Holdfast) -> None:
    await app.get(RUN).cancel(by="ada", timeout=0.2)


@errand
async def kill(app: hf.Holdfast) -> None:
    assert await app.get(RUN).cancel(by="ada", kill=True) is hf.Status.cancelled


@errand
async def interrupt(app: hf.Holdfast) -> None:
    """It has no dedup id: repeated, it is handled again."""
    with suppress(TimeoutError):  # nobody is there to reply
        await app.get(RUN).interrupt(100, timeout=0.2)


@errand
async def pause_all(app: hf.Holdfast) -> None:
    await app.pause_all(agent="collector")
    await app.resume_all(agent="collector")


@errand
async def cancel_all(app: hf.Holdfast) -> None:
    await app.cancel_all(agent="collector", timeout=0.2)


@errand
async def emit(app: hf.Holdfast) -> None:
    await app.emit("crash.reported", {"n": 7}, dedup="seven")


@errand
async def declare(app: hf.Holdfast) -> None:
    await app.queue("crash", concurrency=3, rate=(100, 1))
    await app.schedule("yearly", waiting.look_once(1), cron="0 2 1-3 1 *")
    await app.on("crash.reported", waiting.reports, name="reports")


@errand
async def undeclare(app: hf.Holdfast) -> None:
    await declare(app)
    await app.pause_queue("crash")
    await app.resume_queue("crash")
    with suppress(hf.HoldfastError):
        await app.remove_schedule("yearly")
    with suppress(hf.HoldfastError):
        await app.remove_trigger("reports")


@errand
async def backfill(app: hf.Holdfast) -> None:
    await app.schedule("yearly", waiting.look_once(1), cron="0 2 1-3 1 *")
    await app.backfill_schedule("yearly", NEW_YEAR, NEW_YEAR.replace(day=4))
