"""Runs that a run starts: their ids, and how one is started once.

The id follows from the parent and the place of the call there; so a parent that is resumed finds the child it started.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.base import faults
from holdfast.base.data import data
from holdfast.base.system import blake2b
from holdfast.codec import Coder, Input
from holdfast.errors import ConflictingStart, Fenced, UsageError
from holdfast.model import Kind, RunId
from holdfast.running.call import DurableCall
from holdfast.running.cleaning import to_its_end
from holdfast.running.outcomes import remember_key

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

REFUSALS = (ConflictingStart, UsageError)  #: of a start: nothing was started
#: How long the ids of children get, in characters.
LONGEST_CHILD = 120
_MARK, _WHOLE_MARK = 5, 10  # bytes that tell a child from its siblings, and from every other run


class Started(Protocol):
    """The agent of a run that is started."""

    name: str

    @property
    def coder(self) -> Coder[Any]: ...


class Startable(Protocol):
    """An agent with its input: what to run."""

    @property
    def agent(self) -> Started: ...

    @property
    def input(self) -> Input: ...

    def _with_input(self, given: Input) -> Startable: ...


@data
class ChildStart:
    """How a run is started by another one."""

    run_id: str | None = None
    thread_id: str | None = None
    queue: str | None = None
    queue_key: str = ""
    priority: int = 0
    wake_at: int = 0  #: µs
    tags: Mapping[str, str] = field(default_factory=dict)


def child_id(parent: str, place: str) -> RunId:
    """The id of a run that a run starts; `place` names the call, and no other call of any run.

    It says whose child the run is, for as many levels as fit. Below them it says only where the family begins: ids of
    any depth have room for children, and so has every id that a run may be given.
    """
    mark = blake2b(place.encode(), digest_size=_MARK).hexdigest()
    if len(parent) + 1 + len(mark) <= LONGEST_CHILD:
        return RunId(f"{parent}.{mark}")
    whole = blake2b(place.encode(), digest_size=_WHOLE_MARK).hexdigest()
    return RunId(f"{parent[: LONGEST_CHILD - 2 - len(whole)]}..{whole}")


def child_of(run: RunContext, key: str, entry: Entry | None, given: str | None = None) -> RunId:
    """The child that a call started. What is recorded counts, whatever ids are made of, or given, by now."""
    if entry is not None and entry.child is not None:
        return RunId(entry.child)
    if given is not None:
        return RunId(given)
    return child_id(run.id, run.place(key))


async def start_once(
    call: DurableCall[Any], started: Startable, how: ChildStart
) -> tuple[RunId, asyncio.CancelledError | None]:
    """Store the child run unless it is stored; the child, and the cancellation that came meanwhile."""
    run, key, entry = call.run, call.key, call.entry
    child = child_of(run, key, entry, how.run_id)
    if run.spending is not None:
        run.spending.start()
    if entry is None or entry.child is None:
        given = started.input
        payload = json.dumps({"run": child, "defaults": given.defaults})
        run.journal.add(Kind.child, key, call.name, digest=given.given, args=given.text, payload=payload)
    else:  # it may be stored with what it was called with then, whatever the code calls it with by now
        defaults = tuple(json.loads(entry.first.payload or "{}").get("defaults", ()))
        started = started._with_input(Input.read(run.text(entry.args), defaults))

    async def start_durably() -> None:
        await run.journal.barrier()
        faults.point("child.before_start")
        await run.patiently(lambda: run.host.start_child(started, child, parent=run, how=how))
        faults.point("child.after_start")

    try:
        _, cancelled = await to_its_end(run, start_durably())
    except Fenced:
        await run.fenced()
        raise
    except REFUSALS as error:
        raise remember_key(error, key) from None
    return child, cancelled
