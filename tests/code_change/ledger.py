"""What the variants of an agent did, and how long they are to wait for themselves."""

from __future__ import annotations

ran: list[str] = []
pauses: dict[int, float] = {}  #: seconds, by item
