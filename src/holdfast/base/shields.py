"""What a cancellation does not cut off: an effect under way, a saga that undoes, clean-up.

A cancellation that arrives meanwhile is kept, and whoever was shielded raises that very one when it is done: message
included, since anyio knows its own by it. Of several it is anyio's: the scopes of others only count how often the task
was cancelled. A future that keeps cancellations is not woken by them, however many come. anyio repeats its own at every
turn of the loop, unless the task is in a shielded scope of anyio's own: so it is put into one, if it is anyio that
cancels.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


_ON_TIMEOUT = asyncio.Timeout._on_timeout.__code__  # type: ignore[attr-defined]


class Kept(asyncio.Future[None]):
    """A future whose waiter is not woken by a cancellation: `shield` keeps it."""

    __slots__ = ("_shield",)

    _shield: Shield

    @classmethod
    def by(cls, shield: Shield, loop: asyncio.AbstractEventLoop) -> Kept:
        kept = cls(loop=loop)
        kept._shield = shield
        return kept

    def cancel(self, msg: Any = None) -> bool:
        if self.done():
            return False
        if self._shield.lets_through(msg):
            return super().cancel(msg=msg)
        self._shield.keep(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True


class Shield:
    """Keeps the cancellations of one task while it waits for something that goes on to its end.

    `is_over`: is the task to be ended all the same? `own`: the task, if timeouts that it opened after its first
    cancellation, around what is shielded, are to be let through.
    """

    __slots__ = ("_foreign", "_is_cut", "_is_over", "_own", "_waited", "gate", "handled", "kept")

    def __init__(self, is_over: Callable[[], bool], *, own: asyncio.Task[Any] | None = None) -> None:
        self._is_over = is_over
        self._is_cut = False
        self._own = -1 if own is None else own.cancelling()
        self._foreign: Any = None
        self._waited: asyncio.Future[Any] | None = None  # what tells this shield of its end
        self.gate: Kept | None = None  #: what the task waits for
        self.handled = sys.exception()  #: by the code; once a cancellation has woken the task, it cannot be seen
        self.kept: asyncio.CancelledError | None = None  #: the one to be raised

    def cut(self) -> None:
        """The next cancellation gets through."""
        self._is_cut = True

    def keep(self, error: asyncio.CancelledError) -> None:
        if self.kept is None or (_is_anyios(error) and not _is_anyios(self.kept)):
            self.kept = error

    def lets_through(self, message: Any) -> bool:
        """Is the task to be woken by a cancellation that is being made now?"""
        if self._is_over() or self._is_cut:
            return True
        if self._own >= 0:
            frame = sys._getframe(2)  # who cancels the task
            if frame.f_code is _ON_TIMEOUT and frame.f_locals["self"]._cancelling >= self._own:
                self._is_cut = True
                return True
        return self._foreign is None and _is_anyio(message)

    def caught(self, error: asyncio.CancelledError) -> None:
        """A cancellation woke the task: keep it, or let it through."""
        if self._is_over() or self._is_cut:
            raise error
        self.keep(error)
        if self.gate is not None:
            self.gate = Kept.by(self, self.gate.get_loop())
        if self._foreign is None and _is_anyios(error):
            self._foreign = sys.modules["anyio"].CancelScope(shield=True)
            self._foreign.__enter__()

    def close(self) -> None:
        """What was shielded is done."""
        if self._foreign is not None:
            foreign, self._foreign = self._foreign, None
            foreign.__exit__(None, None, None)

    def begin(self, future: asyncio.Future[Any], context: contextvars.Context | None = None) -> None:
        """From here on the task waits for `future` at the gate, again and again until it is done.

        `context`: one that the loop may enter to tell it. It needs none, and without one another copy is made.
        """
        self.gate = Kept.by(self, future.get_loop())
        self._waited = future
        future.add_done_callback(self.open, context=context)

    def end(self) -> None:
        """It does not wait any more."""
        self._leave()
        self.gate = None

    def _leave(self) -> None:
        if self._waited is not None:
            self._waited.remove_done_callback(self.open)
            self._waited = None

    async def wait(self, future: asyncio.Future[Any]) -> None:
        """Return when `future` is done, whoever cancels meanwhile. What it ended with is not looked at."""
        self.begin(future)
        try:
            while not future.done():
                assert self.gate is not None
                if self.gate.done():  # by what was waited for before: its end was told only now
                    self.gate = Kept.by(self, future.get_loop())
                try:
                    await self.gate
                except asyncio.CancelledError as error:
                    self.caught(error)
        finally:
            self.end()

    def open(self, _: object = None) -> None:
        """What is waited for is done, or will be in the next turn of the loop."""
        if self.gate is not None and not self.gate.done():
            self.gate.set_result(None)

    def open_early(self) -> None:
        """The task that is waited for ends now, with nothing between: a turn of the loop before that would tell it."""
        self.open()
        self._leave()

    async def outlast(self, task: asyncio.Task[Any]) -> None:
        """Return when a task has ended, whoever cancels meanwhile; if all is over, it is ended too."""
        try:
            await self.wait(task)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self.close()

    async def drive(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine in this task, without any cancellation reaching it."""
        try:
            return await _Driven(coroutine, self)
        finally:
            self.close()


class _Driven(Generic[T]):
    """Drives a coroutine. Whatever it waits for, the task waits for a future that keeps cancellations instead."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], shield: Shield) -> None:
        self._coroutine = coroutine
        self._shield = shield

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine = self._coroutine
        over: asyncio.CancelledError | None = None
        try:
            while True:
                try:
                    awaited = coroutine.send(None) if over is None else coroutine.throw(over)
                except StopIteration as end:
                    value: T = end.value
                    return value
                over = yield from self._wait(awaited)
        finally:
            coroutine.close()

    def _wait(self, awaited: Any) -> Generator[Any, Any, asyncio.CancelledError | None]:
        """Wait for what the coroutine waits for; a cancellation, if it is to hear of one after all."""
        try:
            if isinstance(awaited, asyncio.Future):
                awaited._asyncio_future_blocking = False  # it was meant for a task that waits
                yield from self._shield.wait(awaited).__await__()
            else:
                yield awaited  # a turn of the loop
        except asyncio.CancelledError as error:
            if isinstance(awaited, asyncio.Future):
                awaited.cancel()
                return error
            try:
                self._shield.caught(error)
            except asyncio.CancelledError:
                return error
        return None


def go_on_with(error: BaseException | None, kept: asyncio.CancelledError | None) -> None:
    """`error`, which is being handled, goes on instead of `kept`: anyio finds its own behind it, where it looks."""
    if kept is not None and isinstance(error, asyncio.CancelledError) and _is_anyios(kept) and not _is_anyios(error):
        kept.__context__, error.__context__ = error.__context__, kept


def _is_anyios(error: asyncio.CancelledError) -> bool:
    return bool(error.args) and _is_anyio(error.args[0])


def _is_anyio(message: Any) -> bool:
    return isinstance(message, str) and "cancel scope" in message and "anyio" in sys.modules
