"""An adapter for the imitated framework, and agents that use it. The model decides from what it has heard."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import holdfast as hf
from holdfast import ext
from holdfast.testing import Ledger
from tests.ext.imitated import Bot

ledger = Ledger()
model = ext.Operation("model")
plain = ext.Codec(dump=lambda text: {"text": text}, load=lambda got: got["text"], outside=str)


def durable(bot: Bot, **options: Any) -> Bot:
    """The adapter: ten lines."""
    path = ext.occurrence(bot.name)
    tools = {name: ext.Operation(name, "effect", codec=plain, **options) for name in bot.tools}

    async def around_model(turn: int, request: Any) -> Any:
        with ext.place(path, sealed=True):
            return await model(request, shown={"turn": turn})

    async def around_tool(turn: int, call_id: str, name: str, arguments: dict[str, Any]) -> str:
        with ext.place(f"{path}/{turn}/{ext.segment(call_id)}", sealed=True):
            return await tools[name](lambda: bot.tools[name](**arguments), shown=arguments)

    bot.around_model, bot.around_tool = around_model, around_tool
    return bot


def call_id() -> str:
    return f"call/{random.random()}"


async def decides(turn: int, heard: list[str]) -> Any:
    with ledger.step():
        await asyncio.sleep(0)
        if turn <= 2:
            return [(call_id(), "mail", {"to": f"{turn}{who}"}) for who in "ab"]
        return ", ".join(sorted(heard))


async def mail(to: str) -> str:
    with ledger.effect():
        await asyncio.sleep(0)
        path = os.environ.get("HOLDFAST_TEST_FOLDER", ".")
        with open(f"{path}/sent.txt", "a") as file:
            file.write(f"{to}\n")
    return f"sent {to}"


@hf.agent
async def post() -> str:
    return await durable(Bot("bot", decides, {"mail": mail}), settle=0).run()


@hf.agent
async def post_after_asking() -> str:
    bot = durable(Bot("bot", decides, {"mail": mail}), settle=0)
    first = await bot.run()
    if not await hf.ask("Once more?"):
        return first
    return await durable(bot, settle=0).run()
