"""Commands that people are told. Whatever names one with something from outside in it has it made here.

`order-$(…)` must stay a word, and an id that begins with a dash must not become an option. A hint is one line without
backticks and without anything that is not seen: it can stand in backticks, be shown on a terminal, and be copied from
there, and it still means the same.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from holdfast.base.characters import escaped
from holdfast.base.config import URL, has_password, is_server

_store: ContextVar[str | None] = ContextVar("holdfast_hints_store", default=None)

#: What `'…'` does not show, or what would be changed on its way: several blanks in a row, or blanks at an end.
_NEEDS_ESCAPES: Final = re.compile(r"`|[^\S ]|  |^ | $")
_ESCAPED: Final = re.compile(r"[\\'!`]|[^\S ]|(?<= ) |^ | $")
#: Nothing to any shell; but in zsh, `=ls` is the path of a program.
_BARE: Final = re.compile(r"[\w@%+:,./…-][\w@%+=:,./…-]*")


def hint(command: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """`holdfast COMMAND ARGUMENTS OPTIONS`, each word quoted; `--` stands before arguments that look like options.

    Words in capitals stand for what the reader puts there. Whoever was told which store to use (`about_store`) has it
    in all hints: without it they would be about another one.

    Example: `hint("resume", "order-7", "FILE") == "holdfast resume order-7 FILE"`
    """
    store = _store.get()
    if store is not None and "--db" not in options:
        options = (*options, "--url" if is_server(store) else "--db", store)
    has_dash = any(word.startswith("-") for word in arguments)
    words = [*options, "--", *arguments] if has_dash else [*arguments, *options]
    return " ".join(["holdfast", command, *map(quoted, words)])


def about_store(url: str | None) -> None:
    """From here on, hints of this context name the store that was asked for; None: the usual one, which needs no name.

    A password is not repeated: then the reader puts the url there again. The token of a server is left out.
    """
    if url is not None and is_server(url):
        url = url.partition("#")[0]
    _store.set("URL" if url is not None and has_password(url) else url)


def is_about_server() -> bool:
    """Do hints of this context name a server? Whoever reads them may have no store."""
    return is_server(_store.get() or os.environ.get(URL) or "")


def resume_hint(run_id: str, source: str | None = None, *, options: Sequence[str] = ()) -> str:
    """The command that executes a run where it is typed, with the code in a file: the one that is known, if any is.

    Example: `resume_hint("order-7") == "holdfast resume order-7 FILE"`
    """
    if is_about_server():  # nothing is executed there: any worker takes it up
        return hint("resume", run_id, options=options)
    source = shown_source(source)
    if ":" in run_id or run_id.endswith(".py"):  # it could be taken for the file
        return hint("resume", run_id, options=("--app", source, *options))
    return hint("resume", run_id, source, options=options)


def shown_source(source: str | None) -> str:
    """A file as it is typed here: below the current folder, its path from there; `FILE` if none is known."""
    here = f"{Path.cwd()}/"
    return source.removeprefix(here) if source else "FILE"


def answer_hint(question_id: str) -> str:
    """The command that answers a question; on a terminal it shows the question and asks.

    Example: `answer_hint("q_7c4") == "holdfast answer q_7c4"`
    """
    return hint("answer", question_id)


def send_hint(run_id: str, signal: str) -> str:
    """The command that sends a signal.

    Example: `send_hint("order-7", "approved") == "holdfast send order-7 approved JSON"`
    """
    return hint("send", run_id, signal, "JSON")


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
