"""The gate that new bodies pass: a pause, a closing process, a cancellation on its way and an interrupt shut it.

Where a run has a budget or guards, each body that passes pays a toll: something is looked at before it begins. Most
runs have neither, and an open gate costs them one comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.base.data import brisk
from holdfast.journal.replay import Entry
from holdfast.running.life import Branch, RunLife, ignore

Toll = Callable[[], Awaitable[None]]

HANDLER = "hf:interrupt"  #: the branches of interrupt handlers


def is_handler(path: str) -> bool:
    """Is it the branch of an interrupt's handler itself?"""
    return path.startswith(HANDLER) and "/" not in path


@brisk
class ReachedCall:
    """A call that a dry replay came to, and that the journal does not answer."""

    name: str
    entry: Entry | None  #: what is recorded of it
    where: str  #: file:line


class Gate:
    """Of one execution. `on_wait` hears that a call is kept back, `on_open` that nothing keeps them any more."""

    def __init__(
        self,
        life: RunLife,
        loop: asyncio.AbstractEventLoop,
        *,
        paused: bool,
        on_wait: Callable[[], None],
        on_open: Callable[[], None],
    ) -> None:
        self._life = life
        self._loop = loop
        self._on_wait = on_wait
        self._on_open = on_open
        #: While something keeps new bodies from starting; where there are tolls, always: it is done while it is open.
        self.shut: asyncio.Future[None] | None = None
        self._tolls: tuple[Toll, ...] = ()
        self.paused = paused
        self.draining = False  #: the process is closing: no new bodies
        self.cancelling = False  #: the cancellation is on its way to the code: no new bodies
        self.is_dry = False  #: nothing new begins at all: only what is recorded is told
        self.reached: list[ReachedCall] = []  #: the calls that stay here for that
        self.handlers = 0  #: handlers of interrupts under way
        self.kept_back = 0  #: calls that wait here

    def pause(self) -> None:
        self.paused = True
        self._close()
        self._on_wait()

    def resume(self) -> None:
        self.paused = False
        self._open()

    def rehearse(self) -> None:
        """Nothing is to happen: every call that is not answered from the journal stays here."""
        self.is_dry = True
        self.pause()

    def drain(self) -> None:
        """The process is closing."""
        self.draining = True
        self._close()

    def await_cancel(self) -> None:
        """The run is about to be told that it is cancelled."""
        self.cancelling = True
        self._close()

    def cancel(self) -> None:
        """It was told: what was paused goes on, to its end."""
        self.paused = self.cancelling = False
        self._open()

    def begin_handler(self) -> None:
        """An interrupt is handled."""
        self.handlers += 1
        self._close()

    def end_handler(self) -> None:
        self.handlers -= 1
        self._open()

    def levy(self, toll: Toll) -> None:
        """Have each new body wait for this before it begins."""
        if toll not in self._tolls:
            self._tolls = (*self._tolls, toll)
        if self.shut is None:
            self.shut = self._loop.create_future()
            self.shut.set_result(None)

    def waive(self, toll: Toll) -> None:
        """There is nothing to look at any more."""
        self._tolls = tuple(each for each in self._tolls if each != toll)
        if not self._tolls and self.shut is not None and self.shut.done():
            self.shut = None

    def let_go(self) -> None:
        """The execution is over: hold nothing that holds this."""
        self._on_wait = self._on_open = ignore
        self._tolls = ()

    def _close(self) -> None:
        if self.shut is None or self.shut.done():
            self.shut = self._loop.create_future()

    def _open(self) -> None:
        """Let new bodies start again, unless another reason not to remains."""
        shut = self.shut
        is_kept = self.is_dry or self.paused or self.draining or self.cancelling or self.handlers
        if shut is None or shut.done() or is_kept:
            return
        if not self._tolls:
            self.shut = None
        shut.set_result(None)
        self._on_open()

    async def stay(self, branch: Branch, reached: ReachedCall) -> None:
        """This is as far as the journal goes: nothing more is to happen in this branch."""
        self.reached.append(reached)
        await self.pass_(branch)

    async def pass_(self, branch: Branch, *, takes_back: bool = False, begins: bool = True) -> None:
        """Return when a new body may start. Handlers of interrupts pass while they hold up the rest.

        `takes_back`: it is an undo, which no cancellation keeps from being done. Not `begins`: it is no body, starts no
        other run, and pays no toll.
        """
        life = self._life
        while True:
            while self._keeps(branch):
                await self._wait_open(branch)
            if not self._tolls or not begins or takes_back or life.dead or life.is_clean_up(branch):
                break
            await self._pay(branch)
            if not self._keeps(branch):
                break
        if self.shut is not None and not self.shut.done():
            return  # a handler
        if life.halted and (life.dead or not takes_back):
            await life.check(branch, branch.handling)

    def _keeps(self, branch: Branch) -> bool:
        """Is a body of this branch kept back now?"""
        if self.shut is None or self.shut.done():
            return False
        is_others = self.is_dry or self.paused or self.draining or self.cancelling
        return is_others or not self.handlers or not branch.path.startswith(HANDLER)

    async def _wait_open(self, branch: Branch) -> None:
        assert self.shut is not None
        was_in_call = branch.enter_call()
        self.kept_back += 1
        self._on_wait()
        try:
            await asyncio.shield(self.shut)
        finally:
            self.kept_back -= 1
            branch.leave_call(was_in_call)

    async def _pay(self, branch: Branch) -> None:
        was_in_call = branch.enter_call()
        try:
            for toll in self._tolls:
                await toll()
        finally:
            branch.leave_call(was_in_call)
