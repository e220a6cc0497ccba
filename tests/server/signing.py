"""Deliveries that are signed as Standard Webhooks says."""

from __future__ import annotations

import base64
import hmac
import time

SECRET = b"0123456789abcdef0123456789abcdef"
SHARED = "whsec_" + base64.b64encode(SECRET).decode()


def signed(body: bytes, mark: str, *, at: int | None = None, secret: bytes = SECRET) -> dict[str, str]:
    when = str(int(time.time()) if at is None else at)
    mac = hmac.digest(secret, f"{mark}.{when}.".encode() + body, "sha256")
    signature = f"v1,AAAA v1,{base64.b64encode(mac).decode()}"
    return {"webhook-id": mark, "webhook-timestamp": when, "webhook-signature": signature}
