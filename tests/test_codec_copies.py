"""A large value that is known to come back as it was is copied, not read: nothing tells the one from the other."""

from __future__ import annotations

import dataclasses
import enum
import random
from typing import Any

import pytest

from holdfast.codec import MISSING, coder_for
from holdfast.codec.comparison import check_same
from holdfast.codec.models import ModelCoder
from holdfast.codec.swift import _copier, copy_swiftly
from holdfast.codec.text import LARGE
from tests.test_codec_large import KINDS, an_object

TREES: list[Any] = [
    [
        {"role": "user", "content": f"number {n} é", "n": n, "at": n / 4, "more": [None, True, {}, []]}
        for n in range(99)
    ],
    {str(n): [n, -(10**18) + n, ["x"]] for n in range(500)},
    [[["a"], ["a"]]] * 200,
]


def held(value: Any) -> set[int]:
    """Everything in it that can be changed in place."""
    if isinstance(value, str | int | float | enum.Enum | None):
        return set()
    if isinstance(value, list):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    elif hasattr(value, "__dict__"):
        parts = [value.__dict__]
    else:
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return {id(value)}.union(*map(held, parts))


@pytest.mark.parametrize("kind", KINDS[:6])
def test_a_large_object_is_copied_as_it_is_read(kind: Any) -> None:
    pick = random.Random(kind.__name__)
    coder = ModelCoder[Any](list[kind])
    made = [an_object(pick, kind, odd=0) for _ in range(60)]
    some = [each for each in made if coder._proven([each]) is not None]
    assert some
    several = some * (1 + LARGE // len(coder.dumps(some)) + 1)
    expected = coder.loads(coder.dumps(several))
    coder._from_json = None  # type: ignore[assignment]  # nothing is read
    _, copied = coder.roundtrip(several)
    check_same(expected, copied, "it")
    assert held(several).isdisjoint(held(copied))
    assert len(held(copied)) >= len(several), "what was held twice is there twice"


@pytest.mark.parametrize("tree", TREES, ids=["messages", "numbers", "the same again"])
@pytest.mark.parametrize("annotation", [MISSING, Any, list | dict])
def test_a_large_tree_is_copied_as_it_is_read(tree: Any, annotation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    coder = coder_for(annotation)
    expected = coder.loads(coder.dumps(tree))
    monkeypatch.setattr("holdfast.codec.coders.from_text", None)
    text, copied = coder.roundtrip(tree)
    assert len(text) > LARGE
    check_same(expected, copied, "it")
    assert repr(expected) == repr(copied)
    assert held(tree).isdisjoint(held(copied))


def test_what_is_written_in_another_way_is_read() -> None:
    coder = coder_for(MISSING)
    for odd in ((1, 2), {1: 2}, b"x", {"$set": [1]}, "$x", 1e300, 10**700, "\x7f"):
        value = [*TREES[0], odd]
        text, back = coder.roundtrip(value)
        check_same(coder.loads(text), back, "it")
        check_same(value, back, "it")


def test_pydantic_core_copies() -> None:
    assert _copier() is not None
    assert copy_swiftly(["\ud800"]) in (None, ["\ud800"])
