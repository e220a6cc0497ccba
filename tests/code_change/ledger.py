"""What the variants of an agent did, and what they work on."""

from __future__ import annotations

ran: list[str] = []
pauses: dict[int, float] = {}  #: seconds, by item
orders: list[int] = []  #: what their code does not say
