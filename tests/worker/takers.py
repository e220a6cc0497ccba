"""Agents that take what comes from outside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import holdfast as hf


@dataclass(frozen=True)
class Order:
    id: int
    city: str


@hf.agent
async def ships(order: Order) -> str:
    return order.city


@hf.agent
async def sums(numbers: set[int]) -> int:
    return sum(numbers)


@hf.agent
async def dates(day: date) -> str:
    return day.isoformat()


@hf.agent
async def shows(value: Any) -> str:
    return repr(value)
