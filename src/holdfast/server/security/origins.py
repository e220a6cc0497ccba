"""From which pages something may be changed: from our own, or from no page at all, with a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
#: Another page cannot send it without asking first, and nobody answers that.
MARK: Final = "x-holdfast"


def foreign(headers: Mapping[str, str], *, has_token: bool, is_ambient: bool) -> str | None:
    """Why a request that changes something is not taken; None if it may be ours.

    `is_ambient`: the browser sends the credential by itself. `has_token`: it is in the request itself.
    """
    site = headers.get("sec-fetch-site")
    if site is None and not has_token:
        return "A browser says with Sec-Fetch-Site where a request comes from; this one does not say it."
    if site is not None and site != "same-origin":
        return f"The request comes from another place (Sec-Fetch-Site: {site[:40]})."
    origin = headers.get("origin")
    if origin is not None and _authority(origin) != headers.get("host", "").lower():
        return "The request comes from another origin."
    if is_ambient and headers.get(MARK) != "1":
        return "With a cookie, what changes something needs the header X-Holdfast: 1."
    return None


def _authority(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None
