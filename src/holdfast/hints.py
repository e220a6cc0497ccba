"""Commands that people are told. Whatever names one with something from outside in it has it made here.

`order-$(…)` must stay a word, and an id that begins with a dash must not become an option. A hint is one line without
backticks and without anything that is not seen: it can stand in backticks, be shown on a terminal, and be copied from
there, and it still means the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from holdfast.characters import escaped

#: What `'…'` does not show, or what would be changed on its way: several blanks in a row, or blanks at an end.
_NEEDS_ESCAPES: Final = re.compile(r"`|[^\S ]|  |^ | $")
_ESCAPED: Final = re.compile(r"[\\'!`]|[^\S ]|(?<= ) |^ | $")
#: Nothing to any shell; but in zsh, `=ls` is the path of a program.
_BARE: Final = re.compile(r"[\w@%+:,./…-][\w@%+=:,./…-]*")


def hint(command: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """`holdfast COMMAND ARGUMENTS OPTIONS`, each word quoted; `--` stands before arguments that look like options.

    Words in capitals stand for what the reader puts there.

    Example: `hint("resume", "order-7", "FILE") == "holdfast resume order-7 FILE"`
    """
    has_dash = any(word.startswith("-") for word in arguments)
    words = [*options, "--", *arguments] if has_dash else [*arguments, *options]
    return " ".join(["holdfast", command, *map(quoted, words)])


def resume_hint(run_id: str, source: str = "FILE", *, options: Sequence[str] = ()) -> str:
    """The command that executes a run where it is typed, with the code in a file.

    Example: `resume_hint("order-7") == "holdfast resume order-7 FILE"`
    """
    if ":" in run_id or run_id.endswith(".py"):  # it could be taken for the file
        return hint("resume", run_id, options=("--app", source, *options))
    return hint("resume", run_id, source, options=options)


def quoted(word: str) -> str:
    """The word as it is typed in a shell: bare, in `'…'`, or in `$'…'` if it has something that is not seen.

    Example: `quoted("order-$(date)") == "'order-$(date)'"`
    """
    if _NEEDS_ESCAPES.search(word) or escaped(word) != word:
        return f"$'{escaped(_ESCAPED.sub(lambda found: _as_bytes(found[0]), word), _as_bytes)}'"
    if _BARE.fullmatch(word):
        return word
    safe = shlex.quote(word)
    return safe if safe != word else f"'{word}'"


def is_harmless(word: str) -> bool:
    """Is it the same to a shell however it is typed?

    Example: `[run_id for run_id in found if is_harmless(run_id)]`
    """
    return quoted(word) == word and not word.startswith("-")


def _as_bytes(text: str) -> str:
    """`\\xe2\\x80\\x8b`: the bytes of UTF-8, which mean the same in every locale."""
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)
