"""A person settles what is in doubt, in a process of their own: `resolver.py URL RUN`."""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf


async def main(url: str, run_id: str) -> None:
    async with hf.connect(url) as app:
        for doubt in await app.get(run_id).in_doubt():
            await doubt.resolve(hf.landed("asked-1"), by="resolver")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
