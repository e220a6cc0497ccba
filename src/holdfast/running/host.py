"""What a run needs from the process that executes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from holdfast.base.config import Settings
from holdfast.model import Fence, RunId, ThreadId
from holdfast.store.contract import Store


class TimerHandle(Protocol):
    """Something that is to happen at a time."""

    def cancel(self) -> None: ...


class Clockwork(Protocol):
    """Calls back when a wall-clock time has come."""

    def at(self, due_us: int, callback: Callable[[], None]) -> TimerHandle: ...


class Parent(Protocol):
    """A run that starts another, or gives one up."""

    id: RunId

    @property
    def thread_id(self) -> ThreadId: ...

    @property
    def fence(self) -> Fence: ...

    @property
    def budgets(self) -> tuple[str, ...]:
        """The runs whose budgets bind what it starts."""
        ...


class Host(Protocol):
    """What a run needs from the process that executes it."""

    store: Store
    settings: Settings
    threads: ThreadPoolExecutor

    @property
    def agents(self) -> Mapping[str, Any]: ...  # by name

    @property
    def timers(self) -> Clockwork: ...

    async def start_child(self, call: Any, run_id: RunId, *, parent: Parent, how: Any) -> Any:
        """Store the run unless it exists, and execute it here or on its queue; the handle."""
        ...

    def adopt_child(self, call: Any, run_id: RunId) -> None:
        """It was started before, and nobody waits for it: if its process has died, it goes on here."""
        ...

    async def cancel_child(self, run_id: RunId, *, parent: Parent) -> bool:
        """Have it cancelled; False: it has something to undo first, or is executed elsewhere."""
        ...

    async def wake_family(self, run_id: RunId) -> None:
        """The run has more to use: those that came of it and waited for that are tried again."""
        ...

    def handle(self, run_id: RunId, thread_id: ThreadId) -> Any: ...

    def local(self, run_id: RunId) -> Any | None:
        """The execution of a run in this process, if there is one."""
        ...

    async def read_mail(self, run_id: RunId) -> None:
        """Have a run that executes here see what was sent to it."""
        ...

    async def hold_queue(self, queue: str, until_us: int) -> None: ...

    async def emit(self, event: str, value: Any, *, dedup: str | None) -> str: ...

    @property
    def is_alone(self) -> bool:
        """Does this process execute one run only? Then its commits may happen on the loop's own thread."""
        ...

    @property
    def lapses(self) -> int:
        """How often this worker's lease had run out before it was renewed."""
        ...

    def has_lease(self) -> bool:
        """Is enough of this worker's lease left to begin an effect?"""
        ...

    async def wait_lease(self) -> None: ...
