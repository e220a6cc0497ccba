"""Whether a text matches a pattern, decided in bounded time.

Patterns come from the agent's code, texts from anybody. Python's `re` tries one way after the other, and the number of
ways may grow with a high power of the text's length, or exponentially where a repetition is inside another. So each
pattern has a longest text that it is tried on, such that the ways stay countable; about longer ones nothing is said.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from math import comb
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

#: Ways through a text that may be tried: some tenths of a second.
_MOST_WAYS: Final = 5_000_000
_LONGEST: Final = 10_000
#: The longest text for a repetition inside a repetition: each character may double the ways.
_LONGEST_NESTED: Final = 20
#: Repetitions of up to this many times are choices; more of them are as bad as endless ones.
_FEW: Final = 8
_MOST_CHOICES: Final = 15

_ANCHORS: Final = ("^", r"\A")


def matches(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in the text; None if that cannot be told: a foreign dialect, or a long text."""
    search, longest = _compiled(pattern)
    return None if search is None or len(text) > longest else search(text) is not None


@lru_cache(1024)
def _compiled(pattern: str) -> tuple[Callable[[str], object] | None, int]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python warns about means something else in other dialects
            compiled = re.compile(pattern)
            ways = _ways(parser.parse(pattern))
    except (re.error, Warning, ValueError, OverflowError, RecursionError):
        return None, 0
    if ways.is_nested or ways.choices > _MOST_CHOICES:
        return compiled.search, _LONGEST_NESTED
    repeats = ways.repeats + (not pattern.startswith(_ANCHORS))  # it may begin anywhere
    longest = _LONGEST
    while comb(longest + repeats, repeats) << ways.choices > _MOST_WAYS and longest > _LONGEST_NESTED:
        longest = longest * 9 // 10
    return compiled.search, longest


class _Ways(NamedTuple):
    repeats: int = 0  #: open-ended repetitions
    choices: int = 0  #: alternatives, and repetitions of a few times
    is_nested: bool = False  #: a choice is made again and again

    def __add__(self, other: _Ways) -> _Ways:  # type: ignore[override]
        return _Ways(self.repeats + other.repeats, self.choices + other.choices, self.is_nested or other.is_nested)


def _ways(found: Any) -> _Ways:
    """What makes a parsed pattern take long."""
    total = _Ways()
    for operation, argument in found:
        name = str(operation)
        inner = sum((_ways(each) for each in _parts(argument)), _Ways())
        if name.endswith("_REPEAT"):
            least, most = argument[:2]
            inner += _Ways(is_nested=most > 1 and (inner.repeats > 0 or inner.choices > 0))
            inner += _Ways(repeats=1) if most > _FEW else _Ways(choices=int(least != most))
        elif name == "BRANCH":
            inner += _Ways(choices=1)
        elif name.startswith("GROUPREF"):
            inner += _Ways(is_nested=True)
        total += inner
    return total


def _parts(argument: Any) -> list[Any]:
    if isinstance(argument, parser.SubPattern):
        return [argument]
    return [each for inner in argument for each in _parts(inner)] if isinstance(argument, tuple | list) else []
