"""What a call costs to write down, and what is kept of the functions that are called."""

from __future__ import annotations

import gc
import json
import re
from typing import Any
from weakref import ref

import pytest

from holdfast.codec import bind_input, decode_input, encode_call, functions
from holdfast.codec.fastjson import digest, encode_sorted
from holdfast.codec.text import from_text, to_text


def refuse(value: Any, depth: int = 0) -> Any:
    raise AssertionError(value)


def test_a_function_that_nobody_has_any_more_is_not_kept_alive() -> None:
    def one(a: int, b: list[str] | None = None) -> None: ...

    encode_call(one, (1,), {})
    decode_input(one, bind_input(one, (1,), {}).text)
    gone = ref(one)
    del one
    gc.collect()
    assert gone() is None


def test_a_method_and_an_object_that_cannot_be_hashed_are_called_like_any_other() -> None:
    class Tool:
        __hash__ = None  # type: ignore[assignment]

        def use(self, how: str) -> None: ...

        def __call__(self, how: str) -> None: ...

    tool = Tool()
    assert encode_call(tool.use, ("well",), {})[0] == encode_call(tool, ("well",), {})[0] == '{"how":"well"}'


def call(text: Any, options: Any = None) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ([{"z": "x" * 3000, "a": {"y": 1, "b": [1.5, None, True]}}], {}),
        (["é\u2028" * 1000], {"options": {"b": 1, "a": 2}}),
        ([{"b": "x" * 3000, "a": 1}], {"options": "x"}),
        ([{"b": "x" * 3000, "a": (1, 2)}], {}),
        ([{"$b": "x" * 3000, "a": 1}], {}),
        ([{"b": "x" * 3000, 1: 2}], {}),
        ([{"b": "{" * 3000}], {}),
    ],
    ids=["nested", "by name", "both", "a tuple", "a dollar", "a number as key", "braces"],
)
def test_a_large_call_is_recognised_as_when_it_is_read_again(args: list[Any], kwargs: dict[str, Any]) -> None:
    """What a journal has recorded is found again: the digest is that of the text with all keys in order."""
    text, mark = encode_call(call, tuple(args), kwargs)
    given = json.loads(text)
    if "options" not in kwargs:
        del given["options"]
    assert mark == digest(functions._canonical(encode_sorted(given)))
    turned = {name: dict(reversed(each.items())) if type(each) is dict else each for name, each in given.items()}
    if '"$' not in text:
        assert encode_call(call, (), dict(reversed(turned.items())))[1] == mark


def test_a_large_plain_call_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "_canonical", refuse)
    text, _ = encode_call(call, ([{"role": "user", "content": "x" * 100}] * 100,), {"options": {"b": 1, "a": 2}})
    assert len(text) > 10_000


@pytest.mark.parametrize("before", [0, 1, 598, 599, 600, 601, 1199])
@pytest.mark.parametrize("digits", [599, 600, 640, 1200, 4000])
def test_an_int_that_needs_a_tag_gets_one_wherever_it_stands(before: int, digits: int) -> None:
    value = ["x" * before, 10 ** (digits - 1), "y" * 700]
    text = to_text(value, refuse)
    assert from_text(text) == value
    assert not re.search(r"[:,\[]\d{640}", text)
