"""Ids and randomness; the only place they come from."""

from __future__ import annotations

import base64
import secrets
import time
import uuid

_START_MS = 1_577_836_800_000  # 2020: 40 bits of milliseconds last until 2054


def _text(data: bytes) -> str:
    return base64.b32hexencode(data).decode().lower()


def new_run_ids() -> tuple[str, str, str]:
    """A run id that sorts by creation time (`r_`, 8 digits of time, 8 of randomness), a thread id, and a nonce.

    From one call for randomness: asking the system takes as long as all the rest.
    """
    random = secrets.token_bytes(31)
    now = (time.time_ns() // 1_000_000 - _START_MS).to_bytes(5, "big")
    return "r_" + _text(now + random[:5]), "t_" + _text(random[5:15]), random[15:].hex()


def new_worker_id() -> str:
    return "w_" + _text(secrets.token_bytes(10))


def new_uuid() -> uuid.UUID:
    return uuid.uuid4()
