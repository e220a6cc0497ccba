"""What a caller holds: a run, and an effect in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from holdfast import control
from holdfast.calls import Body, Options, Retry
from holdfast.codec import Coder, coder_for, decode_error, encode_error
from holdfast.context import scope_or_none
from holdfast.errors import (
    CorruptJournal,
    NeedsHuman,
    RunBlocked,
    RunCancelled,
    RunFailed,
    RunNotFound,
    UsageError,
)
from holdfast.history import Receipt, RunInfo, TimelineItem, Verification, info_of, receipts_of, timeline_of, verify
from holdfast.history import in_doubt_of as open_doubts
from holdfast.journal.blobs import stored_text
from holdfast.journal.integrity import check_records, check_row
from holdfast.model import Kind, Record, RunId, RunRow, Status, ThreadId
from holdfast.settling import Verdict
from holdfast.store.base import Store
from holdfast.verbs.child import Agent
from holdfast.verbs.step import StepDefinition

R_co = TypeVar("R_co", covariant=True)

_POLL_S = 0.05
_NEEDS_SOMEBODY = frozenset({Status.blocked, Status.in_doubt, Status.waiting, Status.quarantined, Status.paused})


class Ending(Protocol):
    """An execution in this process."""

    error: BaseException | None
    row: RunRow
    outcome: str | None

    async def wait_ended(self) -> None: ...


class Here(Protocol):
    """The executor of this process."""

    agents: dict[str, Agent[..., Any]]

    def local(self, run_id: RunId) -> Ending | None: ...

    async def take_up(
        self, run_id: RunId, *, reopen: tuple[str, str] | None = None, act: tuple[str, str] | None = None
    ) -> bool: ...


class Run(Generic[R_co]):
    """A run, wherever it executes: look at it, wait for it, act on it.

    `token` ("run@thread") is all that another process needs to find it again.
    """

    def __init__(self, store: Store, run_id: RunId, thread_id: ThreadId, *, here: Here | None) -> None:
        self._store = store
        self._here = here
        self.id = run_id
        self.thread_id = thread_id

    @property
    def token(self) -> str:
        """The resume token."""
        return f"{self.id}@{self.thread_id}"

    def __repr__(self) -> str:
        return f"<run {self.token}>"

    async def _row(self) -> RunRow:
        row = await self._store.run(self.id)
        if row is None:
            raise RunNotFound(f"There is no run {self.id} in {self._store.url}.")
        return row

    async def _load(self) -> tuple[RunRow, list[Record]]:
        loaded = await self._store.load(self.id)
        if loaded is None:
            raise RunNotFound(f"There is no run {self.id} in {self._store.url}.")
        return loaded

    # looking

    async def info(self) -> RunInfo:
        """Where the run stands, in one object.

        Example: `print((await run.info()).now)`
        """
        row = await self._row()
        return info_of(row, is_lost=await self._is_lost(row))

    async def _is_lost(self, row: RunRow) -> bool:
        """Does the run look owned, and its owner is dead?"""
        return row.owner is not None and row.owner in await self._store.dead_workers()

    async def status(self) -> Status:
        """Where the run stands, in one word."""
        return (await self._row()).status

    async def history(self) -> list[TimelineItem]:
        """Everything that happened, in order: calls, attempts, outages, settlements."""
        row, records = await self._load()
        return timeline_of(row, records, is_lost=await self._is_lost(row))

    async def receipts(self) -> list[Receipt]:
        """One for each time the run was resumed: what was replayed, what was executed, what that saved."""
        return receipts_of(*await self._load())

    async def verify_journal(self) -> Verification:
        """Check every stored byte of the run against its hashes; nothing is changed."""
        return await verify(self._store, self.id)

    async def in_doubt(self) -> list[InDoubt]:
        """The effects that may or may not have happened and that a person must settle."""
        row, records = await self._load()
        return [
            InDoubt(self._store, self.id, d.key, d.name, d.attempt, d.args, d.idempotency_key, d.since, d.cause)
            for d in open_doubts(row, records)
        ]

    # waiting

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait for the end of the run: what the agent returned, or RunFailed, RunCancelled, RunBlocked, NeedsHuman.

        Example: `text = await run.result(timeout=60)`
        """
        scope = scope_or_none()
        if scope is not None and scope.body is None:
            awaited: R_co = await self._result_in_run(timeout)
            return awaited
        async with asyncio.timeout(timeout):
            row, text = await self._wait_decided()
        value: R_co = self._outcome(row.status, row.reason, text, self._coder(row.agent))
        return value

    async def _result_in_run(self, timeout: float | None) -> Any:
        """Inside a run, waiting for another run is a step: a replay has its result at once."""

        async def ended(run_id: str) -> tuple[str, str, str]:
            while True:
                row, text = await self._wait_decided()
                if row.status.is_final:
                    return row.agent, row.status.value, text
                await asyncio.sleep(_POLL_S)

        options = Options("hf.result", Retry(0), timeout, (), ())
        agent, status, text = await StepDefinition(Body(ended), options).call((self.id,), {})
        return self._outcome(Status(status), None, text, self._coder(agent))

    def _coder(self, agent_name: str) -> Coder[Any]:
        agent = self._here.agents.get(agent_name) if self._here is not None else None
        return agent.coder if agent is not None else coder_for(Any)

    async def decided(self) -> tuple[Status, Callable[[Coder[Any]], Any]]:
        """Wait until the run is over or needs somebody: its status, and its result read by a coder (or raised)."""
        row, text = await self._wait_decided()
        return row.status, lambda coder: self._outcome(row.status, row.reason, text, coder)

    async def _wait_decided(self) -> tuple[RunRow, str]:
        """Wait until the run is over, or cannot go on without somebody; what it ended with, as JSON text."""
        waited_s = 0.0
        while True:
            execution = self._here.local(self.id) if self._here is not None else None
            if execution is not None:
                await execution.wait_ended()
                if execution.error is not None:
                    raise execution.error
                if execution.row.status.is_final:
                    return execution.row, execution.outcome or "null"
            row = await self._row()
            if row.status.is_final:
                return await self._end()
            if row.status in _NEEDS_SOMEBODY:
                return row, "null"
            if self._here is not None and row.agent in self._here.agents and waited_s >= _POLL_S:
                await self._here.take_up(self.id)
            await asyncio.sleep(min(_POLL_S + waited_s / 20, 0.5))
            waited_s += _POLL_S

    async def _end(self) -> tuple[RunRow, str]:
        row, records = await self._load()
        check_row(row)
        check_records(row, records)
        end = next(r for r in reversed(records) if r.kind == Kind.finished)
        return row, await stored_text(self._store, self.id, end.payload)

    def _outcome(self, status: Status, why: Mapping[str, Any] | None, text: str, coder: Coder[Any]) -> Any:
        token, reason = self.token, why or {}
        match status:
            case Status.blocked:
                raise _blocked(self.id, token, reason)
            case Status.in_doubt:
                effects = ", ".join(e["key"] for e in reason.get("effects", []))
                command = f"holdfast in-doubt {self.id}"
                raise NeedsHuman(
                    f"Run {self.id} is in doubt about {effects}: nobody can tell whether it happened. Look at the "
                    f"evidence with `{command}`, then settle it with `holdfast resolve`.",
                    run_id=self.id,
                    token=token,
                    command=command,
                )
            case Status.waiting:
                children = ", ".join(reason.get("children", []))
                command = f"holdfast show {children.partition(',')[0]}"
                raise NeedsHuman(
                    f"Run {self.id} waits for {children}, which cannot go on by itself; see `{command}`.",
                    run_id=self.id,
                    token=token,
                    command=command,
                )
            case Status.paused:
                raise NeedsHuman(
                    f"Run {self.id} is paused.", run_id=self.id, token=token, command=f"holdfast resume {self.id}"
                )
            case Status.quarantined:
                raise CorruptJournal(reason.get("detail", f"Run {self.id} is quarantined."), run_id=self.id)
            case Status.done:
                return coder.loads(text, what=f"the result of run {self.id}")
            case Status.failed:
                cause = decode_error(text, ())
                raise RunFailed(
                    f"Run {self.id} failed: {type(cause).__name__}: {cause}", run_id=self.id, token=token
                ) from cause
            case _:
                raise RunCancelled(f"Run {self.id} was cancelled.", run_id=self.id, token=token)

    # acting

    async def resume(self, *, by: str | None = None, note: str = "") -> None:
        """Have the run go on: blocked, it is tried again; left over, it is taken over; live or final, nothing happens.

        A quarantined run raises CorruptJournal. Needs an app that knows the agent (`hf.connect(agents=[…])`). Who did
        it and why is recorded with the claim.

        Example: `await run.resume(note="the call is back in the code")`
        """
        row = await self._row()
        if row.status is Status.quarantined:
            raise CorruptJournal((row.reason or {}).get("detail", f"Run {self.id} is quarantined."), run_id=self.id)
        if not row.status.is_final:
            await self._executor().take_up(self.id, act=(control.actor(by), note))

    async def retry(self, *, by: str | None = None, note: str = "") -> None:
        """Open a failed or cancelled run again: what ended it is done anew, everything before it is kept.

        Example: `await run.retry(note="the API is back")`
        """
        row = await self._row()
        if row.status not in (Status.failed, Status.cancelled):
            raise UsageError(f"Run {self.id} is {row.status}; only failed and cancelled runs can be retried.")
        await self._executor().take_up(self.id, reopen=(control.actor(by), note))

    def _executor(self) -> Here:
        if self._here is None:
            raise UsageError("This app executes nothing: pass the agents to hf.connect(agents=[…]).")
        return self._here


def _blocked(run_id: RunId, token: str, reason: Mapping[str, Any]) -> RunBlocked:
    lines = [f"Run {run_id} is blocked: {reason.get('why', 'unknown')}."]
    if reason.get("asked"):
        where = f" ({reason['where']})" if reason.get("where") else ""
        lines.append(f"The code asks for {reason['asked']}{where}.")
    for each in reason.get("recorded", []):
        doubt = " (not known whether it happened)" if each["open"] else ""
        lines.append(f"The journal has {each['key']} at seq {each['seq']}{doubt}.")
    lines += [str(reason[k]) for k in ("detail", "advice") if reason.get(k)]
    return RunBlocked("\n".join(lines), run_id=run_id, token=token, reason=dict(reason))


@dataclass(frozen=True, slots=True)
class InDoubt:
    """An effect that may or may not have happened."""

    _store: Store
    run_id: str
    key: str
    name: str
    attempt: int
    args: str | None  #: what it was called with, as JSON text
    idempotency_key: str
    since: int  #: when its intent was recorded, µs
    cause: str

    async def resolve(self, verdict: Verdict[object] | Exception, *, by: str | None = None, note: str = "") -> None:
        """Say what became of it: `hf.landed(result)`, `hf.not_landed()`, or an exception for the agent to see.

        Stored with who said so and why; the run goes on from there. AlreadySettled if somebody was first.

        Example: `await doubt.resolve(hf.landed("msg-17"), note="seen in the outbox")`
        """
        if isinstance(verdict, Exception):
            body = {"verdict": "failed", "error": encode_error(verdict)}
        elif not isinstance(verdict, Verdict):
            raise UsageError(f"resolve() takes hf.landed(…), hf.not_landed() or an exception, not {verdict!r}.")
        elif verdict.has_landed:
            coder: Coder[Any] = coder_for(type(verdict.result))
            body = {"verdict": "landed", "value": coder.dumps(verdict.result, what="the result")}
        else:
            body = {"verdict": "not_landed"}
        await control.resolve(self._store, RunId(self.run_id), self.key, body, attempt=self.attempt, by=by, note=note)
