"""What comes from outside is plain JSON: who sends it does not decide which objects are made of it."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from datetime import date
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from holdfast.codec import MISSING, coder_for, plain_json, read_outside
from holdfast.codec.schema import problems_outside, schema_of
from holdfast.errors import CorruptJournal, Undecodable, Unserialisable
from holdfast.journal import blobs
from holdfast.model import RunId
from holdfast.store import rows

#: Numbers with the same hash: a set or dict of so many takes minutes to make.
COLLIDING = [number * (2**61 - 1) for number in range(1, 60_000)]
#: Objects that would be made of them, if a tag meant anything.
HOSTILE: list[Any] = [
    {"$set": COLLIDING},
    {"$frozenset": COLLIDING},
    {"$dict": [[number, 1] for number in COLLIDING]},
    {"deep": [{"$set": COLLIDING}]},
]


class Team(BaseModel):
    name: str
    members: set[int]
    since: date


@dataclass(frozen=True)
class Plain:
    name: str
    parts: dict[str, list[int]]


class Known(TypedDict):
    name: str


def sent(value: object) -> str:
    """The text that is stored of a value from outside."""
    return coder_for(MISSING).dumps(value)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: next(iter(value)))
@pytest.mark.parametrize("annotation", [int, list[int], dict[str, int], Known, Plain, str | None])
def test_a_tag_that_the_annotation_does_not_ask_for_makes_nothing(annotation: Any, hostile: Any) -> None:
    for text in (sent(hostile), json.dumps(hostile)):
        with pytest.raises(Undecodable):
            read_outside(annotation, text)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: next(iter(value)))
def test_without_an_annotation_what_was_sent_is_what_comes(hostile: Any) -> None:
    assert read_outside(Any, sent(plain_json(json.dumps(hostile))))[1] == hostile


@pytest.mark.parametrize(
    ("annotation", "value", "read"),
    [
        (set[int], [1, 2], {1, 2}),
        (set[int], {"$set": [1, 2]}, {1, 2}),
        (list[set[int]], [{"$set": [1]}, {"$set": []}], [{1}, set()]),
        (bytes, {"$bytes": "/wA="}, b"\xff\x00"),
        (date, "2026-11-16", date(2026, 11, 16)),
        (date | None, {"$date": "2026-11-16"}, date(2026, 11, 16)),
        (dict[int, str], {"$dict": [[1, "a"]]}, {1: "a"}),
        (dict[str, int], {"$set": 1}, {"$set": 1}),
        (dict[str, Any], {"$set": [1]}, {"$set": [1]}),
        (Any, {"$set": [1]}, {"$set": [1]}),
        (
            Team,
            {"name": "a", "members": {"$set": [1]}, "since": {"$date": "2026-11-16"}},
            Team(name="a", members={1}, since=date(2026, 11, 16)),
        ),
        (
            Team,
            {"name": "a", "members": [1], "since": "2026-11-16"},
            Team(name="a", members={1}, since=date(2026, 11, 16)),
        ),
        (Plain, {"name": "a", "parts": {"$x": [1]}}, Plain("a", {"$x": [1]})),
    ],
)
def test_plain_json_and_the_tags_that_are_asked_for_are_read(annotation: Any, value: Any, read: Any) -> None:
    text, found = read_outside(annotation, sent(value))
    assert found == read
    assert type(found) is type(read)
    assert coder_for(annotation).loads(text) == read
    assert problems_outside(schema_of(annotation), sent(value)) == []


@pytest.mark.parametrize("annotation", [Any, set[int], list[Any], Team, Plain])
def test_what_our_own_code_sends_is_read_as_it_was(annotation: Any) -> None:
    values: dict[Any, Any] = {
        Any: {"a": {1}, "b": (1, 2)},
        set[int]: {1, 2},
        list[Any]: [{1}, b"a", {"$set": [1]}],
        Team: Team(name="$a", members={1}, since=date(2026, 11, 16)),
        Plain: Plain("$", {"$set": [1]}),
    }
    value = values[annotation]
    assert read_outside(annotation, coder_for(annotation).dumps(value))[1] == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("NaN", "bare token NaN"),
        ("[1 2]", "Expecting ',' delimiter"),
        ("[" * 300 + "]" * 300, "nested deeper than 200 levels"),
        ('{"a":' * 300 + "1" + "}" * 300, "nested deeper than 200 levels"),
        ("[" * 100_000, "nested deeper than 200 levels"),
    ],
    ids=["empty", "cut", "nan", "comma", "lists", "objects", "cut lists"],
)
def test_what_is_no_json_or_too_deep_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        plain_json(text)


@pytest.mark.parametrize("depth", [150, 250, 5_000, 200_000])
def test_however_deep_it_is_it_is_read_or_refused(depth: int) -> None:
    for opened, closed in (("[", "]"), ('{"$set":[', "]}"), ('{"$dict":[["a",', "]]}")):
        text = opened * depth + closed * depth
        for annotation in (list[int], Plain, set[int]):
            with pytest.raises(Undecodable):
                read_outside(annotation, text)


def test_a_stored_value_that_grows_without_end_when_it_is_read_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LARGEST_BLOB", 10_000)
    monkeypatch.setattr(blobs, "LARGEST_BLOB", 10_000)
    run = RunId("r_1")
    assert rows.unpack_blob(run, "d", zlib.compress(b"0" * 10_000)) == b"0" * 10_000
    for size in (10_001, 100_000_000):
        with pytest.raises(CorruptJournal, match="more than 10,000 bytes"):
            rows.unpack_blob(run, "d", zlib.compress(b"0" * size))
    blobs.spilled("0" * 10_000)
    with pytest.raises(Unserialisable, match="10,001 bytes"):
        blobs.spilled("0" * 10_001)
