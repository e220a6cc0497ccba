"""The end of a run, for who holds it: waited for wherever the run executes, and read as the agent's code has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from holdfast.codec import Coder, coder_for
from holdfast.errors import UsageError
from holdfast.handle.end import End, needs_human
from holdfast.handle.here import Here, LocalExecution
from holdfast.history.lookup import row_of
from holdfast.history.needs import STUCK, Needs, needs_of
from holdfast.history.results import end_of
from holdfast.journal.tombstones import is_elsewhere, refuse_elsewhere
from holdfast.model import RunId, RunRow, Status
from holdfast.model.reasons import Reason
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent

_POLL_S: Final = 0.05
_NEEDING: Final = frozenset({Status.waiting, Status.sleeping, Status.paused, Status.in_doubt})


async def is_stuck(row: RunRow) -> bool:
    """Can nobody but a person change it? A question, a signal or a pause is waited for: somebody may come."""
    return row.status in STUCK


class AwaitedEnd:
    """The end of one run."""

    def __init__(self, store: Store, run_id: RunId, token: str, *, here: Here | None) -> None:
        self._store = store
        self._here = here
        self._run_id = run_id
        self._token = token
        self.agent: Agent[..., Any] | None = None  #: that whoever holds the run says it is of

    async def decided(self, leaves: Callable[[RunRow], Awaitable[bool]]) -> tuple[RunRow, str]:
        """Wait until the run is over, or `leaves` says that it is not waited for; what it ended with, as JSON text."""
        waited_s = 0.0
        while True:
            execution = self._here.local(self._run_id) if self._here is not None else None
            if execution is not None:
                await execution.wait_ended()
                if execution.error is not None:
                    raise execution.error
                if execution.row.status.is_final:
                    return execution.row, execution.outcome or "null"
            row = await row_of(self._store, self._run_id)
            if row.status.is_final:
                return await end_of(self._store, self._run_id)
            if await leaves(row):
                refuse_elsewhere(row)
                return row, "null"
            await asyncio.sleep(min(_POLL_S + waited_s / 20, 0.5))
            waited_s += _POLL_S

    async def result_or_needs(self, timeout_s: float | None, *, tell: Callable[[Needs], None], stays: bool) -> Any:
        """The result; NeedsHuman if the run waits for somebody, and nothing is due soon."""
        needs = Needs((), None, False)

        async def leaves(row: RunRow) -> bool:
            nonlocal needs
            if row.status not in _NEEDING or is_elsewhere(row):
                return row.status in STUCK or is_elsewhere(row)
            needs = await needs_of(self._store, row)
            tell(needs)
            return not stays and needs.is_far

        async with asyncio.timeout(timeout_s):
            row, text = await self.decided(leaves)
        if row.status in _NEEDING:
            raise needs_human(self._run_id, self._token, needs)
        return self.read(row.agent, row.status, row.reason, text)

    async def read_if_over(self, execution: LocalExecution | None) -> Callable[[Coder[Any]], Any] | None:
        """The result of a run that has ended, to be read by a coder (or raised); `execution` was the last one here."""
        if execution is not None and execution.error is None and execution.row.status.is_final:
            row, text = execution.row, execution.outcome or "null"
        else:
            row = await row_of(self._store, self._run_id)
            if not row.status.is_final:
                return None
            row, text = await end_of(self._store, self._run_id)
        return self._as_it_ended(row.status, row.reason, text).read

    def read(self, agent_name: str, status: Status, reason: Reason | None, text: str) -> Any:
        """What the agent returned; raises what tells of any other end."""
        return self._as_it_ended(status, reason, text).read(self._coder(agent_name))

    def _as_it_ended(self, status: Status, reason: Reason | None, text: str) -> End:
        raised = (self._here.raised if self._here is not None else None) or {}
        return End(self._run_id, self._token, status, reason, text, raised.get(self._run_id))

    def _coder(self, agent_name: str) -> Coder[Any]:
        agent = self.agent
        if agent is None:
            agent = self._here.agents.get(agent_name) if self._here is not None else None
        elif agent.name != agent_name:
            raise UsageError(f"Run {self._run_id} is of agent {agent_name!r}, not {agent.name!r}.")
        return agent.coder if agent is not None else coder_for(Any)
