"""The short way of mail: what this process has committed for one of its own runs is handed over, and not looked for.

For everybody else the bell is rung. Whose a run is, its row says, in the transaction that accepts the mail.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.model import Mail, WorkerId


class AcceptedMail(NamedTuple):
    """Mail as it is stored, and who had the run then; None: nobody, or it is not known."""

    mail: Mail
    owner: WorkerId | None


class Carrier:
    """Takes mail to the workers of this process. Called from any thread."""

    def __init__(self) -> None:
        self._workers: dict[WorkerId, tuple[asyncio.AbstractEventLoop, Callable[[Mail], None]]] = {}

    def serve(self, worker_id: WorkerId, deliver: Callable[[Mail], None]) -> None:
        """Call `deliver` on the running loop with mail for the runs of a worker."""
        self._workers[worker_id] = (asyncio.get_running_loop(), deliver)

    def leave(self, worker_id: WorkerId) -> None:
        self._workers.pop(worker_id, None)

    def carry(self, accepted: Iterable[AcceptedMail]) -> bool:
        """Hand over what was committed; True: some of it is for others, or may be."""
        has_others = False
        for mail, owner in accepted:
            served = self._workers.get(owner) if owner is not None else None
            if served is None:
                has_others = True
                continue
            loop, deliver = served
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody has the run any more
                # In a context of its own: whoever sent it may be another run.
                loop.call_soon_threadsafe(deliver, mail, context=contextvars.Context())
        return has_others
