"""What a call costs to write down, and what is kept of the functions that are called."""

from __future__ import annotations

import gc
import json
import re
from typing import Any
from weakref import ref

import pytest

from holdfast.codec import bind_input, decode_input, encode_call, functions
from holdfast.codec.fastjson import digest, encode, encode_sorted
from holdfast.codec.foreign import pack_named
from holdfast.codec.foreign import refuse as refuse_foreign
from holdfast.codec.marks import canonical
from holdfast.codec.refusal import Refused
from holdfast.codec.tags import OtherTypes, pack
from holdfast.codec.text import from_text, to_text


class Never(OtherTypes):
    def __call__(self, value: Any, depth: int = 0) -> Any:
        raise AssertionError(value)


refuse = Never()


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
    assert mark == digest(canonical(encode_sorted(given)))
    turned = {name: dict(reversed(each.items())) if type(each) is dict else each for name, each in given.items()}
    if '"$' not in text:
        assert encode_call(call, (), dict(reversed(turned.items())))[1] == mark


def test_a_large_plain_call_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "canonical", refuse)
    text, _ = encode_call(call, ([{"role": "user", "content": "x" * 100}] * 100,), {"options": {"b": 1, "a": 2}})
    assert len(text) > 10_000


class Name(str):
    """Equal to a str, and not one."""


MANY = [{"role": "user", "content": f"question {n} " * 10} for n in range(200)]
LARGE_VALUES: dict[str, Any] = {
    "a chat": MANY,
    "in order": [{"content": "x" * 50, "role": "user"}] * 100,
    "in both orders": [*MANY, {"content": "x", "role": "user"}],
    "in order first": [{"content": "x", "role": "user"}, *MANY],
    "other keys": [*MANY, {"role": "tool", "n": 1, "content": None}],
    "as many other keys": [*MANY, {"role": "tool", "a": "b"}],
    "fewer keys": [*MANY, {"role": "tool"}, {}],
    "one key": [{"a": "x" * 50}] * 100,
    "a float": [*MANY, {"role": "user", "content": 1e16}],
    "small floats": [1e-7, 1e22, -0.0, 0.1] * 100,
    "not a number": [*MANY, {"role": "user", "content": float("nan")}],
    "ints": [{"b": n, "a": -(10**n)} for n in range(300)],
    "a long int": [*MANY, {"role": "user", "content": 10**700}],
    "digits": [*MANY, {"role": "user", "content": "1" * 700}],
    "DEL": [*MANY, {"role": "user", "content": "\x7f"}],
    "all of ASCII": [{"b": chr(n), "a": chr(n) * 20} for n in range(128)],
    "umlauts": [{"rolle": "ä", "inhalt": "ö€😀" * 10}] * 100,
    "half a pair": [*MANY, {"role": "user", "content": "\ud800"}],
    "a dollar": [*MANY, {"role": "user", "content": "$5"}],
    "a tag's name": [*MANY, {"role": "user", "content": "$set"}],
    "like a tag": [*MANY, {"$set": []}],
    "not like a tag": [*MANY, {"$set": [], "a": 1}],
    "a tuple": [*MANY, {"role": "user", "content": (1, 2)}],
    "an int as key": [*MANY, {1: 2}],
    "an equal key": [*MANY, {Name("role"): "user", "content": "x"}],
    "an equal value": [*MANY, {"role": Name("user"), "content": "x"}],
    "a bool": [*MANY, {"role": True, "content": None}],
    "an object": [*MANY, {"role": object(), "content": None}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "x" * 50}]} for _ in range(100)],
    "uneven": [*MANY, "x", [{"b": 1, "a": {"d": 1, "c": 2}}], None],
    "a dict": {f"key {n * 7 % 100}": "x" * 50 for n in range(100)},
    "a dict of dicts": {f"key {n * 7 % 100}": {"b": 1, "a": "x" * 50} for n in range(100)},
    "lists": [["x" * 50, n] for n in range(100)],
    "a text": "x\n{" * 1000,
    "a text with umlauts": "ä" * 3000,
}


@pytest.mark.parametrize("what", LARGE_VALUES)
def test_what_is_large_is_written_as_if_it_were_small(what: str) -> None:
    """Journals have these texts and digests: part by part, and by `json` alone, they come out the same."""
    value = LARGE_VALUES[what]
    for args, kwargs in (((value,), {}), ((1,), {"options": value}), (("{", value), {})):
        given = dict(zip(("text", "options"), args, strict=False)) | kwargs
        parts = {name: encode(pack(each, 0, pack_named)) for name, each in given.items()}
        expected = "{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}"
        text, mark = encode_call(call, args, kwargs)
        assert text == (expected if "options" in given else expected[:-1] + ',"options":null}')
        assert mark == digest(canonical(expected) if expected.count("{") > 1 else expected)
        assert mark == encode_call(call, (), dict(reversed(given.items())))[1]


@pytest.mark.parametrize("what", ["a tuple", "an equal key", "an equal value", "like a tag", "a long int", "DEL"])
def test_what_is_large_comes_back_as_it_was_or_is_refused(what: str) -> None:
    value = LARGE_VALUES[what]
    if "equal" in what:
        with pytest.raises(Refused) as caught:
            to_text(value, refuse_foreign)
        assert caught.value.where("it").startswith("it[200]")
    else:
        found = from_text(to_text(value, refuse))
        assert found == value
        assert list(map(type, found[-1].values())) == list(map(type, value[-1].values()))


@pytest.mark.parametrize("before", [0, 1, 598, 599, 600, 601, 1199])
@pytest.mark.parametrize("digits", [599, 600, 640, 1200, 4000])
def test_an_int_that_needs_a_tag_gets_one_wherever_it_stands(before: int, digits: int) -> None:
    value = ["x" * before, 10 ** (digits - 1), "y" * 700]
    text = to_text(value, refuse)
    assert from_text(text) == value
    assert not re.search(r"[:,\[]\d{640}", text)
