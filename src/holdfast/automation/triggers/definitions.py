"""Triggers as they are stored, and as people see them.

A trigger is a definition of kind `trigger`. Its body: {"kind", "config", "agent", "where", "queue", "queue_key",
"paused", "mark", "created_at", "received", "matched", "started", "refused", "recent": [{"at", "what", "run",
"detail"}]}, and for files "scanned": None (not yet), {"claimed": µs} (somebody is at it) or {"done": µs}.

The mark is another one whenever a trigger begins to listen to something: an event names the marks of the triggers that
are to hear of it.

Counts are for people: a process that is killed may lose those of its last second. What runs is never lost with them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from holdfast.automation.triggers.sources import without_secrets
from holdfast.base.clock import as_time
from holdfast.base.ids import new_uuid
from holdfast.errors import StoreError, UsageError
from holdfast.model import Act, Definition
from holdfast.store.contract import Store

TRIGGER: Final = "trigger"
#: How many of the last things that happened a trigger remembers.
RECENT: Final = 20

_NAME: Final = re.compile(r"[^\W\d][\w.\- ]{0,79}")
_ATTEMPTS: Final = 200

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TriggerNote:
    """One thing that a trigger did.

    `started`, `known` (the run was started before), `ignored` (the filter says no), `refused` (it can never be a run,
    and is set aside) or `failed` (it is tried again).

    Example: `print(info.recent[-1].what, info.recent[-1].detail)`
    """

    at: datetime
    what: str
    run: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class TriggerInfo:
    """A trigger, and what it did.

    Example: `for info in await app.triggers(): print(info.name, info.received, info.started)`
    """

    name: str
    kind: str  #: `event`, `file` or `nats`
    config: Mapping[str, Any]  #: what it listens to, without passwords
    agent: str
    where: Mapping[str, Any] | None
    queue: str | None
    queue_key: str
    paused: bool
    created_at: datetime
    received: int  #: how many events, files or messages it saw
    matched: int  #: how many of them fit `where`
    started: int  #: how many runs that came to
    refused: int  #: how many can never be a run, and were set aside
    recent: tuple[TriggerNote, ...]  #: the last things that happened, oldest first


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger as stored."""

    name: str
    revision: int
    kind: str
    config: Mapping[str, Any]
    agent: str
    where: Mapping[str, Any] | None
    queue: str | None
    queue_key: str
    paused: bool
    mark: str
    created_at: int
    body: Mapping[str, Any]

    @property
    def orders(self) -> str:
        """What it is to do, without what it did: whoever carries it out starts anew when this changes."""
        return json.dumps([self.kind, self.config, self.agent, self.where, self.queue, self.queue_key])

    @property
    def info(self) -> TriggerInfo:
        return TriggerInfo(
            name=self.name,
            kind=self.kind,
            config=without_secrets(self.config),
            agent=self.agent,
            where=self.where,
            queue=self.queue,
            queue_key=self.queue_key,
            paused=self.paused,
            created_at=as_time(self.created_at),
            received=self.body["received"],
            matched=self.body["matched"],
            started=self.body["started"],
            refused=self.body["refused"],
            recent=tuple(
                TriggerNote(as_time(note["at"]), note["what"], note["run"], note["detail"])
                for note in self.body["recent"]
            ),
        )


def new_body(kind: str, config: Mapping[str, Any], now: int) -> Body:
    return {
        "kind": kind,
        "config": dict(config),
        "agent": "",
        "where": None,
        "queue": None,
        "queue_key": "",
        "paused": False,
        "mark": new_mark(),
        "created_at": now,
        "received": 0,
        "matched": 0,
        "started": 0,
        "refused": 0,
        "recent": [],
        "scanned": None,
    }


def new_mark() -> str:
    return new_uuid().hex[:16]


def checked_name(name: str) -> str:
    """The name of a trigger, which is part of the ids of its runs; UsageError if it cannot be one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name != name.strip():
        raise UsageError(
            f"{name!r} cannot be the name of a trigger: use letters, digits, '_', '-', '.', at most 80, "
            "starting with a letter."
        )
    return name


def body_of(definition: Definition) -> Body:
    """The body of a definition; StoreError if it is not one of ours."""
    try:
        body: object = json.loads(definition.body)
    except ValueError as error:
        raise StoreError(
            f"The stored {definition.kind} {definition.name!r} cannot be read ({error}). "
            "Run `holdfast verify`, then declare it again or restore a backup."
        ) from error
    if not isinstance(body, dict):
        raise StoreError(f"The stored {definition.kind} {definition.name!r} is no object. Restore a backup.")
    return body


def trigger_of(definition: Definition) -> Trigger:
    body = body_of(definition)
    return Trigger(
        name=definition.name,
        revision=definition.revision,
        kind=body["kind"],
        config=body["config"],
        agent=body["agent"],
        where=body["where"],
        queue=body["queue"],
        queue_key=body["queue_key"],
        paused=body["paused"],
        mark=body["mark"],
        created_at=body["created_at"],
        body=body,
    )


async def all_triggers(store: Store) -> list[Trigger]:
    return [trigger_of(definition) for definition in await store.definitions(TRIGGER)]


async def find_trigger(store: Store, name: str) -> Trigger | None:
    found = await store.definitions(TRIGGER, names=[name])
    return trigger_of(found[0]) if found else None


async def change(
    store: Store, name: str, alter: Callable[[Body], Body | None], *, act: Act | None = None
) -> tuple[Trigger | None, bool]:
    """Alter a stored trigger by compare-and-set; what is stored now, and whether it was altered.

    `alter` gets the body and returns the new one, or None to leave it; it is called again when somebody was faster.
    """
    for _ in range(_ATTEMPTS):
        found = await store.definitions(TRIGGER, names=[name])
        if not found:
            return None, False
        body = alter(body_of(found[0]))
        if body is None:
            return trigger_of(found[0]), False
        new = Definition(TRIGGER, name, json.dumps(body), found[0].revision + 1)
        if (await store.define([new], act=act))[0]:
            return trigger_of(new), True
    raise StoreError(f"Trigger {name!r} is changed by others all the time; try again.")


class Tally:
    """Counts what triggers do and writes it into their definitions now and then, for all that happened since."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, Counter[str]] = {}
        self._notes: dict[str, list[Body]] = {}

    def count(self, name: str, *, received: int = 0, matched: int = 0, started: int = 0, refused: int = 0) -> None:
        more = {"received": received, "matched": matched, "started": started, "refused": refused}
        self._counts.setdefault(name, Counter()).update(more)

    def note(self, name: str, what: str, *, at: int, run: str | None = None, detail: str = "") -> None:
        notes = self._notes.setdefault(name, [])
        notes.append({"at": at, "what": what, "run": run, "detail": detail[:500]})
        del notes[:-RECENT]

    async def flush(self) -> None:
        """Write what was counted; what cannot be written now is kept for the next time."""
        for name in sorted({*self._counts, *self._notes}):
            counts, notes = self._counts.pop(name, Counter()), self._notes.pop(name, [])
            try:
                await change(self._store, name, partial(_counted, counts, notes))
            except StoreError:
                self._counts.setdefault(name, Counter()).update(counts)
                self._notes[name] = [*notes, *self._notes.get(name, [])][-RECENT:]
                raise


def _counted(counts: Mapping[str, int], notes: list[Body], body: Body) -> Body:
    for what, more in counts.items():
        body[what] += more
    body["recent"] = sorted([*body["recent"], *notes], key=lambda note: int(note["at"]))[-RECENT:]
    return body
