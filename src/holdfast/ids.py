"""Ids and randomness; the only place they come from."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def _base32(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        digits.append(_ALPHABET[number & 31])
        number >>= 5
    return "".join(reversed(digits))


def new_run_id() -> str:
    """A run id that sorts by creation time and does not collide: `r_` + 9 time + 9 random digits."""
    return "r_" + _base32(time.time_ns() // 1_000_000, 9) + _base32(secrets.randbits(45), 9)


def new_thread_id() -> str:
    return "t_" + _base32(secrets.randbits(60), 12)


def new_worker_id() -> str:
    return "w_" + _base32(secrets.randbits(80), 16)


def new_nonce() -> str:
    return secrets.token_hex(16)
