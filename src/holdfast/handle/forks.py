"""Forks of a run, as a caller asks for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.base.data import data
from holdfast.codec import MISSING, coder_of
from holdfast.control import forking
from holdfast.control.forking import Branching, check_wanted, state_of
from holdfast.control.originals import Original, original_of
from holdfast.errors import UsageError
from holdfast.history.forks import ForkPlan, PlannedCalls, plan_of, unread_of
from holdfast.model import RunId, RunRow
from holdfast.store.contract import Store


@data
class Wanted:
    """What a fork is to be."""

    at: int | None = None
    turn: int | None = None
    sets: Mapping[str, Any] | None = None  #: parts of the state, by their paths
    results: Mapping[str, Any] | None = None
    run_id: str | None = None
    thread_id: str | None = None
    state: Any = MISSING

    async def branching(self, store: Store, original: Original) -> Branching:
        """The same, as texts to be stored; UsageError for what this run cannot have."""
        results = {} if self.results is None else self.results
        if not isinstance(results, Mapping):
            raise UsageError(f"fork(results=) takes results by the keys of their calls; got {results!r}.")
        texts = {str(key): coder_of(value).dumps(value, what=f"the result of {key}") for key, value in results.items()}
        how = Branching(await self._state(store, original), texts, self.run_id, self.thread_id)
        check_wanted(original, how)
        return how

    async def _state(self, store: Store, original: Original) -> str | None:
        """Another state, as JSON text; None: as it is."""
        if self.state is not MISSING:
            return coder_of(self.state).dumps(self.state, what="the state")
        if not self.sets:
            return None
        tree = json.loads(await state_of(store, original))
        for path, value in self.sets.items():
            tree = with_value(tree, path.split("."), json.loads(coder_of(value).dumps(value, what=path)), path=path)
        return json.dumps(tree, separators=(",", ":"))


async def plan(store: Store, run_id: RunId, wanted: Wanted) -> ForkPlan:
    """What a fork would be; raises what keeps it from being made."""
    calls = PlannedCalls()
    original = await original_of(store, run_id, at=wanted.at, turn=wanted.turn, see=calls.see)
    how = await wanted.branching(store, original)
    changed = (*(how.results or ()), *(("the state",) if how.state is not None else ()))
    unread = await unread_of(store, original.row, original.part)
    return plan_of(original.row, calls, original.part, unread=unread, changed=changed)


async def fork(store: Store, run_id: RunId, wanted: Wanted, *, by: str | None, note: str) -> RunRow:
    """Make it; its row."""
    original = await original_of(store, run_id, at=wanted.at, turn=wanted.turn)
    return await forking.fork(store, original, await wanted.branching(store, original), by=by, note=note)


def with_value(tree: Any, steps: list[str], value: Any, *, path: str) -> Any:
    """Plain data with another value at a place: names of fields, and numbers of items, as in `history.0.text`."""
    first, *rest = steps
    if isinstance(tree, list) and first.isdecimal() and int(first) < len(tree):
        place = int(first)
        new = value if not rest else with_value(tree[place], rest, value, path=path)
        return [*tree[:place], new, *tree[place + 1 :]]
    if isinstance(tree, dict) and (not rest or first in tree):
        return tree | {first: value if not rest else with_value(tree[first], rest, value, path=path)}
    raise UsageError(f"The state has nothing at {path!r}: there is no {first!r} in {type(tree).__name__}.")
