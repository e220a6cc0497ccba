"""What workers share under a name: queues, schedules, triggers. Finding one, and doing something to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from holdfast.app import Holdfast
from holdfast.cli.clients import with_app
from holdfast.cli.failure import NOT_FOUND, Failure
from holdfast.cli.setup import Setup
from holdfast.cli.text import clean, to_json


class Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def named(defined: Sequence[N], sort: str, name: str) -> N:
    """The one of this name, of a `sort` of things."""
    for each in defined:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in defined) or "none"
    raise Failure(f"There is no {sort} {name!r}; there are: {known}.", NOT_FOUND)


def act_on(setup: Setup, thing: str, name: str, *, becomes: str, act: Callable[[Holdfast], Awaitable[object]]) -> int:
    """Have something done to it, and say what it is now."""
    with_app(setup, act)
    text = clean(f"{thing.capitalize()} {name} is {becomes}.", one_line=True)
    print(to_json({"name": name, "state": becomes}) if setup.is_json else text)
    return 0
