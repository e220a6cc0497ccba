# mypy: ignore-errors
"""Mistakes that both type checkers must find, each on the line that says `# reject`, and on no other.

The first line keeps the file out of the project's own check; `tests/test_types.py` checks a copy without it.
Where only one of the two finds it, the comment names it and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_type

import holdfast as hf

T = TypeVar("T")


@hf.step
async def search(query: str, limit: int = 10) -> list[str]:
    return [query] * limit


@hf.step(retries=1)
def add(first: int, *others: int) -> int:
    return first + sum(others)


@hf.effect
async def send(to: str, body: str = "") -> str:
    return to + body


@hf.agent
async def shout(text: str, *, times: int = 1) -> str:
    return text.upper() * times


approved = hf.Signal("approved", bool)


# calls


async def arguments() -> None:
    await search(1)  # reject
    await search()  # reject
    await search("a", 1, 2)  # reject
    await search("a", limits=1)  # reject
    await search.with_options(key="a")(1)  # reject
    await search.with_options(key=1)("a")  # reject
    await search.with_options(name="x")("a")  # reject
    await add("a")  # reject
    await add(1, "a")  # reject
    await send(1)  # reject
    await send.with_options(timeout="5s")("a")  # reject
    await shout(1)  # reject
    await shout("a", 2)  # reject
    await shout()  # reject


async def results() -> None:
    number: int = await search("a")  # reject
    text: str = await add(1)  # reject
    pages: list[int] = await search("a")  # reject
    child: int = await shout("a")  # reject
    print(number, text, pages, child)


async def without_await() -> None:
    search("a")  # reject
    send("a")  # reject
    text: str = send("a")  # reject
    print(add(1) + 1)  # reject
    print(len(search("a")))  # reject
    for _ in search("a"):  # reject
        pass
    print(shout("a").upper())  # reject
    print(text)


async def together() -> None:
    one: tuple[int, int] = await asyncio.gather(search("a"), add(1))  # reject
    two: list[str] = await hf.race(search("a"), add(1))  # reject
    await hf.race()  # reject
    await hf.race(search)  # reject
    with hf.timeout(5):  # reject
        pass
    with hf.saga():  # reject
        pass
    async with hf.timeout("5s"):  # reject
        pass
    print(one, two)


# options


@hf.step(retries="3")  # reject
async def bad_retries() -> None: ...


@hf.step(on_doubt="ask")  # reject
async def a_step_is_never_in_doubt() -> None: ...


@hf.step(timeout="5s")  # reject
async def bad_timeout() -> None: ...


@hf.step(retry_on=KeyboardInterrupt)  # reject
async def retries_an_interrupt() -> None: ...


@hf.step("name")  # reject
async def positional_name() -> None: ...


@hf.effect(on_doubt="maybe")  # reject
async def bad_doubt() -> None: ...


@hf.effect(raises="Full")  # reject
async def bad_raises() -> None: ...


@hf.effect(settle=None)  # reject
async def bad_settle() -> None: ...


@hf.agent  # reject
def not_async(text: str) -> str:
    return text


@hf.agent(version="2")  # reject
def not_async_either(text: str) -> str:
    return text


@hf.agent(retries=3)  # reject
async def no_such_option() -> None: ...


hf.Retry("3")  # reject
hf.Retry(first="1 s")  # reject
misspelt = hf.stpe  # reject
hf.Retry(3, wait=1)  # reject


# verify


@send.verify  # reject
async def other_names(recipient: str, body: str = "") -> hf.Verdict[str]:
    return hf.landed(recipient)


@send.verify  # reject
async def other_types(to: int, body: str = "") -> hf.Verdict[str]:
    return hf.landed(str(to))


@send.verify  # reject
async def too_few(to: str) -> hf.Verdict[str]:
    return hf.landed(to)


@send.verify  # reject
async def without_the_default(to: str, body: str) -> hf.Verdict[str]:
    return hf.landed(to)


@send.verify  # reject
async def no_verdict(to: str, body: str = "") -> bool:
    return True


@send.verify  # reject
async def other_result(to: str, body: str = "") -> hf.Verdict[int]:
    return hf.landed(1)


@send.verify  # reject
async def perhaps_none(to: str, body: str = "") -> hf.Verdict[str | None]:
    return hf.landed(None)


@send.verify  # reject
def no_verdict_either(to: str, body: str = "") -> str:
    return to


@send.verify
async def landed_with_the_wrong_type(to: str, body: str = "") -> hf.Verdict[str]:
    return hf.landed(1)  # reject


@send.verify
async def no_such_verdict(to: str, body: str = "") -> hf.Verdict[str]:
    return hf.not_landed(to)  # reject


@search.verify  # reject
async def a_step_has_no_verify(query: str, limit: int = 10) -> hf.Verdict[list[str]]:
    return hf.not_landed()


# undo


@send.undo  # reject
async def without_result(to: str, body: str = "") -> None: ...


@send.undo  # reject
async def result_of_another_type(sent: int | None, to: str, body: str = "") -> None: ...


@send.undo  # reject
async def result_never_none(sent: str, to: str, body: str = "") -> None: ...


@send.undo  # reject
async def other_parameters(sent: str | None, address: str) -> None: ...


# methods


class Library:
    @hf.step
    async def read(self, path: str) -> bytes:
        return path.encode()

    @hf.effect
    async def write(self, path: str) -> int:
        return len(path)

    @write.verify  # reject
    async def is_written(self, path: bytes) -> hf.Verdict[int]:
        return hf.landed(len(path))


async def methods(library: Library) -> None:
    await library.read(1)  # reject
    await library.read()  # reject
    await Library.read("a")  # reject
    await library.write(b"a")  # reject
    # at run time the variant is a function again, and `self` would be missing
    await library.read.with_options(key="a")("a")  # reject


@dataclass
class Tools:
    search: hf.Step[[str], str]


tools = Tools(search)  # reject


# running


async def service(app: hf.Holdfast, doubt: hf.InDoubt) -> None:
    await app.start(search("a"))  # reject
    await app.start(send("a"))  # reject
    await app.start(shout)  # reject
    await app.start(shout("a"), "my-id")  # reject
    await app.start(shout("a"), tags={"n": 1})  # reject
    run: hf.Run[int] = await app.start(shout("a"))  # reject
    length: int = await (await app.start(shout("a"))).result()  # reject
    await app.resume()  # reject
    await app.runs(status="finished")  # reject
    await app.runs(colour="red")  # reject
    await app.runs(since="yesterday")  # reject
    await app.pause_all(stats="paused")  # reject
    await app.cancel_all(limit=3)  # reject
    await run.send(approved, "yes")  # reject
    await run.send(approved)  # reject
    run = app.get("r", shout)  # reject
    app.get("r", search)  # reject
    await app.resume(run.token, run_id=run.id)  # reject
    await doubt.resolve("landed")  # reject
    await doubt.resolve(KeyboardInterrupt())  # reject
    app.start(shout("a"))  # reject
    print(length)


hf.run(search("a"))  # reject
hf.run(shout)  # reject
hf.run(shout("a"), "my-id")  # reject
hf.run(shout("a"), id=7)  # reject
number: int = hf.run(shout("a"))  # reject
hf.connect(agents=[search])  # reject
hf.connect(agents=[shout("a")])  # reject


# a limit, not a mistake: mypy takes the bare variable for a coroutine; write `async def`, or return more than `T`


@hf.step
def pick(options: Sequence[T]) -> T:
    return options[0]


async def generic() -> None:
    assert_type(await pick([1, 2]), int)  # reject: mypy
