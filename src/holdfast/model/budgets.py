"""Budgets: what a run, and all that comes of it, may use; and what it has used."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from holdfast.base.data import data
from holdfast.errors import UsageError

#: In the summary of a run that has a budget: its limits, by name.
BUDGET: Final = "budget"
#: In the summary of a run that came of others which have a budget: their ids, the nearest first.
BUDGETS: Final = "budgets"

_NAMES: Final = ("tokens", "cost", "steps")
#: Sums of money do not come out even: ten times 0.1 is not 1.0.
_SLACK: Final = 1e-9


@data
class Budget:
    """What a run may use, with all that comes of it: children, and runs that it starts. What is None has no limit.

    `tokens` and `cost` are what `hf.usage` reports, `steps` the steps and effects that have ended. Before a new body or
    child the run compares; at the limit it is `blocked`, until somebody raises it. It can be exceeded by what was under
    way then. A limit of 0 lets nothing begin.

    Example: `@hf.agent(budget=hf.Budget(cost=5.0, steps=200))`
    """

    tokens: int | None = None
    cost: float | None = None
    steps: int | None = None

    def checked(self, what: str) -> Budget:
        """This one, if it makes sense; else UsageError."""
        for name in _NAMES:
            value = getattr(self, name)
            if value is None:
                continue
            is_whole = name == "cost" or isinstance(value, int)
            if isinstance(value, bool) or not isinstance(value, int | float) or not is_whole:
                kind = "a number" if name == "cost" else "a whole number"
                raise UsageError(f"{what}: {name}= takes {kind}; got {value!r}.")
            if not isfinite(value) or value < 0:
                raise UsageError(f"{what}: {name}= takes a number that is not negative; got {value!r}.")
        if self == _NO_LIMIT:
            raise UsageError(f"{what}: give at least one of tokens=, cost= and steps=.")
        return self

    def plain(self) -> dict[str, Any]:
        """As it is stored: the limits that there are."""
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None}

    @classmethod
    def read(cls, said: object) -> Budget | None:
        """One that was stored; None if there is none."""
        if not isinstance(said, Mapping):
            return None
        known = {name: said[name] for name in _NAMES if isinstance(said.get(name), int | float)}
        return cls(**known) if known else None


_NO_LIMIT: Final = Budget()


@data
class Used:
    """What was used."""

    tokens: int = 0
    cost: float = 0.0
    steps: int = 0

    def __add__(self, other: Used) -> Used:
        return Used(self.tokens + other.tokens, self.cost + other.cost, self.steps + other.steps)

    def __sub__(self, other: Used) -> Used:
        return Used(self.tokens - other.tokens, self.cost - other.cost, self.steps - other.steps)

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Used:
        """What the row of a run says that it has used itself."""
        return cls(
            int(summary.get("input_tokens", 0)) + int(summary.get("output_tokens", 0)),
            float(summary.get("cost", 0.0)),
            int(summary.get("steps", 0)) + int(summary.get("effects", 0)),
        )


@data
class FamilyUse:
    """What the runs that came of one with a budget have used, and that one itself, without the run that asks."""

    limit: Budget | None  #: of the one with the budget, as its row has it
    used: Used
    runs: int  #: how many these are
    live: int  #: how many of them have not ended


@data
class Reached:
    """A limit that leaves nothing for a new body."""

    what: str  #: tokens, cost or steps
    limit: float
    used: float


def reached(limit: Budget, used: Used) -> Reached | None:
    """The first limit that is reached; None: there is something left of each."""
    for name in _NAMES:
        most = getattr(limit, name)
        if most is not None and getattr(used, name) >= most * (1 - _SLACK):
            return Reached(name, most, getattr(used, name))
    return None


def is_within_share(limit: Budget, used: Used, *, since: Used, of: int) -> bool:
    """May a run go on with what it knows of its family, having used `since` since it looked?

    It may use half of its share of what was left, so that many at once do not exceed it by what they do not know of
    each other. Near the limit that is nothing, and it looks before each body.
    """
    for name in _NAMES:
        most = getattr(limit, name)
        if most is not None:
            left = most - (getattr(used, name) - getattr(since, name))
            if getattr(since, name) > left / (2 * of):
                return False
    return True


def raised(limit: Budget | None, given: Budget) -> Budget:
    """The limit with those that are given in place of what it had."""
    return Budget(**((limit.plain() if limit is not None else {}) | given.plain()))
