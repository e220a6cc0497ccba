"""A person settles what is in doubt, in a process of their own: `resolver.py URL RUN`. Ends with 3 on AlreadySettled."""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf


async def main(url: str, run_id: str) -> int:
    async with hf.connect(url) as app:
        for doubt in await app.get(run_id).in_doubt():
            try:
                await doubt.resolve(hf.landed("asked-1"), by="resolver")
            except hf.AlreadySettled:
                return 3
        return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
