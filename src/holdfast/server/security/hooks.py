"""Webhooks in, signed as Standard Webhooks says: a MAC over the id of the delivery, its time and the raw body.

Nothing is taken without a secret. A delivery from more than five minutes ago, or ahead, is refused; within that time
its id is known, so a second one changes nothing.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from holdfast.base.clock import now_us
from holdfast.base.data import data
from holdfast.errors import UsageError
from holdfast.server.problems import Problem

WINDOW_S: Final = 300
_PREFIX: Final = "whsec_"
_LONGEST_ID: Final = 200
_SHORTEST: Final = 16  # bytes of a secret


@data
class Hook:
    """Who may deliver under a name, and the event that comes of it."""

    event: str
    secrets: tuple[bytes, ...]  #: any of them: a new one is added before the old one goes


@data
class Hooks:
    """The hooks of a server, by name.

    Example: `Hooks.of({"shop": {"event": "order.paid", "secret": "whsec_…"}})`
    """

    known: Mapping[str, Hook] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Mapping[str, Any]]) -> Hooks:
        """From names, each with an `event` and a `secret`, or several `secrets`."""
        return cls({name: _hook(name, each) for name, each in given.items()})

    @classmethod
    def in_file(cls, path: Path) -> Hooks:
        """From a TOML file with a table for each hook; others must not be able to read it."""
        try:
            if path.stat().st_mode & 0o077:
                raise UsageError(f"{path} has secrets in it, and others can read it: chmod 600 {path}")
            given = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be read: {error}.") from error
        if not all(isinstance(each, dict) for each in given.values()):
            raise UsageError(f"{path} has a table for each hook: [shop], with event and secret.")
        return cls.of(given)

    def check(self, name: str, headers: Mapping[str, str], body: bytes) -> tuple[Hook, str]:
        """The hook of a delivery and the delivery's id; Problem unless all of it is right."""
        hook = self.known.get(name)
        mark, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if hook is None or not mark or len(mark) > _LONGEST_ID or not mark.isprintable():
            raise _refused()
        if not at.isascii() or not at.isdecimal() or len(at) > 12:
            raise _refused()
        given = [each.partition(",") for each in headers.get("webhook-signature", "")[: _LONGEST_ID * 10].split()]
        signatures = [_decoded(text) for version, _, text in given if version == "v1"]
        signed = b".".join((mark.encode(), at.encode(), body))
        is_signed = False
        for secret in hook.secrets:
            expected = hmac.digest(secret, signed, "sha256")
            for each in signatures:
                is_signed |= hmac.compare_digest(each, expected)
        if not is_signed or abs(int(at) - now_us() // 1_000_000) > WINDOW_S:
            raise _refused()
        return hook, mark


def _hook(name: str, given: Mapping[str, Any]) -> Hook:
    unknown = given.keys() - {"event", "secret", "secrets"}
    event, secrets = given.get("event"), given.get("secrets", [given["secret"]] if "secret" in given else [])
    if unknown or not isinstance(event, str) or not event or not isinstance(secrets, list) or not secrets:
        raise UsageError(f"Hook {name!r} needs an event, and a secret or several secrets, and takes nothing else.")
    return Hook(event, tuple(_secret(name, each) for each in secrets))


def _secret(name: str, given: object) -> bytes:
    found = _decoded(given.removeprefix(_PREFIX)) if isinstance(given, str) and given.startswith(_PREFIX) else b""
    if len(found) < _SHORTEST:
        raise UsageError(f"The secret of hook {name!r} is {_PREFIX} and at least {_SHORTEST} bytes in base64.")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _refused() -> Problem:
    """Without what was wrong: whoever cannot sign learns nothing."""
    return Problem("signature")
