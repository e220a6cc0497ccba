"""The runs that execute in this process, and whether there is room for more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from holdfast.model import RunId
from holdfast.model.reasons import Blocked
from holdfast.worker.execution import Execution, WorkerHost
from holdfast.worker.loading import LoadedRun
from holdfast.worker.queues import Queues

_ROOM_S = 0.01  # for how long room for one run is kept to itself, in case there is soon room for more


class Executions:
    """The executions of one process, by run. `on_end` hears of each that is over."""

    def __init__(
        self, host: WorkerHost, queues: Queues, *, concurrency: int, on_end: Callable[[Execution], None]
    ) -> None:
        self._host = host
        self._queues = queues
        self._concurrency = concurrency
        self._on_end = on_end
        self._by_run: dict[RunId, Execution] = {}
        self._roots = 0  # executions of runs that are nobody's children
        self._was_full = False
        self._telling_room: asyncio.TimerHandle | None = None
        self.is_closing = False

    def __len__(self) -> int:
        return len(self._by_run)

    def __iter__(self) -> Iterator[Execution]:
        return iter(list(self._by_run.values()))

    def __contains__(self, run_id: RunId) -> bool:
        return run_id in self._by_run

    def get(self, run_id: RunId) -> Execution | None:
        return self._by_run.get(run_id)

    @property
    def free_slots(self) -> int:
        """How many more runs may execute here. Children do not count: their parents could not go on without them."""
        return 0 if self.is_closing else self._concurrency - self._roots

    def begin(
        self,
        whole: LoadedRun,
        *,
        claim_note: str | None = None,
        reopen: tuple[str, str] | None = None,
        refuse: Blocked | None = None,
    ) -> None:
        """Execute a run that this process has claimed. Without a note its journal says already who claimed it."""
        row = whole.row
        execution = Execution(
            self._host,
            self._host.agents[row.agent],
            row,
            whole.records,
            blobs=whole.blobs,
            mail=whole.mail,
            claim_note=claim_note,
            reopen=reopen,
            refuse=refuse,
        )
        self._by_run[row.id] = execution
        self._roots += row.parent_id is None
        self._was_full = self._was_full or self.free_slots <= 0
        execution.begin(on_end=lambda: self._ended(row.id, execution))

    async def has_left(self, run_id: RunId) -> bool:
        """Is no execution of it here any more? One that was given up already, as anybody can read, is waited for."""
        while (execution := self._by_run.get(run_id)) is not None:
            row = await self._host.store.run(run_id)
            if row is None or row.owner is not None:
                return False
            if self._by_run.get(run_id) is execution:
                await execution.wait_ended()
        return True

    async def hand_over(self, drain_s: float) -> None:
        """Leave all of them for whoever comes next; bodies under way have so much time to end."""
        await asyncio.gather(*(execution.hand_over(drain_s) for execution in self))

    def close(self) -> None:
        if self._telling_room is not None:
            self._telling_room.cancel()

    def _ended(self, run_id: RunId, execution: Execution) -> None:
        self._roots -= execution.row.parent_id is None
        if self._by_run.get(run_id) is execution:
            del self._by_run[run_id]
        self._on_end(execution)
        if self._queues.is_limited(execution.row.queue):
            self._host.store.ring()  # there may be runs that waited for room in the queue
        elif self._was_full:
            self._have_room()

    def _have_room(self) -> None:
        """There may be runs that waited for room here. To look for one costs as much as to look for a hundred."""
        if self.free_slots * 4 >= self._concurrency:
            self._tell_room()
        elif self._telling_room is None:
            self._telling_room = asyncio.get_running_loop().call_later(_ROOM_S, self._tell_room)

    def _tell_room(self) -> None:
        if self._telling_room is not None:
            self._telling_room.cancel()
        self._telling_room, self._was_full = None, False
        self._host.store.ring()
