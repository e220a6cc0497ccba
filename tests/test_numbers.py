"""Numbers as ranges are the set of numbers that they stand for."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.numbers import Numbers

CHANGES = st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60)


@given(CHANGES)
def test_they_are_what_a_set_would_be(changes: list[tuple[bool, int]]) -> None:
    numbers, expected = Numbers(), set[int]()
    for is_added, number in changes:
        (numbers.add if is_added else numbers.discard)(number)
        (expected.add if is_added else expected.discard)(number)
        assert list(numbers) == sorted(expected)
    assert (len(numbers), bool(numbers)) == (len(expected), bool(expected))
    assert [number for number in range(14) if number in numbers] == sorted(expected)
    again = Numbers.of(json.loads(json.dumps(numbers.plain())))
    assert (list(again), again.plain()) == (list(numbers), numbers.plain())


def test_those_that_follow_each_other_are_two_numbers() -> None:
    assert Numbers(range(5, 100_000)).plain() == [[5, 99_999]]
    assert Numbers([9, 2, 4, 3]).plain() == [[2, 4], 9]
    assert list(Numbers.of([1, 2, 5])) == [1, 2, 5], "as they were written one by one"


@pytest.mark.parametrize("bad", [[[3, 2]], [2, 2], [[1, 4], 3], [[1, 2, 3]], ["x"]])
def test_what_is_out_of_order_is_refused(bad: list[int | list[int]]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Numbers.of(bad)
