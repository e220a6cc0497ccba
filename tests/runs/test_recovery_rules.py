"""The rules for effects in doubt, without any I/O."""

from __future__ import annotations

import itertools

import pytest

from holdfast.journal.recovery import Doubt, OnDoubt, Ruling, rule

ON_DOUBT: dict[OnDoubt, Ruling] = {"ask": Ruling.ask, "retry": Ruling.again, "undo": Ruling.undo, "fail": Ruling.fail}


@pytest.mark.parametrize(("on_doubt", "is_over"), list(itertools.product(ON_DOUBT, (True, False))))
def test_landed_always_counts(on_doubt: OnDoubt, is_over: bool) -> None:
    doubt = Doubt("crash", is_over=is_over, since_us=100)
    assert rule(doubt, verdict="landed", on_doubt=on_doubt, settle_us=50, now_us=100) is Ruling.landed


@pytest.mark.parametrize("on_doubt", ON_DOUBT)
def test_not_landed_counts_only_when_the_attempt_is_over_and_has_settled(on_doubt: OnDoubt) -> None:
    over = Doubt("crash", is_over=True, since_us=100)
    assert rule(over, verdict="not_landed", on_doubt=on_doubt, settle_us=50, now_us=149) is Ruling.verify_later
    assert rule(over, verdict="not_landed", on_doubt=on_doubt, settle_us=50, now_us=150) is Ruling.again
    alive = Doubt("crash", is_over=False, since_us=100)
    assert rule(alive, verdict="not_landed", on_doubt=on_doubt, settle_us=50, now_us=999) is ON_DOUBT[on_doubt]


@pytest.mark.parametrize("on_doubt", ON_DOUBT)
def test_without_a_verdict_the_declared_rule_decides(on_doubt: OnDoubt) -> None:
    doubt = Doubt("crash", is_over=True, since_us=0)
    assert rule(doubt, verdict=None, on_doubt=on_doubt, settle_us=0, now_us=9) is ON_DOUBT[on_doubt]
