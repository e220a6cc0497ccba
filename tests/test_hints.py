"""Commands that people are told, and characters that are not seen."""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.base.characters import escaped, unseen_in
from holdfast.base.hints import hint, is_harmless, quoted, resume_hint
from holdfast.journal.blocks import told
from holdfast.journal.mismatches import mismatch
from tests.hostile import IDS, SHELL, TEXTS, hints_in, is_raw, named, raw_in, typed

SRC = Path(__file__).parents[1] / "src" / "holdfast"


@pytest.mark.parametrize("text", **named(TEXTS))
def test_a_hint_is_one_line_that_a_shell_takes_as_it_is_meant(text: str, tmp_path: Path) -> None:
    if text == TEXTS["surrogate"]:
        pytest.skip("no shell can be given half a character")
    told = hint("send", text, "approved", options=("--by", text))
    assert not raw_in(told)
    assert "`" not in told
    assert re.sub(r"\s+", " ", told) == told
    heard = typed(told, tmp_path)
    assert heard[0] == "send"
    assert sorted(set(heard[1:]) - {"--"}) == sorted({text, "approved", "--by"} - {"--"})
    if text.startswith("-"):
        assert heard[1:3] == ["--by", text]
        assert heard[3] == "--"


def test_plain_words_are_not_quoted() -> None:
    assert hint("resume", "order-7", "FILE") == "holdfast resume order-7 FILE"
    assert hint("answer", "q_1", "title=…", options=("--by", "Zoë")) == "holdfast answer q_1 title=… --by Zoë"
    assert resume_hint("order-7", options=("--retry",)) == "holdfast resume order-7 FILE --retry"
    assert resume_hint("daily:7") == "holdfast resume daily:7 --app FILE"  # else it might name a module
    assert quoted("publish#1") == "'publish#1'"
    assert quoted("") == "''"


def test_only_what_means_itself_unquoted_is_harmless() -> None:
    assert all(map(is_harmless, ("order-7", "r_1f", "東京", "a.b:c@d")))
    assert not any(map(is_harmless, [*SHELL.values(), "-x", "", "=ls", "a\u200bb", "a\u3164b", "a b"]))


def test_everything_that_is_not_seen_is_escaped_and_named() -> None:
    raw = [chr(code) for code in range(sys.maxunicode + 1) if is_raw(chr(code))]
    assert len(raw) > 400
    for character in raw:
        shown = escaped(f"a{character}b")
        assert not raw_in(shown), hex(ord(character))
        assert unseen_in(f"a{character}b"), hex(ord(character))
    # And what is seen is left as it is.
    others = {chr(code) for code in range(sys.maxunicode + 1)} - set(raw)
    left = {each for each in others if escaped(f"a{each}b") != f"a{each}b" and unicodedata.category(each) != "Cn"}
    assert left == {"\U0001d159"}  # a note without a head


@pytest.mark.parametrize("text", ["👩‍💻", "❤️ and 1️⃣", "👩🏽‍🚀", "می‌خواهم", "क्‍ष", "a\tb\nc", "é e\u0301", "∑ ﷽ 東京"])
def test_joiners_and_selectors_stay_where_they_belong(text: str) -> None:
    assert escaped(text) == text
    assert unseen_in(text) == []


def test_an_escape_tells_which_character_it_is() -> None:
    assert escaped("\x1b\x9b\u200b\U000e0041\ud800") == "\\x1b\\x9b\\u200b\\U000e0041\\ud800"
    assert unseen_in("a\u200b\u202e\u200b\x1b") == [
        "U+200B ZERO WIDTH SPACE",
        "U+202E RIGHT-TO-LEFT OVERRIDE",
        "U+001B",
    ]


def parts(node: ast.AST) -> Iterator[str]:
    """A string of the code, with `{}` for what is put in."""
    for each in ast.walk(node):
        if isinstance(each, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in each.values)  # type: ignore[misc]


def test_no_command_with_something_put_in_is_written_by_hand() -> None:
    found = [
        f"{path.relative_to(SRC)}: {text}"
        for path in sorted(SRC.rglob("*.py"))
        for text in parts(ast.parse(path.read_text()))
        if re.search(r"holdfast (--db|[a-z-]+)( [\w.:|=-]*)* ?['\"]?\S*\{\}", text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("run_id", **named(IDS))
def test_advice_about_a_blocked_run_can_be_copied(run_id: str, tmp_path: Path) -> None:
    advice = told(run_id, mismatch(asked="a", where="", recorded=[], attempted=[]))[-1]
    heard = [typed(each, tmp_path) for each in hints_in(advice)]
    assert [words for words in heard if run_id in words], heard
