"""A recorded result that is None, zero or empty is a result: it is never asked for again."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing import Life, assert_survives
from tests.crash import falsy
from tests.crash.agents import World

POINTS = ["effect.before_intent", "effect.after_outcome", "finish.*"]


def test_nothing_falsy_is_executed_again_once_it_is_recorded() -> None:
    def check(life: Life) -> None:
        acted = World(life.folder).values("effect")
        assert sorted(map(str, acted)) == sorted(map(str, range(len(falsy.VALUES)))), acted

    survival = assert_survives(falsy.everything(), points=POINTS, check=check)
    print(survival)
    assert survival.kills >= 2 * len(falsy.VALUES)


@pytest.mark.parametrize("n", range(len(falsy.VALUES)), ids=[repr(value) for value in falsy.VALUES])
def test_a_run_that_returns_it_is_done_and_not_run_again(n: int, tmp_path: Path) -> None:
    url, calls = str(tmp_path / "store.db"), tmp_path / "calls"
    for _ in range(2):
        result = hf.run(falsy.returns(n, str(calls)), id="r", url=url)
        assert (type(result), result) == (type(falsy.VALUES[n]), falsy.VALUES[n])
    assert calls.read_text() == "called\n"
