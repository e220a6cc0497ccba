"""The reading half of a store's contract, as texts: for who looks at a store through a server.

A look is a method of `Store`, or of its surveys, that changes nothing. What goes over the line is the arguments and the
result in the one format that values are stored in, so that a row arrives as it was read: whoever has it checks its
digest as if the store were here. What a look takes and gives is read off the contract; both sides are of one version.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final, get_type_hints

from holdfast.base.data import data
from holdfast.codec import Coder, coder_for
from holdfast.errors import Undecodable, UsageError
from holdfast.store.contract import Store
from holdfast.store.surveys import Surveys

#: Most items that a look gives at once, and most names that it takes.
MOST: Final = 10_000

_SURVEYS: Final = "surveys."
LOOKS: Final = frozenset(
    {
        "blobs", "check", "checkpoints", "chunks", "dead_workers", "definitions", "ended_agents", "family_use",
        "known_chunks", "load_many", "mail", "mail_of_numbers", "messages", "notes", "questions", "queue_counts",
        "records", "run", "runs", "schema", "statistics", "thread", "threads", "whole", "workers",
        "surveys.acts", "surveys.agents", "surveys.open_questions", "surveys.outline", "surveys.owned_counts",
        "surveys.questions", "surveys.record",
    }
)  # fmt: skip


@data
class Look:
    """One of them."""

    name: str
    takes: Mapping[str, Coder[Any]]
    gives: Coder[Any]
    order: tuple[str, ...]  #: of its parameters
    needs: frozenset[str]  #: those that must be given
    is_endless: bool  #: unless it is told how many

    def asked(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """What a caller gave it, as plain JSON."""
        given = dict(zip(self.order, args, strict=False)) | dict(named)
        return {each: json.loads(self.takes[each].dumps(_bare(value), what=each)) for each, value in given.items()}

    def read(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The same, to call it with; UsageError for what it does not take."""
        given: dict[str, Any] = {}
        for each, value in asked.items():
            if each not in self.takes:
                raise UsageError(f"{self.name} takes no {each[:100]!r}.")
            try:
                given[each] = self.takes[each].loads(json.dumps(value))
            except Undecodable as error:
                raise UsageError(f"{each}: {error}") from None
        if missing := sorted(self.needs - given.keys()):
            raise UsageError(f"{self.name} takes {', '.join(missing)}.")
        if self.is_endless and given.get("limit") is None:
            raise UsageError(f"limit: {self.name} takes one, at most {MOST:,}.")
        _check_bounds(given)
        return given

    async def result(self, store: Store, given: Mapping[str, Any]) -> str:
        """What a store gives, as text; UsageError for what no store can be asked."""
        owner: Any = store.surveys if self.name.startswith(_SURVEYS) else store
        try:
            found = await getattr(owner, self.name.removeprefix(_SURVEYS))(**given)
        except (OverflowError, ValueError) as error:  # a number or a text that a database does not have
            raise UsageError(f"{self.name} cannot be asked that: {error}") from None
        return self.gives.dumps(found, what=self.name)


@cache
def look_of(name: str) -> Look:
    """The look with this name; UsageError if there is none."""
    if name not in LOOKS:
        raise UsageError(f"There is no look {name[:100]!r}.")
    owner = Surveys if name.startswith(_SURVEYS) else Store
    method = getattr(owner, name.removeprefix(_SURVEYS))
    hints = get_type_hints(method)
    parameters = {each: given for each, given in inspect.signature(method).parameters.items() if each != "self"}
    default = parameters["limit"].default if "limit" in parameters else 0
    is_endless = default is None or (isinstance(default, int) and default > MOST)
    takes = {each: coder_for(hints[each]) for each in parameters}
    needs = frozenset(each for each, parameter in parameters.items() if parameter.default is parameter.empty)
    return Look(name, takes, coder_for(hints["return"]), tuple(parameters), needs, is_endless)


def _bare(value: Any) -> Any:
    """A name of a closed set is a text to a store."""
    return value.value if isinstance(value, StrEnum) else value


def _check_bounds(given: Mapping[str, Any]) -> None:
    for each, value in given.items():
        limit = value if each == "limit" else getattr(value, "limit", 0)
        if isinstance(limit, int) and not 0 <= limit <= MOST:
            raise UsageError(f"{each}: at most {MOST:,} at once.")
        if isinstance(value, list | tuple) and len(value) > MOST:
            raise UsageError(f"{each}: at most {MOST:,} at once.")
