"""Where the code of one execution is in its loop: before it, or in a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.journal.checkpoints import turn_path
from holdfast.running.life import Branch


class Turning:
    """Of one execution."""

    def __init__(self) -> None:
        self.turn = 0  #: 0: it is before the loop, or has none
        self.has_loop = False  #: there is one in a run
        self.main: Branch | None = None  #: the branch of the agent itself
        self.keys: set[str] = set()  #: that the code has named calls with, in this turn
        self._state: Callable[[], Any] | None = None

    def begin(self, main: Branch) -> None:
        """This is the branch of the agent itself."""
        self.main = main

    def let_go(self) -> None:
        """The execution is over."""
        self.main = self._state = None

    def begin_loop(self) -> None:
        """The code has come to its loop."""
        self.has_loop = True

    def begin_turn(self, turn: int, state: Callable[[], Any]) -> None:
        """The code is in this turn from here on; `state` reads that of its head."""
        self.turn, self._state = turn, state
        self.keys.clear()

    def state(self) -> Any:
        """With which the turn began, read anew; None before the loop."""
        return None if self._state is None else self._state()

    def named(self, explicit_key: str) -> str:
        """The key of a call that the code names itself: once per turn."""
        return f"{turn_path(self.turn)}/{explicit_key}" if self.turn else explicit_key
