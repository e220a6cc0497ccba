"""Values that were typed, or come from a file or from stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from holdfast.cli.failure import USAGE, Failure
from holdfast.codec.forms import read_json


def text_of(given: str, what: str) -> str:
    """The text itself; `-` is stdin, `@FILE` a file."""
    try:
        if given == "-":
            return sys.stdin.read()
        return Path(given[1:]).read_text() if given.startswith("@") else given
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{what} {given} cannot be read: {error}.", USAGE) from error


def parse_json(text: str, what: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise Failure(f"{what} is not JSON: {error}. A text needs quotes: '\"like this\"'.", USAGE) from error


def value_of(given: str | None, what: str) -> Any:
    """JSON that was typed, or None if nothing was."""
    return None if given is None else parse_json(text_of(given, what), what)
