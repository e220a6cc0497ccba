"""What users write. Both type checkers must accept all of it, with exactly the types asserted here.

It is also imported and executed by `tests/test_types.py`: what the checkers believe must be what happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Never, TypeVar, assert_type

import holdfast as hf

T = TypeVar("T")


@dataclass(frozen=True)
class Page:
    url: str
    text: str


class Full(Exception):
    """There are no seats left."""


# steps


@hf.step
async def search(query: str, limit: int = 10) -> list[str]:
    """Find pages."""
    return [query] * limit


@hf.step(
    name="load",
    retries=hf.Retry(5, first=0.01, most=timedelta(seconds=1)),
    timeout=timedelta(seconds=5),
    retry_on=(OSError, ValueError),
    raises=KeyError,
)
async def fetch(url: str, *, follow: bool = True) -> Page:
    return Page(url, str(follow))


@hf.step
def add(first: int, /, *others: int) -> int:
    return first + sum(others)


@hf.step(retries=2, timeout=1.5)
def describe(page: Page, **labels: str) -> str:
    """Say what a page is."""
    return f"{page.url} {labels}"


@hf.step()
async def log(line: str) -> None:
    with contextlib.suppress(hf.NotInRun):
        assert_type(hf.this_step().attempt, int)
        assert_type(hf.this_step().key, str)


@hf.step
async def ask_model(prompt: str) -> Any:
    return {"answer": prompt}


@hf.step
async def pick(options: Sequence[T], at: int = 0) -> T:
    return options[at]


@hf.step(retries=1)
def halves(options: list[T]) -> tuple[list[T], list[T]]:
    middle = len(options) // 2
    return options[:middle], options[middle:]


async def steps() -> None:
    assert_type(await search("tides"), list[str])
    assert_type(await search("tides", limit=3), list[str])
    assert_type(await fetch("u"), Page)
    assert_type(await fetch("u", follow=False), Page)
    assert_type(await add(1), int)
    assert_type(await add(1, 2, 3), int)
    assert_type(await describe(Page("u", "t"), tone="dry"), str)
    assert_type(await log("line"), None)
    assert_type(await ask_model("why?"), Any)
    assert_type(await pick([1, 2, 3], at=1), int)
    assert_type(await pick(["a"]), str)
    assert_type(await halves([1.5]), tuple[list[float], list[float]])
    assert_type(search.__name__, str)


async def options() -> None:
    assert_type(await search.with_options(key="q-1")("tides", limit=3), list[str])
    assert_type(await fetch.with_options(retries=3, timeout=2).with_options(key="u")("u", follow=False), Page)
    assert_type(await send.with_options(key="m-1", retries=hf.Retry(2), timeout=timedelta(minutes=1))("me"), str)
    patient = search.with_options(timeout=60)
    assert_type(await patient("tides"), list[str])


# effects


@hf.effect
async def send(to: str, body: str = "") -> str:
    """Send a message."""
    return to + body


@send.verify
async def find_sent(to: str, body: str = "") -> hf.Verdict[str]:
    """Look for it in the outbox."""
    return hf.landed(to) if body else hf.not_landed()


@hf.effect(retries=2, raises=Full, retry_on=(OSError,), on_doubt="undo", settle=0, timeout=30)
async def book(city: str, *, nights: int = 1) -> str | None:
    if not city:
        raise Full
    return f"{city}-{nights}"


@book.verify
async def find_booking(city: str, *, nights: int = 1) -> hf.Verdict[str]:
    return hf.landed(city)


@book.undo
async def cancel(booking: str | None, city: str, *, nights: int = 1) -> None: ...


@hf.effect(on_doubt="retry", settle=timedelta(seconds=1), name="charge card")
def charge(account: int, *amounts: float) -> int:
    return account


@charge.verify
def find_charge(account: int, *amounts: float) -> hf.Verdict[int]:
    if not amounts:
        return hf.not_landed()
    return hf.landed(account)


@charge.undo
def refund(charged: int | None, account: int, *amounts: float) -> None: ...


@hf.effect(on_doubt="fail")
async def touch() -> None: ...


@touch.verify
async def is_touched(*_: object, **__: object) -> hf.Verdict[None]:
    return hf.landed(None)


@touch.undo
async def untouch(_: None) -> None: ...


async def effects() -> None:
    assert_type(await send("me"), str)
    assert_type(await send("me", body="hello"), str)
    assert_type(await book("Oslo", nights=2), str | None)
    assert_type(await charge(1, 2.5, 3), int)
    assert_type(await touch(), None)
    # what is registered stays what it was
    assert_type(await find_sent("me"), hf.Verdict[str])
    assert_type(find_charge(1, 2.0), hf.Verdict[int])
    await cancel(None, "Oslo", nights=2)
    refund(None, 1, 2.0)
    assert_type(hf.landed(3), hf.Verdict[int])
    assert_type(hf.not_landed(), hf.Verdict[Never])
    assert_type(hf.landed("x").result, str | None)
    wide: hf.Verdict[str | None] = hf.landed("x")
    assert_type(wide.has_landed, bool)


# methods


class Library:
    def __init__(self, root: str) -> None:
        self.root = root

    @hf.step
    async def read(self, path: str, *, encoding: str = "utf-8") -> bytes:
        return f"{self.root}/{path}".encode(encoding)

    @hf.step(retries=1)
    def count(self, *paths: str) -> int:
        return len(paths)

    @hf.effect(settle=0)
    async def write(self, path: str, data: bytes) -> int:
        return len(data)

    @write.verify
    async def is_written(self, path: str, data: bytes) -> hf.Verdict[int]:
        return hf.landed(len(data)) if self.root else hf.not_landed()

    @staticmethod
    @hf.step
    async def join(first: str, second: str) -> str:
        return f"{first}/{second}"

    @classmethod
    @hf.step
    async def title(cls, suffix: str) -> str:
        return cls.__name__ + suffix

    async def both(self) -> tuple[bytes, int]:
        return await asyncio.gather(self.read("a"), self.count("a", "b"))


async def methods() -> None:
    library = Library("/srv")
    assert_type(await library.read("a", encoding="ascii"), bytes)
    assert_type(await library.count("a", "b"), int)
    assert_type(await library.write("a", b"b"), int)
    assert_type(await library.is_written("a", b"b"), hf.Verdict[int])
    assert_type(await library.join("a", "b"), str)
    assert_type(await Library.join("a", "b"), str)
    assert_type(await library.title("!"), str)
    assert_type(await Library.title("!"), str)
    assert_type(await library.both(), tuple[bytes, int])
    assert_type(await Library.read(library, "a"), bytes)
    assert_type(await Library.read.with_options(key="a")(library, "a"), bytes)


# functions as values


@dataclass
class Tools:
    search: hf.Step[[str], list[str]]
    say: Callable[[str], Awaitable[object]]


async def apply(tool: Callable[[str], Coroutine[Any, Any, T]], argument: str) -> T:
    return await tool(argument)


@hf.step
async def upper(text: str) -> list[str]:
    return [text.upper()]


def traced(tool: hf.Step[[str], object]) -> str:
    return tool.__name__


async def values() -> None:
    tools = Tools(upper, send)
    assert_type(await tools.search("a"), list[str])
    assert_type(await tools.search.with_options(key="x")("a"), list[str])
    assert_type(await tools.say("a"), object)
    assert_type(await apply(upper, "a"), list[str])
    assert_type(await apply(send, "a"), str)
    assert_type(traced(upper), str)


# agents


@hf.agent
async def shout(text: str, times: int = 1) -> str:
    """Say it aloud."""
    return text.upper() * times


@hf.agent(name="long research", version="2", timeout=timedelta(hours=2))
async def research(topic: str, *, depth: int) -> list[Page]:
    return [await fetch(url) for url in await search(topic, limit=depth)]


@hf.agent
async def newsletter(topic: str) -> str:
    child = await shout(topic, times=2)
    assert_type(child, str)
    pages = await research(topic, depth=2)
    assert_type(pages, list[Page])
    side = await hf.start(shout("side"), thread_id="t", tags={"why": "test"})
    assert_type(side, hf.Run[str])
    assert_type(await side.result(), str)

    texts, number = await asyncio.gather(search(topic), add(1, 2))
    assert_type(texts, list[str])
    assert_type(number, int)
    assert_type(await asyncio.gather(*(search(q) for q in (topic, "news"))), list[list[str]])
    assert_type(await asyncio.gather(shout("a"), send("b"), add(1)), tuple[str, str, int])
    assert_type(await asyncio.gather(*[shout(q) for q in texts]), list[str])
    async with asyncio.TaskGroup() as group:
        first = group.create_task(add(1))
        second = group.create_task(shout("task"))
    assert_type(first, asyncio.Task[int])
    assert_type(second.result(), str)
    task = asyncio.create_task(fetch("u"))
    assert_type(await task, Page)
    assert_type(await asyncio.wait_for(search(topic), 5), list[str])

    assert_type(await hf.race(search(topic), add(1)), list[str] | int)
    assert_type(await hf.race(add(1), add(2)), int)
    assert_type(await hf.race(shout("a"), add(1), fetch("u")), str | int | Page)
    assert_type(await hf.race(*(add(n) for n in (1, 2))), int)

    async with hf.timeout(30) as limit:
        assert_type(limit, hf.timeout)
        inside = await search(topic)
    assert_type(inside, list[str])

    assert_type(hf.now(), datetime)
    assert_type(hf.uuid4(), uuid.UUID)
    assert_type(hf.rng(), random.Random)
    assert_type(hf.patched("ask-first"), bool)
    assert_type(hf.this_run().token, str)
    hf.progress(1, 2, "half")
    hf.usage(model="m", input_tokens=1, output_tokens=2, cost=0.1)
    todo = await hf.plan(["one"])
    assert_type(todo, hf.Plan)
    assert_type(todo.next(), hf.PlanItem | None)
    assert_type(await todo.add("two", after=1), hf.PlanItem)
    await todo.reorder([2, *todo.remaining()])
    await hf.guard("file", hf.guards.file("spec.md"), on_change="block")
    await hf.guard("own", fingerprint)
    hf.logger(__name__).info("%d left", len(todo.remaining()))
    return await book_both(topic) or child


async def fingerprint() -> str:
    return "same"


@hf.agent(budget=hf.Budget(tokens=1000, cost=0.5, steps=10))
async def frugal(n: int) -> int:
    return n


async def book_both(city: str) -> str | None:
    # no `return` after the block: it never swallows an exception
    async with hf.saga() as saga:
        await book(city)
        assert_type(saga, hf.Saga)
        assert_type(saga.keys, list[str])
        return await book(city, nights=2)


async def limited(query: str) -> list[str]:
    await hf.sleep(timedelta(days=1), minutes=2)
    async with hf.timeout(timedelta(seconds=30)), hf.timeout(days=1):
        return await search(query)


approved = hf.Signal("approved", bool)
rated = hf.Signal("rated", float)
stopped = hf.Signal("stopped", None)


async def signals(run: hf.Run[str]) -> None:
    assert_type(approved, hf.Signal[bool])
    assert_type(await run.send(approved, True), bool)
    await run.send(rated, 1)
    await run.send(stopped)
    await run.send("anything", {"at": "all"}, dedup="a")
    await run.send("nothing")


async def received() -> None:
    assert_type(await hf.receive(approved), bool)
    assert_type(await hf.receive(("go", str)), str)
    print(f"{await hf.receive(rated)}", await hf.receive(rated))


# around a run


def script(url: str) -> str:
    assert_type(shout("a"), hf.Call[str])
    assert_type(research("a", depth=2), hf.Call[list[Page]])
    assert_type(shout.name, str)
    assert_type(shout.__name__, str)
    answer = hf.run(newsletter("tides"), id="issue-7", url=url)
    assert_type(answer, str)
    assert_type(asyncio.run(hf.arun(newsletter("tides"), id="issue-7", url=url)), str)
    return answer


def apps(folder: Path) -> list[hf.Holdfast]:
    return [hf.connect(folder / "runs.db"), hf.connect(agents=shout), hf.connect(agents=(shout, research))]


async def service(url: str) -> None:
    async with hf.connect(url, agents=[shout, newsletter, research], concurrency=5) as app:
        assert_type(app, hf.Holdfast)
        run = await app.start(shout("a", times=2), id="a", tags={"kind": "test"})
        assert_type(run, hf.Run[str])
        assert_type(await run.result(), str)
        assert_type(await run.result(timeout=5), str)
        assert_type(await run.result(timeout=timedelta(minutes=5)), str)
        assert_type(await run.status(), hf.Status)
        assert_type(await run.info(), hf.RunInfo)
        assert_type(await run.receipts(), list[hf.Receipt])
        assert_type(run.token, str)
        assert_type(app.get(run.token), hf.Run[Any])
        assert_type(app.get(run.token, shout), hf.Run[str])
        assert_type(await app.get(run.token, shout).result(), str)
        assert_type(await app.resume(run.token), hf.Run[Any])
        assert_type(await app.resume(run_id=run.id, thread_id=run.thread_id), hf.Run[Any])
        assert_type(await app.find("@last"), hf.Run[Any])
        assert_type(await app.runs(status="done", limit=5), list[hf.RunInfo])
        assert_type(await app.runs(status=hf.Status.done, since=timedelta(days=1), agent="shout"), list[hf.RunInfo])
        assert_type(await app.pause_all(queue="mail", since=3600), list[str])
        anything: list[hf.Run[object]] = [run, await app.start(research("b", depth=1))]
        calls: Sequence[hf.Call[object]] = [shout("c"), research("c", depth=1)]
        anything += [await app.start(call) for call in calls]
        for each in anything:
            assert_type(await each.result(), object)
        doubts = await app.in_doubt()
        assert_type(doubts, list[hf.InDoubt])
        for doubt in doubts:
            await settle(doubt, seen="m-1")


async def settle(doubt: hf.InDoubt, seen: str | None) -> None:
    if seen is None:
        await doubt.resolve(hf.not_landed(), by="ada", note="not in the outbox")
    elif seen:
        await doubt.resolve(hf.landed(seen))
    else:
        await doubt.resolve(RuntimeError("lost"))
    await doubt.resolve(hf.landed(seen) if seen else hf.not_landed())
