"""Bodies of requests: small, complete in time, and JSON that everything behind can store."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Final

from starlette.types import Message, Receive

from holdfast.server.problems import Problem

LARGEST: Final = 1_000_000
LARGEST_FILE: Final = 64 << 20
#: What a file may come as: a page of somebody else's cannot send any of it without being asked.
_FILES: Final = frozenset({"application/octet-stream", "application/json"})
_TIMEOUT_S: Final = 20.0
_DEEPEST: Final = 100
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def check_type(method: str, headers: Mapping[str, str]) -> None:
    """A page of somebody else's can send forms and plain text without being asked; JSON it cannot."""
    given = headers.get("content-type")
    if given is None and method == "DELETE":
        return
    if given is None or given.partition(";")[0].strip().lower() != "application/json":
        raise Problem("not_json", "Send a body in JSON, {} at least, with Content-Type: application/json.")


async def read_body(receive: Receive, headers: Mapping[str, str]) -> bytes:
    """All of it; Problem if it is too large, or does not come."""
    given = headers.get("content-length", "")
    if given.isdecimal() and int(given[:20]) > LARGEST:
        raise Problem("too_large", f"A body may have {LARGEST:,} bytes.")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Problem("too_slow")
                part = message.get("body", b"")
                size += len(part)
                if size > LARGEST:
                    raise Problem("too_large", f"A body may have {LARGEST:,} bytes.")
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Problem("too_slow") from None


def bounded_file(receive: Receive, headers: Mapping[str, str]) -> Receive:
    """What gives a file to whoever stores it, a part at a time; Problem if it is too large, or does not come."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in _FILES:
        raise Problem("not_bytes")
    given = headers.get("content-length", "")
    too_large = Problem("too_large", f"A file may have {LARGEST_FILE:,} bytes.")
    if given.isdecimal() and int(given[:20]) > LARGEST_FILE:
        raise too_large
    size = 0

    async def part() -> Message:
        nonlocal size
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                message = await receive()
        except TimeoutError:
            raise Problem("too_slow") from None
        if message["type"] == "http.disconnect":
            raise Problem("too_slow")
        size += len(message.get("body", b""))
        if size > LARGEST_FILE:
            raise too_large
        return message

    return part


def check_json(body: bytes) -> None:
    """Refuse what is no JSON (`NaN` is none), is nested too deep, or has half characters, which no store can hold."""
    if not body:
        return
    try:
        text = body.decode("utf-8")
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Problem("invalid_json", str(error)[:200]) from None
    if _depth(found) > _DEEPEST:
        raise Problem("invalid_json", f"It is nested deeper than {_DEEPEST} levels.")
    if "\\u" in text and _SURROGATE.search(json.dumps(found, ensure_ascii=False)):
        raise Problem("invalid_json", "It has half of a surrogate pair.")


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


def replayed(body: bytes, receive: Receive) -> Receive:
    """What gives the body that was read to whoever asks next."""
    is_given = False

    async def again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
