"""Ids and randomness; the only place they come from."""

from __future__ import annotations

import secrets
import time
import uuid

_START_MS = 1_577_836_800_000  # 2020: 40 bits of milliseconds last until 2054


_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [
    first + second for first in _DIGITS for second in _DIGITS
]  # for ten bits at once: half of the time of `base64`


def _text(data: bytes) -> str:
    """Ten bytes as sixteen digits, which sort as the bytes do."""
    number = int.from_bytes(data, "big")
    return "".join([_PAIRS[number >> shift & 1023] for shift in (70, 60, 50, 40, 30, 20, 10, 0)])


def new_run_ids() -> tuple[str, str, str]:
    """A run id that sorts by creation time (`r_`, 8 digits of time, 8 of randomness), a thread id, and a nonce.

    From one call for randomness: asking the system takes as long as all the rest.
    """
    random = secrets.token_bytes(31)
    now = (time.time_ns() // 1_000_000 - _START_MS).to_bytes(5, "big")
    return "r_" + _text(now + random[:5]), "t_" + _text(random[5:15]), random[15:].hex()


def random_bytes(count: int) -> bytes:
    return secrets.token_bytes(count)


def new_worker_id() -> str:
    return "w_" + _text(secrets.token_bytes(10))


def new_uuid() -> uuid.UUID:
    return uuid.uuid4()


def new_token() -> str:
    """256 bits that nobody can guess, as text for a file or a header."""
    return secrets.token_urlsafe(32)
