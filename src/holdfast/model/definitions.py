"""What a store has besides runs: definitions that workers share by name, its schema, who can read along."""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.data import data


@data
class Definition:
    """Something that workers share by name: an agent, a queue, a schedule, a trigger, an event, a retention.

    Written by compare-and-set: `revision` is one more than that of the row it replaces, 1 for a new one.
    """

    kind: str
    name: str
    body: str  #: JSON text
    revision: int
    due_at: int | None = None  #: when somebody has to look at it, µs


class Privacy(StrEnum):
    """Who can read along between this process and the server of a store, or the pooler in front of it."""

    verified = "verified"  #: nobody: encrypted, and the server has shown that it is the one that was meant
    unverified = "unverified"  #: whoever puts themselves in the server's place
    local = "local"  #: nobody: it does not leave this machine
    clear = "clear"  #: whoever is on the way


@data
class SchemaStep:
    """A migration, and when it was applied, if it was."""

    number: int
    name: str
    applied_at: int | None
