"""A helper of the program: the time limit that its next version does not have."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import holdfast as hf


async def limited(call: Awaitable[Any]) -> Any:
    async with hf.timeout(0.3):
        return await call
