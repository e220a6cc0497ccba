"""Effects that are cut off, under every rule and every kind of verification; the world is a file."""

from __future__ import annotations

import asyncio
import os
import socket
import urllib.request
from typing import Any, Literal

import holdfast as hf
from tests.crash.agents import act, post, world

RULES: tuple[Literal["ask", "retry", "undo", "fail"], ...] = ("ask", "retry", "undo", "fail")
VERDICTS = ("none", "landed", "not_landed", "broken", "nonsense")


def make_effect(rule: Literal["ask", "retry", "undo", "fail"], verdict: str) -> hf.Effect[[int], str]:
    @hf.effect(name=f"{rule}.{verdict}", on_doubt=rule, settle=0)
    async def effect(n: int) -> str:
        act("acted", n)
        return "acted"

    @effect.undo
    async def undo(result: str | None, n: int) -> None:
        act("took back", n)

    if verdict != "none":

        @effect.verify
        async def verify(n: int) -> hf.Verdict[str]:
            match verdict:
                case "landed":
                    return hf.landed("verified")
                case "not_landed":
                    return hf.not_landed()
                case "nonsense":
                    return "yes"  # type: ignore[return-value]
                case _:
                    raise ConnectionError("nobody there")

    return effect


EFFECTS = {(rule, verdict): make_effect(rule, verdict) for rule in RULES for verdict in VERDICTS}


@hf.agent
async def matrix(rule: str, verdict: str) -> str:
    try:
        return await EFFECTS[rule, verdict](1)  # type: ignore[index]
    except hf.EffectInDoubt:
        return "in doubt"
    except hf.EffectUndone:
        return "undone"


# the target may still act for a while


@hf.effect(settle=0.7)
async def settling(n: int) -> str:
    act("acted", n)
    return "acted"


@settling.verify
async def find_settling(n: int) -> hf.Verdict[str]:
    found = world.has("acted", hf.this_step().idempotency_key)
    return hf.landed("verified") if found else hf.not_landed()


@hf.agent
async def patient(n: int) -> str:
    return await settling(n)


@hf.effect(settle=3600)
async def slowly(n: int) -> str:
    act("acted", n)
    return "acted"


slowly.verify(find_settling)


@hf.agent
async def very_patient(n: int) -> str:
    return await slowly(n)


# results that cannot be stored


@hf.effect(on_doubt="ask")
async def unstorable(n: int) -> Any:
    act("acted", n)
    return lambda: n


@hf.agent
async def forgetful(n: int) -> list[str]:
    try:
        await unstorable(n)
        kept = "?"
    except hf.ResultNotStored:
        kept = "happened"
    return [kept, await post(n)]


# a server that acts and never answers


def server() -> str:
    return os.environ["SERVER"]


async def get(path: str) -> str:
    return await asyncio.to_thread(lambda: urllib.request.urlopen(server() + path, timeout=60).read().decode())


async def place_order() -> str:
    host, _, port = server().removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(b"POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")  # before any timeout can be
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


@hf.effect(timeout=0.3, retries=hf.Retry(3, first=0.01))
async def order_async(n: int) -> str:
    return await place_order()


@hf.effect(retries=hf.Retry(3, first=0.01))
def order_blocking(n: int) -> str:
    request = urllib.request.Request(server() + "/orders", data=b"", method="POST")
    with urllib.request.urlopen(request, timeout=0.3) as response:
        return str(response.read().decode())


@hf.effect(timeout=0.3, retries=hf.Retry(3, first=0.01), settle=0)
async def order_verified(n: int) -> str:
    return await place_order()


@order_verified.verify
async def find_order(n: int) -> hf.Verdict[str]:
    return hf.landed("verified") if await get("/count") != "0" else hf.not_landed()


@hf.agent
async def orders(kind: str) -> str:
    effect = {"async": order_async, "blocking": order_blocking, "verified": order_verified}[kind]
    return await effect(1)


# a verdict from outside while the run is parked


@hf.effect(on_doubt="ask", raises=LookupError)
async def doubtful(n: int) -> str:
    act("acted", n)
    return "acted"


@hf.agent
async def awaiting(n: int) -> str:
    try:
        return await doubtful(n)
    except LookupError as error:
        return f"told: {error}"


# children and branches in doubt


@hf.agent
async def guardian(n: int) -> str:
    return f"child says {await awaiting(n)}"


async def quietly(n: int) -> str:
    return await post(n)


@hf.agent
async def half_in_doubt(n: int) -> list[str]:
    """One branch is in doubt, the other goes on."""
    return list(await asyncio.gather(doubtful(n), quietly(n + 1)))
