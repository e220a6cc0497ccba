"""Copies of what workers share by name."""

from __future__ import annotations

import json
from dataclasses import replace

from holdfast.control.upkeep.transfers import Outcome
from holdfast.model import Definition
from holdfast.store.contract import Store
from holdfast.store.extensions import ALL, kind_of

#: What can be had in two stores; what starts runs comes paused.
_DEFINITIONS = ("agent", "queue", "retention", "schedule", "trigger")
_STARTS_RUNS = frozenset({"schedule", "trigger"})
_WORST = (Outcome.there, Outcome.copied, Outcome.conflict)
_AT_ONCE = 200  # documents in a commit


async def copy_definitions(source: Store, target: Store) -> list[tuple[str, str, Outcome]]:
    """Copy agents, queues, rules, schedules and triggers that the target has not; those that start runs, paused."""
    outcomes = await copy_extensions(source, target)
    for kind in _DEFINITIONS:
        known = {each.name: each for each in await target.definitions(kind)}
        for each in await source.definitions(kind):
            body, due_at = _without_haste(each) if kind in _STARTS_RUNS else (each.body, each.due_at)
            if each.name in known:
                same = known[each.name].body in (each.body, body)
                outcomes.append((kind, each.name, Outcome.there if same else Outcome.conflict))
                continue
            (is_new,) = await target.define([Definition(kind, each.name, body, 1, due_at)])
            outcomes.append((kind, each.name, Outcome.copied if is_new else Outcome.conflict))
    return outcomes


async def copy_extensions(source: Store, target: Store) -> list[tuple[str, str, Outcome]]:
    """Copy the documents of extensions that the target has not. A conflict: it has others under the same keys."""
    outcomes: list[tuple[str, str, Outcome]] = []
    for extension in await source.definitions(kind_of(), limit=ALL):
        spaces = await source.definitions(kind_of(extension.name), limit=ALL)
        found = Outcome.there
        for kind in (kind_of(extension.name, space.name) for space in spaces):
            found = max(found, await _copy_documents(source, target, kind), key=_WORST.index)
        await target.define([replace(space, revision=1) for space in spaces])
        await target.define([replace(extension, revision=1)])
        outcomes.append(("extension", extension.name, found))
    return outcomes


async def _copy_documents(source: Store, target: Store, kind: str) -> Outcome:
    found, documents = Outcome.there, await source.definitions(kind, limit=ALL)
    for start in range(0, len(documents), _AT_ONCE):
        page = documents[start : start + _AT_ONCE]
        known = {each.name: each.body for each in await target.definitions(kind, names=[each.name for each in page])}
        if any(known.get(each.name, each.body) != each.body for each in page):
            found = Outcome.conflict
        new = [replace(each, revision=1) for each in page if each.name not in known]
        if new and all(await target.define(new)) and found is Outcome.there:
            found = Outcome.copied
    return found


def _without_haste(definition: Definition) -> tuple[str, int | None]:
    """A schedule or trigger that starts nothing until it is resumed."""
    try:
        body = json.loads(definition.body)
    except ValueError:
        return definition.body, None
    if not isinstance(body, dict):
        return definition.body, None
    body["paused"] = True
    if "firing" in body:
        body["firing"] = []
    return json.dumps(body), None
