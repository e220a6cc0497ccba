"""Differences between texts: exact to the character, small, and never worse than an error when they are damaged."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec import blob_digest
from holdfast.codec.differences import Difference, DifferenceChain, apply, difference, is_difference, restore
from holdfast.errors import Undecodable

_LOG = logging.getLogger(__name__)


def text_of(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def digest_of(text: str) -> str:
    return blob_digest(text.encode("utf-8", "surrogatepass"))


def check_exact(old: str, new: str) -> bool:
    """Whether there is a difference; if so, it makes the new text, and is smaller."""
    found = difference(old, new)
    if found is None:
        return False
    stored = found.dumps()
    assert is_difference(stored)
    assert Difference.loads(stored) == found
    assert apply(old, stored, digest=digest_of(new)) == new
    assert len(stored) < len(new)
    return True


# Values and changes of them. Members are kept as text, so that a text is made by joining them.

_STRINGS = ["", "a", "$", "é", "€uro", "\U0001f600", "\ud800", '"', "\\", "\n\t", "},{", '","', "\x7f", "null", "1"]
_WORDS = "the of and to in is that for it as was with be by on not he his but at are this have from or had an".split()


class Scribe:
    """Makes texts of JSON, and others that differ from them a little, from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.changes: list[Callable[[list[str]], None]] = [
            self.append,
            self.cut_front,
            self.slide,
            self.change,
            self.insert,
            self.remove,
            self.reorder,
            self.double,
            self.grow,
            self.retype,
        ]

    def string(self) -> str:
        pick = self.random
        if pick.random() < 0.4:
            return pick.choice(_STRINGS)
        return " ".join(pick.choices(_WORDS, k=pick.choice((3, 12, 40, 120))))

    def member(self) -> str:
        pick = self.random.random()
        if pick < 0.3:
            return self.random.choice(("1", "true", "1.0", "null", "0", "-1e-07", "[]", "{}", "12345678901234567890"))
        if pick < 0.6:
            return text_of(self.string())
        if pick < 0.9:
            return f'{{"role":"user","content":{text_of(self.string())},"n":{self.random.randrange(1000)}}}'
        return text_of({self.string(): [self.string()] * self.random.randrange(3)})

    def members(self) -> list[str]:
        return [self.member() for _ in range(self.random.randrange(30))]

    def place(self, members: list[str]) -> int:
        return self.random.randrange(len(members) + 1)

    def append(self, members: list[str]) -> None:
        members += [self.member() for _ in range(self.random.randrange(1, 3))]

    def cut_front(self, members: list[str]) -> None:
        del members[: self.random.randrange(1, 4)]

    def slide(self, members: list[str]) -> None:
        self.cut_front(members)
        self.append(members)

    def change(self, members: list[str]) -> None:
        if members:
            members[self.place(members) - 1] = self.member()

    def insert(self, members: list[str]) -> None:
        members.insert(self.place(members), self.member())

    def remove(self, members: list[str]) -> None:
        at = self.place(members)
        del members[at : at + 1]

    def reorder(self, members: list[str]) -> None:
        at = self.place(members)
        members[:] = members[at:] + members[:at]

    def double(self, members: list[str]) -> None:
        at = self.place(members)
        members += members[at : at + 3]

    def grow(self, members: list[str]) -> None:
        if members:
            at = self.place(members) - 1
            members[at] = members[at].replace('"}', f'{self.string().encode("ascii", "ignore").decode()}"}}')

    def retype(self, members: list[str]) -> None:
        swap = {"1": "true", "true": "1.0", "1.0": "1", "0": "false", "null": "0"}
        members[:] = [swap.get(member, member) for member in members]

    def pair(self) -> tuple[str, str]:
        """Two texts of the same shape: a list, or an object with counters around a list, with keys in any order."""
        members = self.members()
        shape, count = self.random.random(), self.random.randrange(100)
        old = self.whole(members, shape, count)
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            self.random.choice(self.changes)(members)
        if self.random.random() < 0.1:
            shape = self.random.random()
        if self.random.random() < 0.02:
            members = self.members()
        return old, self.whole(members, shape, count + self.random.randrange(3))

    def whole(self, members: list[str], shape: float, count: int) -> str:
        listed = f"[{','.join(members)}]"
        if shape < 0.3:
            return listed
        keys = [f'"n":{count}', f'"history":{listed}', f'"last":{float(count)}']
        if shape < 0.4:
            keys.reverse()
        inner = f"{{{','.join(keys)}}}"
        return inner if shape < 0.8 else f'{{"state":{inner},"turn":{count}}}'


def check_pairs(seed: int, count: int) -> int:
    scribe = Scribe(seed)
    return sum(check_exact(*scribe.pair()) for _ in range(count))


@pytest.mark.parametrize("seed", range(4))
def test_what_changed_gives_the_new_text_to_the_character(seed: int) -> None:
    assert check_pairs(seed, 4000) > 2000


@pytest.mark.prove
@pytest.mark.timeout(0)
def test_a_million_changes_are_exact() -> None:
    found = 0
    for chunk in range(100):
        found += check_pairs(1000 + chunk, 10_000)
        _LOG.info("%s of 1,000,000 changes, %s differences", f"{(chunk + 1) * 10_000:,}", f"{found:,}")
    assert found > 500_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(
    JSON,
    JSON,
    st.lists(JSON, max_size=3),
    st.sampled_from(["abc" * 99, "é\n" * 99, "\ud800" * 99, " ".join(_WORDS) * 3]),
)
def test_any_values_around_a_common_one_are_exact(one: Any, two: Any, more: list[Any], common: str) -> None:
    listed = [common, one, common[::-1]]
    check_exact(text_of(one), text_of(two))
    assert check_exact(text_of({"n": 1, "l": listed}), text_of({"n": True, "l": listed}))
    check_exact(text_of({"n": 1, "l": [*listed, *more]}), text_of({"l": [two, *listed], "n": 1.0}))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "ab" * 20, "x" * 50, "é" * 30, "\ud800", "\U0001f600" * 9]), max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5), st.sampled_from(["", "a", "b" * 30, "€" * 30]))),
)
def test_texts_that_repeat_themselves_are_exact(pieces: list[str], edits: list[tuple[int, int, str]]) -> None:
    old = "".join(pieces)
    for place, length, text in edits:
        pieces[place : place + length] = [text]
    new = "".join(pieces)
    check_exact(old, new)
    pairs = enumerate(zip(old, new, strict=False))
    common = next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))
    for alike in (common // 2, common):  # whether it is known or found makes no difference
        assert difference(old, new, alike=alike) == difference(old, new)


def test_no_text_is_too_short() -> None:
    for old in ("", "1", "[]"):
        for new in ("", "1", "[1]"):
            check_exact(old, new)
    assert difference("", "x" * 100) is None
    assert difference("1", "true") is None


# Small: what is stored grows with what is new.


def messages(count: int, size: int, *, seed: int = 5) -> list[dict[str, Any]]:
    pick = random.Random(seed)
    words = ["".join(pick.choices("abcdefghijklmnopqrstuvwxyz", k=pick.randrange(2, 9))) for _ in range(2000)]
    return [
        {"role": pick.choice(("user", "assistant")), "content": " ".join(pick.choices(words, k=size // 6))[:size]}
        for _ in range(count)
    ]


def stored_sizes(values: Iterable[Any]) -> int:
    """What the texts of values take, stored one after the other; each of them is read back."""
    chain, old, total = DifferenceChain(), None, 0
    rows: list[str] = []
    for number, value in enumerate(values):
        new = text_of(value)
        stored, chain = chain.following(old, new)
        rows = [*rows, stored] if is_difference(stored) else [stored]
        total += len(stored)
        assert sum(map(len, rows)) <= 3 * len(new) + 4096
        if number % 50 == 0 or not is_difference(stored):
            assert restore(rows[0], rows[1:], digest=digest_of(new)) == new
        old = new
    return total


SHAPES: list[Callable[[list[Any], int], Any]] = [
    lambda listed, n: listed,
    lambda listed, n: {"history": listed, "n": n},
    lambda listed, n: {"n": n, "cost": n / 7, "history": listed, "m": n * 3, "draft": "x" * (n % 9)},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_chat_that_grows_takes_what_its_messages_take(shape: Callable[[list[Any], int], Any]) -> None:
    said = messages(500, 2000)
    assert stored_sizes(shape(said[:n], n) for n in range(1, 501)) <= 1.1 * len(text_of(said))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_last_messages_of_a_chat_take_less_than_twice_what_is_new(shape: Callable[[list[Any], int], Any]) -> None:
    said = messages(500, 2000)
    assert stored_sizes(shape(said[max(0, n - 50) : n], n) for n in range(1, 501)) <= 1.6 * len(text_of(said))


def test_small_messages_cost_no_more_than_twice_and_a_half() -> None:
    said = messages(1000, 300)
    assert stored_sizes({"n": n, "history": said[:n]} for n in range(1, 1001)) <= 2.5 * len(text_of(said))


def test_a_counter_in_a_large_state_takes_next_to_nothing() -> None:
    said = messages(100, 2000)
    assert stored_sizes({"n": n, "history": said, "z": n} for n in range(1000)) <= len(text_of(said)) * 3 + 600 * 1000


def test_values_that_have_nothing_in_common_are_stored_whole() -> None:
    sizes = [len(text_of(messages(20, 500, seed=seed))) for seed in range(20)]
    assert stored_sizes(messages(20, 500, seed=seed) for seed in range(20)) == sum(sizes)


SAID = messages(60, 800)
CHANGES: dict[str, tuple[Any, Any, int]] = {
    "nothing": (SAID, SAID, 40),
    "one more": (SAID[:-1], SAID, 1000),
    "one less": (SAID, SAID[:-1], 60),
    "cut at the front": ({"n": 7, "l": SAID}, {"n": 8, "l": SAID[20:]}, 100),
    "removed inside": ({"n": 7, "l": SAID}, {"n": 8, "l": SAID[:30] + SAID[31:]}, 100),
    "inserted inside": ({"n": 7, "l": SAID[:30] + SAID[31:]}, {"n": 8, "l": SAID}, 1000),
    "one changed": ({"n": 7, "l": SAID}, {"n": 8, "l": [*SAID[:30], SAID[0], *SAID[31:]]}, 1000),
    "a flag in each": ([{**m, "seen": False} for m in SAID], [{**m, "seen": True} for m in SAID], 60 * 20),
    "text that grew": ({"a": 1, "draft": "xy" * 9999, "b": 1}, {"a": 2, "draft": "xy" * 9999 + "z", "b": 2}, 80),
    "keys in another order": ({"a": SAID[:30], "b": SAID[30:]}, {"b": SAID[30:], "a": SAID[:30]}, 100),
    "a new key": ({"a": SAID, "c": SAID[0]}, {"a": SAID, "b": True, "c": SAID[0]}, 80),
    "1, True and 1.0": ({"n": 1, "l": SAID, "m": True}, {"n": 1.0, "l": SAID, "m": 1}, 80),
    "two levels down": ({"a": {"n": 1, "l": SAID[:-1]}, "b": 1}, {"a": {"n": 2, "l": SAID}, "b": 2}, 1000),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_takes_what_is_new(name: str) -> None:
    old, new, most = CHANGES[name]
    assert check_exact(text_of(old), text_of(new))
    found = difference(text_of(old), text_of(new))
    assert found is not None
    assert len(found.dumps()) <= most


def test_a_row_of_differences_gives_each_text() -> None:
    scribe = Scribe(77)
    members = [scribe.member() for _ in range(40)]
    whole = scribe.whole(members, 0.5, 0)
    old, changes = whole, list[str]()
    for n in range(500):
        scribe.random.choice(scribe.changes)(members)
        while len(members) < 20:
            scribe.append(members)
        del members[60:]
        new = scribe.whole(members, 0.5, n)
        found = difference(old, new)
        if found is None:
            whole, changes = new, []
        else:
            changes.append(found.dumps())
        old = new
        assert restore(whole, changes) == new


# Damage.

OLD, NEW = text_of({"n": 1, "l": SAID[:2]}), text_of({"n": 2, "l": SAID[1:3], "m": "é"})


def stored_difference() -> str:
    found = difference(OLD, NEW)
    assert found is not None
    return found.dumps()


def test_every_character_that_flips_is_noticed() -> None:
    stored, mark = stored_difference(), digest_of(NEW)
    for place, character in enumerate(stored):
        for bit in range(8):
            other = chr(ord(character) ^ 1 << bit)
            with pytest.raises(Undecodable):
                apply(OLD, stored[:place] + other + stored[place + 1 :], digest=mark)


def test_every_truncation_is_noticed() -> None:
    stored = stored_difference()
    for place in range(len(stored)):
        with pytest.raises(Undecodable):
            apply(OLD, stored[:place])
    with pytest.raises(Undecodable, match="more text than parts"):
        apply(OLD, stored + "x")


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "~",
        "~1",
        "{}",
        "~2 3 3 0+3\n",
        "~1 3 3 0+3",
        "~1 3 3 \n",
        "~1 3 3 0+4\n",
        "~1 3 4 0+3\n",
        "~1 3 3 1+3\n",
        "~1 3 3 -1+3\n",
        "~1 3 3 0+1+2\n",
        "~1 3 3 +3\n",
        "~1 3 3 0+\n",
        "~1 3 3 0+3,\n",
        "~1 3 3 0+3,0\n",
        "~1 3 3 0+0,0+3\n",
        "~1 3 6 0+3,3\nab",
        "~1 3 6 0+3,3\nabcd",
        "~1 4 4 0+4\n",
        "~1 ３ 3 0+3\n",
        "~1 3 999999999999 " + "0+3," * 1000 + "0+3\n",
        "~1 3 99999999999999999999 0+3\n",
        "~1 3 3 " + "9" * 100_000 + "+3\n",
        "~1 3 3 " + "+" * 100_000 + "\n",
        "~1 3 3 " + "," * 100_000 + "\n",
    ],
)
def test_what_is_no_difference_is_refused(stored: str) -> None:
    with pytest.raises(Undecodable):
        apply("123", stored)


def test_a_difference_makes_no_more_than_it_may() -> None:
    bomb = "~1 100 1000000 " + ",".join(["0+100"] * 10_000) + "\n"
    assert len(apply("x" * 100, bomb)) == 1_000_000
    with pytest.raises(Undecodable, match="more than 999,999 characters"):
        apply("x" * 100, bomb, limit=999_999)


def test_a_row_of_differences_makes_no_more_than_it_may_on_the_way_either() -> None:
    bombs = [f"~1 {10**n} {10 ** (n + 1)} {','.join([f'0+{10**n}'] * 10)}\n" for n in range(2, 12)]
    with pytest.raises(Undecodable, match="characters, as none of ours has"):
        restore("x" * 100, bombs)


def test_a_difference_to_another_text_is_noticed() -> None:
    stored = stored_difference()
    with pytest.raises(Undecodable, match=f"and the stored one has {len(OLD) - 1:,}"):
        apply(OLD[1:], stored)
    with pytest.raises(Undecodable, match="not the text that was stored"):
        apply(OLD.replace("a", "b"), stored, digest=digest_of(NEW))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="~1 0123456789+,\nab", max_size=60))
def test_no_text_does_more_than_raise(stored: str) -> None:
    for text in (stored, f"~1 3 3 {stored}", f"~1 3 5 0+3,2\n{stored}"):
        try:
            assert len(apply("abc", text)) <= 10**6
        except Undecodable:
            continue
