"""Strings that do harm where they are believed: for whatever takes text from outside, and whatever shows it.

Each corpus is a dict, so that a test can be parametrised with `**named(IDS)`:

| corpus | what it is for |
|---|---|
| `IDS` | ids of runs, names of queues, schedules, triggers, signals: what Holdfast accepts as such |
| `TEXTS` | values, prompts, notes, options, names of fields: any text; `IDS` is part of it |
| `FILE_NAMES` | names of files |
| `BODIES` | bodies of messages, webhooks and files, as bytes |
| `SCHEMAS` | JSON schemas of forms |

A string that a shell would evaluate makes the file `CANARY` there. `raw_in` finds what must not reach a terminal,
`hints_in` the commands that a text tells people, and `typed` what a shell makes of one.
"""

from __future__ import annotations

import json
import re
import subprocess
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

CANARY = "canary"
_TOUCH = f"touch {CANARY}"

#: What a shell acts upon.
SHELL = {
    "substitution": f"order-$({_TOUCH})",
    "backticks": f"order-`{_TOUCH}`",
    "quote": f"it's' ; {_TOUCH} ; '",
    "double quote": f'say "$({_TOUCH})"',
    "list": f"a; {_TOUCH} && {_TOUCH} || {_TOUCH} & {_TOUCH}",
    "pipe": f"a | {_TOUCH}",
    "redirect": f"a > {CANARY}",
    "ansi quote": f"$'a' $({_TOUCH}) \\",
    "glob": "[a-z]* {a,b} ~ ?",
    "comment": f"#1 !! $({_TOUCH})",
    "blanks": "two  blanks",
}
#: What a command line acts upon.
OPTIONS = {
    "dash": "-x",
    "long option": f"--yes=$({_TOUCH})",
    "dashes": "--",
    "a source": "os:system",
    "a file": "agents.py",
    "no module": ".:x",
    "zsh": "=ls",
    "an assignment": "PATH=/tmp",
}
#: What templates and terminals' markup act upon.
MARKUP = {
    "format": "%s {0} {command} ${HOME} %(x)d",
    "rich": "[red]a[/red] [link=file:///]b[/link]",
    "html": "<script>alert(1)</script>&lt;",
    "long": "long" * 25,
}
#: Printable to Python, and nothing to see: an id may have them.
BLANK = {
    "filler": "a\u3164b",
    "braille": "a\u2800b",
    "joiner of graphemes": "a\u034fb",
    "selector": "a\ufe0fb",
    "ideographs": "東京-ü",
}
#: What a terminal acts upon.
CONTROL = {
    "colour": "\x1b[31mred",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "c1": "\x9b31m\x90q\x9c",
    "backspace": "no\b\byes",
    "carriage return": "yes\rno!",
    "newline": f"a\n{_TOUCH}\n",
    "tab": "a\tb",
    "delete": "a\x7fb",
    "separators": "a\x1c\x1d\x1e\x1f\x85b",
}
#: What is not seen, or has text read in another order.
UNSEEN = {
    "arabic letter mark": "a\u061cb",
    "zero width space": "a\u200bb",
    "byte order mark": "\ufeffa",
    "tags": "a\U000e0041\U000e007f",
    "override": "a\u202egnp.exe",
    "isolates": "\u2066a\u2069\u2067",
    "marks": "a\u200e\u200f",
    "soft hyphen": "a\xadb",
    "lines": "a\u2028b\u2029c",
    "joiners": "a\u200db\u200cc",
    "invisible operators": "a\u2062\u2063\u2064b",
    "selectors of supplement": "a\U000e0100b",
}
#: What encodings stumble over.
ENCODING = {"surrogate": "a\ud800b", "bytes": "a\udcffb", "noncharacter": "a\uffff", "astral": "a\U0001f600"}

IDS = {**SHELL, **OPTIONS, **MARKUP, **BLANK}
TEXTS = {**IDS, **CONTROL, **UNSEEN, **ENCODING}
FILE_NAMES = {name: text.replace("/", "⁄") for name, text in TEXTS.items() if name not in ("surrogate", "dashes")}
BODIES = {
    **{name: json.dumps(text).encode() for name, text in TEXTS.items()},
    "nothing": b"",
    "no utf-8": b'"\xff\xfe"',
    "nul": b'"\\u0000"',
    "no json": b"{",
    "not a number": b"NaN",
    "a large number": b"1" + b"0" * 400,
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "keys twice": b'{"a": 1, "a": 2}',
    "a tag": b'{"$set": [1, 2, 1]}',
    "an unknown tag": b'{"$python": "os.system"}',
    "a prototype": b'{"__proto__": {"admin": true}, "__class__": "x"}',
}
SCHEMAS: dict[str, dict[str, Any]] = {
    **{
        name: {
            "type": "object",
            "title": text,
            "required": [text],
            "properties": {
                text: {"type": "string", "description": text},
                "more": {"enum": [text, "b"], "default": text},
                "last": {"type": "string", "format": text, "default": text},
            },
        }
        for name, text in TEXTS.items()
    },
    "a loop": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "a loop of choices": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}},
    },
    "nowhere": {"$ref": "https://nowhere.invalid/schema.json"},
    "no schema": {"type": ["string", 5], "properties": {"a": 5}, "required": "a", "anyOf": 7},
}


class Named(TypedDict):
    argvalues: list[Any]
    ids: list[str]


def named(corpus: Mapping[str, Any]) -> Named:
    """For `pytest.mark.parametrize("text", **named(IDS))`."""
    return {"argvalues": list(corpus.values()), "ids": list(corpus)}


# what comes out

#: Format characters that are seen.
_SEEN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def is_raw(character: str) -> bool:
    """Would a terminal act upon it, or show nothing? By Unicode's own lists, not by Holdfast's."""
    if character in "\n\t" or character in _SEEN:
        return False
    name = unicodedata.name(character, "")
    return (
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        or character in _FILLERS
        or "VARIATION SELECTOR" in name
        or 0xE0000 <= ord(character) <= 0xE0FFF
    )


def raw_in(text: str) -> set[str]:
    """What is in it that must not reach a terminal; Holdfast's own way to wipe a line left out."""
    return {character for character in text.replace("\r\x1b[K", "") if is_raw(character)}


def hints_in(text: str) -> Iterator[str]:
    """The commands that it tells people: in backticks, or to the end of the line."""
    quoted = re.compile(r"`(holdfast [^`\n]*)`")
    yield from quoted.findall(text)
    yield from re.findall(r"holdfast [a-z][a-z-]* .*", quoted.sub("", text))


def typed(hint: str, folder: Path) -> list[str]:
    """What `holdfast` gets if the hint is given to bash; fails if anything else comes to pass.

    Empty if it is no command at all: prose that goes on behind one.
    """
    heard = folder / "heard"
    heard.unlink(missing_ok=True)
    code = f"holdfast() {{ printf '%s\\0' \"$@\" >> {heard}; }}\n{hint}\n"
    subprocess.run(
        ["bash", "-c", code.encode("utf-8", "surrogateescape")],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )
    made = {path.name for path in folder.iterdir()} - {heard.name}
    assert not made, f"{hint!r} made {made}"
    words = heard.read_bytes().split(b"\0")[:-1] if heard.exists() else []
    return [word.decode("utf-8", "surrogateescape") for word in words]
