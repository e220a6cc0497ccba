"""Processes that tell a session store of Claude what was said, or forget it, until they are killed."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast as hf
from holdfast.ext.claude import SessionStore

KEY: Any = {"project_key": "p", "session_id": "s"}
SUB: Any = {**KEY, "subpath": "subagents/agent-1"}


def batch(number: int, size: int = 3) -> list[Any]:
    """The last one has no uuid, as titles have none."""
    said = [{"type": "user", "uuid": f"{number}-{at}", "text": f"said {number} {at}"} for at in range(size)]
    return [*said, {"type": "title", "customTitle": f"title {number}"}]


def tell(url: str, batches: int) -> None:
    async def main() -> None:
        async with hf.connect(url) as app:
            for number in range(batches):
                await SessionStore(app).append(KEY, batch(number))

    asyncio.run(main())


def forget(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url) as app:
            await SessionStore(app).delete(KEY)

    asyncio.run(main())
