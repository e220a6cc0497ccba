"""Agents whose arguments are not stable, and effects that are cut off.

    WHO=ann DIE=after python wavering.py AGENT URL

The process dies `before` or `after` it paid, or `later`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import holdfast as hf

DONE: list[str] = []


def folder() -> Path:
    return Path(os.environ["WAVERING"])


def write(what: str, who: str) -> None:
    with (folder() / "ledger").open("a") as file:
        file.write(f"{what} {who}\n")


def lines(what: str) -> list[str]:
    """Who it happened to."""
    ledger = folder() / "ledger"
    told = ledger.read_text().splitlines() if ledger.exists() else []
    return [line.removeprefix(f"{what} ") for line in told if line.startswith(f"{what} ")]


def die(when: str) -> None:
    if os.environ.get("DIE") == when:
        os._exit(9)


def happened(who: str) -> hf.Verdict[str]:
    write("asked about", who)
    return hf.landed(who) if who in lines("paid") else hf.not_landed()


@hf.effect(settle=0)
async def pay(who: str) -> str:
    die("before")
    write("paid", who)
    die("after")
    return who


pay.verify(happened)


@hf.effect(settle=0)
async def pay_untraced(who: str) -> str:
    write("paid", who)
    die("after")
    return who


class Client:
    async def pay(self, who: str) -> None:
        write("paid", who)


@hf.effect(settle=0)
async def pay_by_client(client: Client, who: str) -> str:
    await client.pay(who)
    die("after")
    return who


@hf.effect(settle=0, on_doubt="fail")
async def pay_once(who: str) -> str:
    write("paid", who)
    die("after")
    return who


@pay_once.verify
def find(who: str) -> hf.Verdict[str]:
    if os.environ.get("VERIFY") != "works":
        raise ConnectionError("the bank does not answer")
    return happened(who)


@hf.effect(settle=0, on_doubt="fail")
async def pay_once_and_never_know(who: str) -> str:
    write("paid", who)
    die("after")
    return who


@hf.effect(settle=0)
async def book(who: str) -> str:
    write("booked", who)
    return who


@book.undo
async def unbook(booked: str | None, who: str) -> None:
    write("undone", who)


@hf.effect(settle=0, on_doubt="retry")
async def note(what: str) -> None:
    die("later")


@hf.effect(settle=0)
async def charge(who: str) -> str:
    attempt = hf.this_step().attempt
    DONE.append(f"begun {attempt}")
    if attempt == 1:
        raise ConnectionError("who knows")
    while not (folder() / "go").exists():  # noqa: ASYNC110 - a file is what other processes can make
        await asyncio.sleep(0.01)
    return f"charged {who}"


@hf.agent
async def pays() -> str:
    return await pay(os.environ["WHO"])


@hf.agent
async def pays_untraced() -> str:
    return await pay_untraced(os.environ["WHO"])


@hf.agent
async def has_it_paid() -> str:
    side = await hf.start(pays())
    return await side.result()


@hf.agent
async def pays_by_client() -> str:
    return await pay_by_client(Client(), os.environ["WHO"])


@hf.agent
async def fails_in_doubt() -> str:
    return await pay_once("ann")


@hf.agent
async def fails_in_doubt_for_good() -> str:
    return await pay_once_and_never_know("ann")


@hf.agent
async def books() -> str:
    async with hf.saga():
        await book(os.environ["WHO"])
        await note("x")
        raise ValueError("no seats")


if __name__ == "__main__":
    agents = (pays, pays_untraced, has_it_paid, pays_by_client, fails_in_doubt, fails_in_doubt_for_good, books)
    chosen = {each.name: each for each in agents}
    print(hf.run(chosen[sys.argv[1]](), id="r", url=sys.argv[2]))
