"""What was written for the last call is not written again, and nobody can tell: text and digest are the same."""

from __future__ import annotations

import enum
import random
import sys
from typing import Any

import pytest

from holdfast.codec import Recent, blob_digest, encode_call
from holdfast.codec import recent as recently
from holdfast.codec.order import in_order
from holdfast.journal.blobs import STATE, Spills, texts_of
from holdfast.model import RunId
from tests.test_codec_calls import LARGE_VALUES, MANY, Name

LISTS = {what: value for what, value in LARGE_VALUES.items() if type(value) is list}


class Role(enum.StrEnum):
    user = "user"


def call(text: Any, options: Any = None, *, more: Any = 1) -> None:
    """Called with what is large."""


def same(recent: Recent, *args: Any, **kwargs: Any) -> None:
    assert encode_call(call, args, kwargs, recent=recent) == encode_call(call, args, kwargs)


@pytest.mark.parametrize("what", LISTS)
def test_a_list_is_written_as_if_there_had_been_none_before(what: str) -> None:
    recent, value = Recent(), LISTS[what]
    for each in (MANY, MANY, value, [*MANY, *value]):
        same(recent, each)
        same(recent, "{", each, more={"b": 1, "a": {"$set": []}})
        same(recent, each, MANY[:150] + each, more="x" * 3000)


def _changed(value: list[Any], pick: random.Random) -> None:
    """What is hardest to notice: the text is the same, or as long; types, and what others hold, are not."""
    place = pick.randrange(len(value))
    old = value[place] if type(value[place]) is dict else {"role": "user", "content": "x"}
    some: Any = pick.choice(
        [
            {**old, "role": Name("user")},
            {**old, "role": Role.user},
            {"content": old.get("content"), "role": "user"},
            {
                **old,
                "content": pick.choice([1, True, 1.0, "1", -0.0, 0.0, 1e16, None, (1,), [1], b"1", bytearray(b"1")]),
            },
            {**old, "$n": 1},
            {"$n": [1]},
            {**old, "content": 10**700},
            dict(old),
            "ä",
            "\ud800",
        ]
    )
    match pick.randrange(6):
        case 0:
            value[place] = some
        case 1 | 2:
            value += [{"role": "user", "content": f"{pick.random()} " * pick.choice([1, 10, 2000])}] * pick.randrange(3)
        case 3:
            del value[place : place + pick.randrange(5)]
        case 4:
            old["content"] = f"{pick.random()}"
            value[place] = old
        case _:
            value.insert(place, {"role": "user", "content": "more"})


@pytest.mark.parametrize("seed", range(3))
def test_whatever_changes_between_two_calls_is_written(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recently, "_BLOCK", 2000)
    pick = random.Random(seed)
    value: list[Any] = [dict(each) for each in MANY]
    recent, held = Recent(), []
    for _ in range(25):
        kept = [each for each in value if type(each) is dict and not any(type(part) in (tuple, bytes) for part in each)]
        if pick.random() < 0.4:  # plain again
            value, recent = [dict.fromkeys(["role", "content"], f"{n}" * 50) for n in range(150)] + kept[:9], Recent()
        _changed(value, pick)
        held.append(pick.choice(value) if value else None)  # others hold some of it
        same(recent, value, more=pick.choice([1, {"b": 2, "a": 1}]))


def test_of_a_list_that_grows_only_what_is_new_is_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    recent, value = Recent(), [dict(each) for each in MANY * 3]
    same(recent, value)
    items: list[int] = []

    def count(value: Any, depth: int) -> Any:
        items.append(len(value))
        return in_order(value, depth)

    monkeypatch.setattr(recently, "in_order", count)
    for n in range(20):
        value.append({"role": "user", "content": f"more {n} " * 10})
        same(recent, value)
    assert sum(items) / 20 < 150, items  # of 600 and more
    items.clear()
    value[300] = {"role": "user", "content": "x"}
    same(recent, value)
    assert 100 < sum(items) < 500


def test_the_longer_of_two_lists_may_be_another_one_each_time() -> None:
    recent, changed = Recent(), [{"role": "user", "content": "x"}, *MANY[1:], *MANY]
    for one, other in ((MANY, MANY), (MANY * 2, MANY), (changed, MANY * 3), (changed, MANY)):
        same(recent, one, other)


def test_the_list_is_not_kept_alive() -> None:
    recent, value = Recent(), [dict(each) for each in MANY]
    before = sys.getrefcount(value)
    same(recent, value)
    assert sys.getrefcount(value) == before


@pytest.mark.parametrize("seed", range(3))
def test_the_digest_of_a_text_that_begins_like_the_last_is_that_of_all_of_it(seed: int) -> None:
    pick, spills = random.Random(seed), Spills()
    said = "".join(pick.choices("abcdef", k=70_000))
    stored: dict[str, bytes] = {}
    for n in range(30):
        place = pick.choice([0, 16_383, 16_384, 16_385, 32_768, len(said), pick.randrange(len(said))])
        said = said[:place] + f"{n}" * pick.randrange(30) + said[place + pick.choice([0, 1, 20_000]) :]
        said += "".join(pick.choices("abcdef", k=pick.choice([0, 10, 40_000])))
        if pick.random() < 0.1:
            said = "ä" + said
        reference, blob = spills.spill(said, pick.choice([STATE, "args call"]))
        stored |= {blob[0]: blob[1]} if blob is not None else {}
        assert reference[1:33] == blob_digest(said.encode()), n
        assert reference.endswith(f":{len(said.encode())}")
        name = reference[1:].partition(":")[0]
        assert texts_of(RunId("r"), stored, [name])[name] == said.encode()
