"""What is under way in one execution: its tasks, its bodies, its effects.

Whether a run may leave memory, commit on the loop's own thread, or be handed over, follows from this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from holdfast.journal.stillness import Quiet, Stillness
from holdfast.running.life import Branch
from holdfast.running.own_timers import OwnTimers


class Activity:
    """Of one execution."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tasks: dict[asyncio.Task[Any], Branch] = {}
        self.stillness = Stillness(self.tasks)
        self.own_timers = OwnTimers(loop)  #: what the code waits for by itself, and no other process would
        self.lines = 1  #: branches and timeouts that may go on by themselves
        self._executed = 0  # bodies that have ended, in branches that have
        self._works = 0  # what a run must not be parked in the middle of, besides bodies
        self._undelivered = 0  # steps that have ended, and whose outcome waits for its turn
        self.acting = 0  #: effects whose body is under way
        self.threads = 0  #: `def` bodies whose thread lives
        self._apart = 0  # branches that do something between two calls, which takes its time
        self.sagas: list[Any] = []  #: blocks that are open
        self.intents: set[str] = set()  #: effects that may have happened, and whose outcome is not recorded
        self.unsure: set[str] = set()  #: effects that are tried again, and may have happened before
        self.left_in_doubt: set[str] = set()  #: effects that nobody was asked about, because the run was cancelled

    # tasks

    def begin_line(self) -> None:
        """A branch, or what may go on by itself as one does, begins."""
        self.lines += 1

    def end_line(self) -> None:
        self.lines -= 1

    def add(self, task: asyncio.Task[Any], branch: Branch) -> None:
        """The task of a branch was created."""
        self.tasks[task] = branch
        self.stillness.loosen(branch)

    def remove(self, task: asyncio.Task[Any]) -> bool:
        """It has ended; False: that was known."""
        branch = self.tasks.pop(task, None)
        if branch is None:
            return False
        self.add_executed(branch)
        return True

    def quiet(self) -> Quiet:
        """What its tasks are doing, apart from durable calls."""
        now = self.stillness.now()
        return Quiet.outside if self._apart and now is Quiet.settled else now

    @property
    def made(self) -> int:
        """Durable calls that were made and have not returned."""
        return sum(branch.in_call for branch in self.tasks.values())

    def let_go(self) -> None:
        """The execution is over: hold nothing that holds this."""
        self.stillness.let_go()
        for task in [task for task in self.tasks if task.done()]:
            del self.tasks[task]

    # bodies

    @property
    def executed(self) -> int:
        """Bodies that have ended, in this execution."""
        return self._executed + sum(branch.executed for branch in self.tasks.values())

    def add_executed(self, branch: Branch) -> None:
        """A branch has ended."""
        self._executed += branch.executed

    @property
    def is_at_work(self) -> bool:
        """Is a body, a verification or something else under way that the run must not be parked in the middle of?"""
        return self._works > 0 or any(branch.in_body for branch in self.tasks.values())

    @property
    def begun(self) -> int:
        """Steps and effects that have begun, and are not recorded as ended."""
        in_bodies = sum(branch.in_body for branch in self.tasks.values())
        return max(0, in_bodies - self.acting) + self._undelivered + len(self.intents)

    def begin_delivery(self) -> None:
        """A step has ended; its outcome waits for its turn."""
        self._undelivered += 1

    def end_delivery(self) -> None:
        self._undelivered -= 1

    def begin_work(self) -> None:
        self._works += 1

    def end_work(self) -> None:
        self._works -= 1

    @contextmanager
    def busy(self) -> Generator[None, None, None]:
        """Something is under way that the run must not be parked in the middle of."""
        self._works += 1
        try:
            yield
        finally:
            self._works -= 1

    @contextmanager
    def busy_apart(self) -> Generator[None, None, None]:
        """The same, by a branch that is in no call meanwhile."""
        self._apart += 1
        try:
            with self.busy():
                yield
        finally:
            self._apart -= 1

    def begin_thread(self) -> None:
        self.threads += 1

    def end_thread(self) -> None:
        self.threads -= 1

    # effects

    def begin_effect(self) -> None:
        """Its body starts."""
        self.acting += 1

    def end_effect(self) -> None:
        self.acting -= 1

    def may_happen(self, key: str) -> None:
        """An effect is about to be tried, or was, and its outcome is not recorded."""
        self.intents.add(key)

    def is_known(self, key: str) -> None:
        """What became of it is recorded."""
        self.intents.discard(key)

    def may_have_happened(self, key: str) -> None:
        """It is tried again, whatever became of the attempts before."""
        self.unsure.add(key)

    def has_not_happened(self, key: str) -> None:
        """Of the attempts before, that is known."""
        self.unsure.discard(key)

    def leave_in_doubt(self, key: str) -> None:
        """Nobody is asked what became of it."""
        self.left_in_doubt.add(key)
