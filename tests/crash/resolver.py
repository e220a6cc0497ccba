"""A person settles what is in doubt, in a process of their own."""

from __future__ import annotations

import asyncio

import holdfast as hf


def look_and_resolve(url: str, run_id: str) -> None:
    async def resolve() -> None:
        async with hf.connect(url) as app:
            for doubt in await app.get(run_id).in_doubt():
                await doubt.resolve(hf.landed("asked-1"), by="resolver")

    asyncio.run(resolve())
