"""Ids and randomness; the only place they come from."""

from __future__ import annotations

import base64
import secrets
import time
import uuid

_START_MS = 1_577_836_800_000  # 2020: 40 bits of milliseconds last until 2054


def _text(data: bytes) -> str:
    return base64.b32hexencode(data).decode().lower()


def new_run_id() -> str:
    """A run id that sorts by creation time: `r_`, 8 digits of time, 8 of randomness."""
    return "r_" + _text((time.time_ns() // 1_000_000 - _START_MS).to_bytes(5, "big") + secrets.token_bytes(5))


def new_thread_id() -> str:
    return "t_" + _text(secrets.token_bytes(10))


def new_worker_id() -> str:
    return "w_" + _text(secrets.token_bytes(10))


def new_uuid() -> uuid.UUID:
    return uuid.uuid4()


def new_nonce() -> str:
    return secrets.token_hex(16)
