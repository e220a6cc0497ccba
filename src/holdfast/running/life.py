"""Whether the code of one execution may still go on: it was cancelled, it ends, it is being given up, it is over.

A durable call of a run that is `halted` asks here before it is made. What is clean-up may be made after a cancellation:
calls made while an exception is being handled, or in a branch that was made then.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.base.shields import Shield, go_on_with
from holdfast.errors import UsageError
from holdfast.journal import stillness
from holdfast.journal.checkpoints import is_turn
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked, HandedOver

_SWALLOWED = 2  # how often code may catch its cancellation and go on, before it is stopped
_IGNORED = 100  # how often code may ignore that its execution is over, before it is left to itself


class Branch(stillness.BranchTask, Protocol):
    """A branch of a run, as far as its run has to know it."""

    path: str
    saga: Any
    cleans_up: bool
    handling: type[BaseException] | None
    in_body: bool
    executed: int
    was_told: bool  #: that the run is cancelled
    owed: asyncio.CancelledError | None

    def enter_call(self) -> bool: ...

    def leave_call(self, was_in_call: bool = False) -> None: ...

    def owe(self, error: asyncio.CancelledError | None) -> None: ...

    def tell(self) -> None: ...


def ignore(*_: object) -> None:
    """What is told to nobody any more."""


class RunLife:
    """Of one execution, from its claim to its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_stop: Callable[[BaseException | None], None]) -> None:
        self.loop = loop
        self._on_stop = on_stop
        self.dead = False
        self.parking = False  #: being given up: nothing that is waited for arrives any more
        self.cancelled = False  #: the code was told to stop
        self.has_returned = False  #: the agent has, or it has raised
        self.ending = False  #: and its branches are being ended
        self.halted = False  #: dead, cancelled or wrong: a durable call has to ask whether it may go on
        self.forgotten: UsageError | None = None  #: the code made a call, and did not await it
        self.stop_reason: Blocked | HandedOver | None = None
        self._ambient: BaseException | None = None  # what is being handled by whoever runs the loop
        self._swallowed = 0
        self._is_torn_down = False
        self._ignored = 0

    def is_dead(self) -> bool:
        return self.dead

    # what happens to it

    def begin(self) -> None:
        """The code starts, in the task that asks."""
        self._ambient = sys.exception()

    def cancel(self) -> None:
        """The code is told to stop."""
        self.cancelled = self.halted = True

    def returned(self) -> None:
        """The agent has returned or raised."""
        self.has_returned = True

    def end(self) -> None:
        """What outlives the agent is told to end."""
        self.ending = True

    def park(self) -> None:
        """It is being given up."""
        self.parking = True

    def go_on(self) -> None:
        """It was not given up after all."""
        self.parking = False

    def die(self) -> None:
        """From here on durable calls neither happen nor return."""
        self.dead = self.halted = True

    def tear_down(self) -> None:
        """Its branches are being ended: those that come here on their way out are let go."""
        self.die()
        self._is_torn_down = True

    def let_go(self) -> None:
        """It is over: hold nothing that holds this."""
        self._on_stop = ignore
        self._ambient = None

    def forget(self, said: str) -> None:
        """The code made a call and did not await it: whatever it calls next, and its end, is told so."""
        self.forgotten = self.forgotten or UsageError(said)
        self.halted = True

    def leave(self, reason: Blocked | HandedOver | None) -> None:
        """Why it does not go on here, in place of whatever was said before."""
        self.stop_reason = reason

    def stop(self, error: BaseException | None = None) -> None:
        """The run was lost, or does not go on here."""
        self._on_stop(error)

    async def block(self, reason: Blocked) -> Any:
        """This code cannot go on with this journal: stop the run, execute nothing more."""
        self.refuse(reason)
        return await self.never()

    def refuse(self, reason: Blocked) -> None:
        """It ends here: whatever the code still calls does not return."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self._on_stop(None)

    async def lose(self) -> Any:
        """Somebody else owns the run: this execution has nothing more to say."""
        self._on_stop(None)
        return await self.never()

    async def never(self) -> Any:
        """Wait for the end of this execution: the branch is being torn down."""
        if self._is_torn_down and self._ignored < _IGNORED:
            self._ignored += 1
            raise asyncio.CancelledError("this execution is over")  # a `finally` may come here on its way out
        await self.loop.create_future()

    # clean-up: what no cancellation cuts off

    def handled(self) -> type[BaseException] | None:
        """What the code is handling that asks; of the task that it runs in, not of whoever runs the loop."""
        error = sys.exception()
        return None if error is None or error is self._ambient else type(error)

    def is_unwinding(self, handling: type[BaseException] | None) -> bool:
        """Does code that handles such an exception clean up?"""
        return handling is not None and (issubclass(handling, asyncio.CancelledError) or self.cancelled or self.ending)

    def is_clean_up(self, branch: Branch) -> bool:
        """Is the call that this branch made last one that goes on to its end, whoever cancels it?"""
        return branch.cleans_up or self.is_unwinding(branch.handling)

    def owe(self, branch: Branch, shield: Shield) -> None:
        """Clean-up has kept a cancellation. The one that is being handled goes on; if the code drops it, this comes."""
        if shield.kept is not None:
            branch.owe(shield.kept)
            self.halted = True
            go_on_with(shield.handled, shield.kept)

    async def check(self, branch: Branch, handling: type[BaseException] | None) -> None:
        """Called for durable calls of a halted run, made in code that handles this: returns if one may be made."""
        if self.dead:
            await self.never()
        if branch.owed is not None and handling is None and not branch.cleans_up:
            owed = branch.owed
            branch.owe(None)
            if branch.task is not None and branch.task.cancelling():
                raise owed
        if self.forgotten is not None and not branch.cleans_up and handling is None:
            raise UsageError(str(self.forgotten))
        if self.cancelled and not branch.cleans_up and handling is None:
            # The code caught its cancellation and goes on: it is told again, then stopped for good. Other branches
            # than the agent's own hear of it here, and may have something to undo.
            self._swallowed += branch.was_told or is_turn(branch.path)
            branch.tell()
            if self._swallowed > _SWALLOWED:
                await self.block(Blocked(Trouble(Cause.cancelled)))
            raise asyncio.CancelledError("this run was cancelled")
