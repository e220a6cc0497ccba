"""Characters that a terminal acts upon, or shows nothing of: finding them, and showing them escaped.

Text comes from models, messages and other users. A control character moves the cursor, a mark of direction has text
read in another order than it is stored, and what has no width makes two ids look like one. The ranges are Unicode's
controls and format characters, what it lists as ignorable by default, fillers and blanks that have a width but no ink,
and lone surrogates. Left alone are marks of format that are seen (signs of numbers in Arabic script), tab and newline,
and joiners and selectors where they belong: in an emoji, and between letters of scripts that are written with joiners.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_NON_JOINER, _JOINER, _KEYCAP = "\u200c", "\u200d", "\u20e3"
_SELECTORS: Final = "\ufe0e\ufe0f"  #: whether the symbol before it is text or a picture
_JOINED: Final = re.compile("[\u0600-\u109f\u1780-\u18af]")  #: scripts whose letters take joiners


def escaped(text: str, escape: Callable[[str], str] | None = None) -> str:
    """The text with everything visible: `\\x1b`, `\\u200b`, `\\U000e0041`, or what `escape` makes of a character.

    Example: `escaped("a\\u200bb") == "a\\\\u200bb"`
    """
    if text.isascii() and text.isprintable():
        return text
    show = escape or _as_python
    return _UNSEEN.sub(lambda found: found[0] if _belongs(text, found.start()) else show(found[0]), text)


def unseen_in(text: str) -> list[str]:
    """The names of what is not seen in a text, each once: `U+200B ZERO WIDTH SPACE`.

    Example: `unseen_in("a\\u200bb") == ["U+200B ZERO WIDTH SPACE"]`
    """
    found = (each[0] for each in _UNSEEN.finditer(text) if not _belongs(text, each.start()))
    return [f"U+{ord(each):04X} {unicodedata.name(each, '')}".strip() for each in dict.fromkeys(found)]


def _as_python(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _belongs(text: str, at: int) -> bool:
    """Is it where it has a purpose that is seen?"""
    character, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if not before:
        return False
    if character in _SELECTORS:
        return _is_symbol(before) or (before in "0123456789#*" and after == _KEYCAP)
    if not after or character not in (_NON_JOINER, _JOINER):
        return False
    if character == _JOINER and (before in _SELECTORS or unicodedata.category(before) == "Sk"):
        before = text[at - 2 : at - 1]  # a selector, or the tone of a skin
    if character == _JOINER and before and _is_symbol(before) and _is_symbol(after):
        return True
    return bool(_JOINED.fullmatch(before)) and bool(_JOINED.fullmatch(after)) and not _UNSEEN.search(before + after)


def _is_symbol(character: str) -> bool:
    return unicodedata.category(character) in ("So", "Sm") and not _UNSEEN.fullmatch(character)
