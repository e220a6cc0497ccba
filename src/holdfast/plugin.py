"""The pytest plugin `holdfast`, known to pytest once Holdfast is installed: a store, a clock and kills for tests.

    def test_it_is_sent_once(holdfast):
        assert holdfast.run(newsletter("tides"), id="issue-7") == "sent"

Nothing of Holdfast is loaded before a test asks for one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from holdfast.app.app import Holdfast
    from holdfast.testing import Clock
    from holdfast.testing.survival import Survival
    from holdfast.verbs.agent import Agent, Call

R = TypeVar("R")


class Store:
    """A store of the test's own. `url` names it."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "holdfast.db")

    def run(self, call: Call[R], *, id: str | None = None) -> R:
        """As `hf.run`, in this store; called again with the same id, it goes on.

        Example: `assert holdfast.run(newsletter("tides"), id="issue-7") == "sent"`
        """
        from holdfast import run

        return run(call, id=id, url=self.url)

    def connect(self, *agents: Agent[..., Any]) -> Holdfast:
        """As `hf.connect`, to this store.

        Example: `async with holdfast.connect(newsletter) as app: ...`
        """
        from holdfast import connect

        return connect(self.url, agents=agents)

    def check(self) -> None:
        """Fail if the store breaks a promise; the plugin does so when the test is over.

        Example: `holdfast.check()`
        """
        from holdfast.testing import check_history

        if Path(self.url).exists():
            assert check_history(self.url) == []


@pytest.fixture
def holdfast(tmp_path: Path) -> Any:
    """A fresh store; its histories are checked when the test is over."""
    store = Store(tmp_path)
    yield store
    store.check()


@pytest.fixture
def holdfast_clock() -> type[Clock]:
    """The clock for tests: `async with holdfast_clock(app) as clock: await clock.skip(days=7)`."""
    from holdfast.testing import Clock

    return Clock


@pytest.fixture
def assert_survives() -> Callable[..., Survival]:
    """`holdfast.testing.assert_survives`: an agent is killed at every crash point, and must come to the same end."""
    from holdfast.testing import assert_survives as survives

    return survives
