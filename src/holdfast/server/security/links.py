"""Links that let whoever has one decide one question, without an account.

The key names what may be decided, by whom, as what the question shows, and until when, under a MAC. It stands behind
the `#` of the link, so no log and no mail scanner gets it. A question is decided once, so a link is used once; one that
shows something else by now is another question to the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import Final, Literal

from holdfast.base.clock import now_us
from holdfast.base.data import data
from holdfast.base.ids import new_token
from holdfast.server.problems import Problem

Decision = Literal["answer", "decline"]
DECISIONS: Final[tuple[Decision, ...]] = ("answer", "decline")
_LONGEST: Final = 2_000


@data
class Link:
    """What a key allows."""

    question_id: str
    shown: str
    decisions: tuple[Decision, ...]
    audience: str
    until_s: int  #: seconds since the epoch


class Links:
    """Makes and reads keys. Without a token of the store they hold as long as this process lives."""

    def __init__(self, token: str | None) -> None:
        base = token.encode() if token is not None else new_token().encode()
        self._secret = hmac.digest(base, b"holdfast links", "sha256")

    def key(self, link: Link) -> str:
        """What stands behind `#k=`."""
        said = [link.shown, list(link.decisions), link.audience, link.until_s]
        return f"{_text(json.dumps(said, separators=(',', ':')).encode())}.{_text(self._mac(link))}"

    def read(self, key: str, question_id: str) -> Link:
        """What a key allows of this question; Problem if it is none, of another one, or too old."""
        try:
            if len(key) > _LONGEST or not key.isascii():
                raise ValueError("no key")
            said, _, mac = key.partition(".")
            shown, decisions, audience, until_s = json.loads(_bytes(said))
            link = Link(question_id, str(shown), tuple(decisions), str(audience), int(until_s))
            given = _bytes(mac)
        except (ValueError, TypeError, binascii.Error, RecursionError):
            raise Problem("link", "It is no link of this server.") from None
        if not hmac.compare_digest(given, self._mac(link)):
            raise Problem("link", "It is no link of this server.")
        if link.until_s * 1_000_000 <= now_us():
            raise Problem("link", "The link is too old.")
        return link

    def _mac(self, link: Link) -> bytes:
        said = [link.question_id, link.shown, list(link.decisions), link.audience, link.until_s]
        return hmac.digest(self._secret, json.dumps(said).encode(), hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
