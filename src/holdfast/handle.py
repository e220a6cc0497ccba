"""What a caller holds of a run, wherever it executes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from holdfast import control
from holdfast.calls import answer, remember_key
from holdfast.clock import monotonic_us, now_us
from holdfast.codec import Coder, coder_for, coder_of, decode_error, digest, encode_error
from holdfast.context import RunContext
from holdfast.errors import (
    ConflictingSend,
    CorruptJournal,
    NeedsHuman,
    RunBlocked,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunNotFound,
    UsageError,
)
from holdfast.history import (
    Receipt,
    RunInfo,
    TimelineItem,
    info_of,
    receipts_of,
    timeline_of,
)
from holdfast.history import in_doubt_of as open_doubts
from holdfast.journal.blobs import stored_text
from holdfast.journal.integrity import check_records, check_row
from holdfast.journal.tombstones import refuse_elsewhere, refuse_empty
from holdfast.journal.verification import Verification, verify
from holdfast.model import Kind, Record, RunId, RunRow, Status, ThreadId
from holdfast.outward import outward
from holdfast.people import InDoubt, Question
from holdfast.scopes import in_branch, scope_or_none
from holdfast.store.base import Store
from holdfast.verbs.child import Agent
from holdfast.verbs.signal import Signal
from holdfast.verbs.values import this_step
from holdfast.waits import WaitCall, waiting

R_co = TypeVar("R_co", covariant=True)

_POLL_S = 0.05
_STUCK = frozenset({Status.blocked, Status.in_doubt, Status.quarantined})
_REPLY_NAME = "hf:interrupt.end"
_RESULT = "hf:result"
_END: Coder[tuple[str, str, str]] = coder_for(tuple[str, str, str])  # agent, status, what it ended with


class Ending(Protocol):
    """An execution in this process."""

    error: BaseException | None
    row: RunRow
    outcome: str | None

    async def wait_ended(self) -> None: ...


class Here(Protocol):
    """The executor of this process."""

    agents: dict[str, Agent[..., Any]]
    started: set[RunId]  #: runs that this process was asked for

    def local(self, run_id: RunId) -> Ending | None: ...

    async def take_up(
        self, run_id: RunId, *, reopen: tuple[str, str] | None = None, act: tuple[str, str] | None = None
    ) -> bool: ...

    @property
    def executes(self) -> bool:
        """Does this process execute runs, or is it a client?"""
        ...


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
        refuse_empty(loaded[0])
        return loaded

    # looking

    async def info(self) -> RunInfo:
        """Where the run stands, in one object.

        Example: `print((await run.info()).now)`
        """
        row = await self._row()
        return info_of(row, is_lost=await self._is_lost(row))

    async def _is_lost(self, row: RunRow) -> bool:
        """Does the run look owned, and its owner is dead or nobody knows it?"""
        if row.owner is None:
            return False
        if row.owner in await self._store.dead_workers():
            return True
        return all(worker.id != row.owner for worker in await self._store.workers())

    async def status(self) -> Status:
        """Where the run stands, in one word."""
        return (await self._row()).status

    async def history(self) -> list[TimelineItem]:
        """Everything that happened, in order: calls, attempts, outages, settlements."""
        row, records = await self._load()
        return timeline_of(row, records, is_lost=await self._is_lost(row))

    async def states(self) -> list[Any]:
        """The states that a reducer went through, the first one included, as plain values.

        Example: `before, after = (await run.states())[-2:]`
        """
        row, records = await self._load()
        check_records(row, records)
        coder: Coder[Any] = coder_for(Any)
        first = coder.loads(await stored_text(self._store, self.id, records[0].args), what="the input")
        states = list(first.values())[:1] if isinstance(first, dict) else []
        for record in records:
            if record.kind == Kind.done and record.name == row.agent:
                text = await stored_text(self._store, self.id, record.payload)
                states.append(coder.loads(text, what=record.key)[0])
        return states

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
        """Inside a run, waiting for another run is a durable wait: without a process, and a replay has it at once."""
        scope = in_branch("Run.result()")
        run = scope.run
        if run.halted:
            await run.check(scope)
        entry = run.claim(scope, _RESULT, digest(self.id), None)
        if entry is not None and entry.answers(run.replay.code):
            agent, status, text = await answer(scope, entry, _END, ())
            return self._outcome(Status(status), None, text, self._coder(agent))
        due_us = None if timeout is None else now_us() + int(timeout * 1_000_000)
        async with waiting(scope, _RESULT, entry, due_us=due_us, digest=digest(self.id)) as call:
            if (entry is not None and entry.decided is not None) or not await self._wait_in_run(run, call):
                if entry is None or entry.decided is None:
                    await call.decide({"expired": True})
                error = TimeoutError(f"run {run.id}: {self.id} did not end in time")
                await call.end(Kind.failed, encode_error(error))
                raise remember_key(error, call.key)
            with run.busy():
                row, text = await self._end()
            await call.end(Kind.done, _END.dumps((row.agent, row.status.value, text)))
        return self._outcome(row.status, None, text, self._coder(row.agent))

    async def _wait_in_run(self, run: RunContext, call: WaitCall) -> bool:
        """Wait for the end of this run. A child tells of it; another one is looked at from time to time."""
        poll_us = 100_000
        while True:
            run.ended_children.discard(self.id)
            with run.busy():
                row = await self._row()
            if row.status.is_final:
                return True
            if call.due_us is not None and now_us() >= call.due_us:
                return False
            if self.id in run.ended_children:
                continue
            due_us = call.due_us
            if row.parent_id != run.id:
                due_us = min(now_us() + poll_us, due_us or now_us() + poll_us)
                poll_us = min(poll_us * 2, 60_000_000)
            await run.wait(call.key, "child", {"name": "result", "child": self.id}, due_us=due_us)

    def _coder(self, agent_name: str) -> Coder[Any]:
        agent = self._here.agents.get(agent_name) if self._here is not None else None
        return agent.coder if agent is not None else coder_for(Any)

    async def ended(self, execution: Ending | None) -> Callable[[Coder[Any]], Any] | None:
        """The result of a run that has ended, to be read by a coder (or raised); `execution` was the last one here."""
        if execution is not None and execution.error is None and execution.row.status.is_final:
            row, text = execution.row, execution.outcome or "null"
        else:
            row = await self._row()
            if not row.status.is_final:
                return None
            row, text = await self._end()
        return lambda coder: self._outcome(row.status, row.reason, text, coder)

    async def _wait_decided(self, *, is_patient: bool = True) -> tuple[RunRow, str]:
        """Wait until the run is over, or cannot go on without somebody; what it ended with, as JSON text.

        `is_patient`: a question, a signal or a pause is waited for, since somebody may come.
        """
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
            if row.status in _STUCK or (not is_patient and await self._needs_somebody(row)):
                refuse_elsewhere(row)
                return row, "null"
            await asyncio.sleep(min(_POLL_S + waited_s / 20, 0.5))
            waited_s += _POLL_S

    async def _needs_somebody(self, row: RunRow) -> bool:
        """Would it wait for ever, if nobody did anything?"""
        if row.status is Status.paused:
            return True
        if row.status is not Status.waiting:
            return False
        for wait in (row.reason or {}).get("waits", []):
            if wait.get("due") is not None:
                return False
            if wait["kind"] == "child":
                child = await self._store.run(RunId(wait["child"]))
                if child is not None and not (child.status in _STUCK or await self._needs_somebody(child)):
                    return False
        return (row.reason or {}).get("due") is None

    async def result_or_needs(self, timeout: float | None = None) -> R_co:
        """As `result`, but a run that waits for a person or a signal raises NeedsHuman at once."""
        async with asyncio.timeout(timeout):
            row, text = await self._wait_decided(is_patient=False)
        value: R_co = self._outcome(row.status, row.reason, text, self._coder(row.agent))
        return value

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
                doubts = [wait["key"] for wait in reason.get("waits", []) if wait["kind"] == "doubt"]
                raise self._needs(
                    f"is in doubt about {', '.join(doubts)}: nobody can tell whether it happened. Look at the evidence "
                    "with `{command}`, then settle it with `holdfast resolve`.",
                    f"holdfast in-doubt {self.id}",
                )
            case Status.waiting:
                raise self._needs(*_waited_for(self.id, reason))
            case Status.paused:
                raise self._needs("is paused; `{command}` lets it go on.", f"holdfast resume {self.id}")
            case Status.quarantined:
                raise CorruptJournal(reason.get("detail", f"Run {self.id} is quarantined."), run_id=self.id)
            case Status.done:
                return coder.loads(text, what=f"the result of run {self.id}")
            case Status.failed:
                cause: BaseException | None = decode_error(text, ())
                raise RunFailed(
                    f"Run {self.id} failed: {type(cause).__name__}: {cause}", run_id=self.id, token=token
                ) from cause
            case _:
                cause = decode_error(text, ()) if text != "null" else None
                raise RunCancelled(f"Run {self.id} was cancelled.", run_id=self.id, token=token) from cause

    def _needs(self, what: str, command: str) -> NeedsHuman:
        message = f"Run {self.id} {what.replace('{command}', command)}"
        return NeedsHuman(message, run_id=self.id, token=self.token, command=command)

    # acting

    async def pause(self, *, by: str | None = None, note: str = "") -> Status:
        """Stop the run at its next durable boundary, timers included: `paused`, or what it is if it has ended.

        A body under way ends first. Inside a run this is a durable call.

        Example: `await run.pause(note="the API is down")`
        """
        return Status(await self._act("pause", control.pause, by, note))

    async def resume(self, *, by: str | None = None, note: str = "") -> None:
        """Have the run go on: paused, it goes on; blocked, it is tried again; left over, it is taken over.

        On a live or final run nothing happens; a quarantined one raises CorruptJournal. An app that knows the agent
        executes it, else any worker does. Who did it and why is recorded.

        Example: `await run.resume(note="the call is back in the code")`
        """
        row = await self._row()
        if row.status is Status.quarantined:
            raise CorruptJournal((row.reason or {}).get("detail", f"Run {self.id} is quarantined."), run_id=self.id)
        refuse_empty(row)
        refuse_elsewhere(row)
        if row.status.is_final:
            return
        if row.status not in (Status.waiting, Status.sleeping, Status.in_doubt) or row.owner is not None:
            await control.resume(self._store, self.id, by=by, note=note)  # it is paused, or may be about to be
        here = self._here
        if here is not None:
            here.started.add(self.id)
        if row.status in (Status.waiting, Status.sleeping):
            return  # it goes on by itself when what it waits for comes
        if here is not None and here.executes and row.agent in here.agents:
            await here.take_up(self.id, act=(control.actor(by), note))
        elif row.owner is None and row.status is not Status.paused:
            await control.requeue(self._store, self.id, by=by, note=note)

    async def cancel(
        self, *, by: str | None = None, note: str = "", kill: bool = False, timeout: float = 10.0
    ) -> Status:
        """Cancel the run and say the truth: `cancelled`, or what it ended as before.

        What executes is cancelled within milliseconds; its sagas undo and its clean-up runs first, for as long as that
        takes (after `timeout` seconds this returns `cancelled` all the same, once it is on disk that it will be). A run
        that waits and has no saga to undo ends at once: its `finally` blocks are not in memory. Children follow. `kill`
        ends the run without asking its code, for what does not yield: its owner can write nothing more. Inside a run
        this is a durable call, and does not wait.

        Example: `if await run.cancel() is hf.Status.done: print("too late")`
        """
        scope = scope_or_none()
        if scope is not None and scope.body is None:
            return Status(await self._act("cancel", control.cancel, by, note))
        ended = await control.cancel(self._store, self.id, by=by, note=note, kill=kill)
        give_up = monotonic_us() + int(timeout * 1_000_000)
        wait_s = 0.002
        while ended is None:
            row = await self._row()
            if row.status.is_final:
                return row.status
            if monotonic_us() > give_up:
                return Status.cancelled if row.summary.get("cancelling") else row.status
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, 0.1)
        return ended

    async def send(
        self,
        signal: Signal[Any] | str,
        value: Any = None,
        *,
        dedup: str | None = None,
        by: str | None = None,
        transaction: Any = None,
    ) -> bool:
        """Send a signal: kept in order until the run receives it. False: it was sent before, under this `dedup` id.

        A value of the wrong shape, or a signal that the agent does not declare, raises UsageError and is not
        delivered; ConflictingSend if something else has this `dedup` id; RunFinished if the run has ended. Inside a run
        this is a durable call: a replay does not send twice.
        With `transaction`, a connection of your own to the same database, it is sent if and when that is committed.

        Example: `await run.send("approved", True, dedup="click-17")`
        """
        name = signal.name if isinstance(signal, Signal) else signal
        coder: Coder[Any] = coder_for(signal.type) if isinstance(signal, Signal) else coder_of(value)
        text = coder.dumps(value, what=f"signal {name}")
        if transaction is not None:
            await control.send_later(self._store, transaction, self.id, name, text, dedup=dedup, by=by)
            return True
        scope = scope_or_none()
        if scope is not None and scope.body is None:
            return bool(await self._send_in_run(name, text, dedup, by))
        return await control.send(self._store, self.id, name, text, dedup=dedup, by=by)

    async def _send_in_run(self, name: str, text: str, dedup: str | None, by: str | None) -> Any:
        async def send(run_id: str, name: str, text: str) -> bool:
            info = this_step()
            by_whom = by or f"run {info.run_id}"
            if dedup is not None:
                return await control.send(self._store, self.id, name, text, dedup=dedup, by=by_whom)
            with suppress(ConflictingSend):  # its own id: it was sent just before a crash, whatever the code says now
                await control.send(self._store, self.id, name, text, dedup=info.idempotency_key, by=by_whom)
            return True

        return await outward("send", send, (self.id, name, text))

    async def _act(self, name: str, act: Callable[..., Any], by: str | None, note: str) -> Any:
        """Do something to the run; inside another run, as a durable call of that one."""
        scope = scope_or_none()
        if scope is None or scope.body is not None:
            return await act(self._store, self.id, by=by, note=note)
        caller = scope.run.id

        async def told(run_id: str) -> str:
            return str(await act(self._store, self.id, by=by or f"run {caller}", note=note) or Status.cancelled)

        return await outward(name, told, (self.id,))

    async def interrupt(self, message: Any, *, by: str | None = None, timeout: float | None = None) -> Any:
        """Interrupt the run with a message, and return what its handler replies.

        The agent declares the handler with `@my_agent.on_interrupt`. The main line is held at its next durable call
        while the handler works, and goes on where it was. RunFinished if the run ends before.

        Example: `print(await run.interrupt("how far are you?"))`
        """
        text = coder_for(Any).dumps(message, what="the message")
        number = await control.interrupt(self._store, self.id, text, by=by)
        async with asyncio.timeout(timeout):
            return await self._reply(number)

    async def _reply(self, number: int) -> Any:
        seen, wait_s = 0, 0.005
        while True:
            row = await self._row()
            for record in await self._store.records(self.id, after=seen) if row.head_seq > seen else ():
                seen = record.seq
                if record.name != _REPLY_NAME:
                    continue
                note = json.loads(await stored_text(self._store, self.id, record.payload))
                if note.get("mail") != number:
                    continue
                if record.kind == Kind.failed:
                    raise decode_error(note["reply"], ())
                return coder_for(Any).loads(note["reply"], what="the reply")
            if row.status.is_final:
                raise RunFinished(
                    f"Run {self.id} was {row.status} before it replied to the interrupt.", status=row.status
                )
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, 0.2)

    async def questions(self, *, only_open: bool = True) -> list[Question]:
        """What the run asks people, oldest first; with `only_open=False` also what was decided.

        Inside a run this is a plain look, not recorded: read it in a step if what follows depends on it.

        Example: `for question in await run.questions(): await question.answer(True)`
        """
        rows = await self._store.questions(run_id=self.id, only_open=only_open)
        return [Question.of(self._store, row) for row in rows]

    async def retry(self, *, by: str | None = None, note: str = "") -> None:
        """Open a failed or cancelled run again: what ended it is done anew, everything before it is kept.

        Example: `await run.retry(note="the API is back")`
        """
        row = await self._row()
        refuse_empty(row)
        if row.status not in (Status.failed, Status.cancelled):
            raise UsageError(f"Run {self.id} is {row.status}; only failed and cancelled runs can be retried.")
        await self._executor().take_up(self.id, reopen=(control.actor(by), note))

    def _executor(self) -> Here:
        if self._here is None or not self._here.executes:
            raise UsageError("This app executes nothing: pass the agents to hf.connect(agents=[…]).")
        return self._here


def _waited_for(run_id: str, reason: Mapping[str, Any]) -> tuple[str, str]:
    """What a run waits for that only somebody else can do, and how."""
    for wait in reason.get("waits", []):
        match wait["kind"]:
            case "question":
                return f"asks: {wait['prompt']} Answer with `{{command}}`.", f"holdfast answer {wait['question']}"
            case "signal":
                return (
                    f"waits for signal {wait['name']!r}; send it with `{{command}}`.",
                    f"holdfast send {run_id} " + str(wait["name"]),
                )
            case "child":
                child = wait["child"]
                return f"waits for {child}, which cannot go on by itself; see `{{command}}`.", f"holdfast show {child}"
    return "waits; see `{command}`.", f"holdfast show {run_id}"


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
