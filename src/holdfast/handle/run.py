"""What a caller holds of a run, wherever it executes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, overload

from holdfast.base.clock import in_seconds, monotonic_us
from holdfast.base.hints import hint
from holdfast.base.tracebacks import trimmed
from holdfast.codec import Coder, coder_for, coder_of, decode_error
from holdfast.control import control
from holdfast.control.doubts import doubts_of
from holdfast.durations import Duration
from holdfast.errors import (
    ConflictingSend,
    CorruptJournal,
    NeedsHuman,
    RunBlocked,
    RunCancelled,
    RunFailed,
    RunNotFound,
    UsageError,
)
from holdfast.handle.acts import durable, is_in_run, look, refused
from holdfast.handle.people import InDoubt, Question
from holdfast.history.history import (
    Receipt,
    RunInfo,
    TimelineItem,
    info_of,
    receipts_of,
    timeline_of,
)
from holdfast.history.needs import STUCK, Needs, doubts_needed, needs_of
from holdfast.history.replies import REPLY, Replies
from holdfast.journal.blobs import stored_text
from holdfast.journal.blocks import told
from holdfast.journal.integrity import check_records, check_row
from holdfast.journal.tombstones import is_elsewhere, refuse_elsewhere, refuse_empty
from holdfast.journal.verification import Verification, verify
from holdfast.model import Kind, QuestionRow, QuestionState, Record, RunId, RunRow, Status, ThreadId
from holdfast.running.scopes import in_branch
from holdfast.store.contract import Store
from holdfast.verbs.child import Agent
from holdfast.verbs.outward import Awaited, outward, recorded, wait_for
from holdfast.verbs.signal import Signal
from holdfast.verbs.values import this_step

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_POLL_S = 0.05
_NEEDING = frozenset({Status.waiting, Status.paused, Status.in_doubt})
_REPLY = "hf:reply"
_RESULT = "hf:result"
_DONE = {"pause": Status.paused.value, "cancel": Status.cancelled.value, "resume": ""}
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
    raised: dict[RunId, BaseException] | None  #: what runs raised that failed here, if that is kept

    def local(self, run_id: RunId) -> Ending | None: ...

    def takes(self, run_id: RunId) -> control.Takes | None: ...

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
        self._agent: Agent[..., Any] | None = None  # that whoever holds this says it is of
        self.id = run_id
        self.thread_id = thread_id

    def _of(self, agent: Agent[..., Any] | None) -> Run[Any]:
        """The same, with an agent whose type its result has; whether it is of that agent shows when it is read."""
        if agent is not None and not isinstance(agent, Agent):
            raise UsageError(f"get() takes a token, and a function decorated with @hf.agent; got {agent!r}.")
        self._agent = agent
        return self

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

    @look
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

    @look
    async def status(self) -> Status:
        """Where the run stands, in one word."""
        return (await self._row()).status

    @look
    async def history(self) -> list[TimelineItem]:
        """Everything that happened, in order: calls, attempts, outages, settlements."""
        row, records = await self._load()
        return timeline_of(row, records, is_lost=await self._is_lost(row))

    @look
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

    @look
    async def receipts(self) -> list[Receipt]:
        """One for each time the run was resumed: what was replayed, what was executed, what that saved."""
        return receipts_of(*await self._load())

    @look
    async def verify_journal(self) -> Verification:
        """Check every stored byte of the run against its hashes; nothing is changed."""
        return await verify(self._store, self.id)

    @durable
    async def in_doubt(self) -> list[InDoubt]:
        """The effects that may or may not have happened and that a person must settle.

        Inside a run what it finds is recorded, as that of a step: a replay settles the same ones.
        """

        async def find(run_id: str) -> list[dict[str, Any]]:
            await self._load()  # raises if there is nothing to look at
            return [asdict(doubt) for doubt in await doubts_of(self._store, self.id)]

        found = await (recorded("in_doubt", find, (self.id,)) if is_in_run() else find(self.id))
        return [InDoubt(self._store, self.id, **each) for each in found]

    # waiting

    @durable
    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end of the run: what the agent returned, or RunFailed, RunCancelled, RunBlocked, NeedsHuman.

        Example: `text = await run.result(timeout=60)`
        """
        timeout_s = _limit_s(timeout, "Run.result(timeout=)")
        if is_in_run():
            awaited: R_co = await self._result_in_run(timeout_s)
            return awaited
        async with asyncio.timeout(timeout_s):
            row, text = await self._wait_decided(_is_stuck)
        value: R_co = self._outcome(row.status, row.reason, text, self._coder(row.agent))
        return value

    async def _result_in_run(self, timeout_s: float | None) -> Any:
        own_id = in_branch("Run.result()").run.id

        async def find_end() -> tuple[tuple[str, str, str] | None, bool]:
            row = await self._row()
            is_told = row.parent_id == own_id  # a child tells of its end
            if not row.status.is_final:
                return None, is_told
            row, text = await self._end()
            return (row.agent, row.status.value, text), is_told

        awaited = Awaited("Run.result()", _RESULT, self.id, self.id, f"{self.id} did not end in time")
        agent, status, text = await wait_for(awaited, find_end, _END, timeout_s)
        return self._outcome(Status(status), None, text, self._coder(agent))

    def _coder(self, agent_name: str) -> Coder[Any]:
        agent = self._agent
        if agent is None:
            agent = self._here.agents.get(agent_name) if self._here is not None else None
        elif agent.name != agent_name:
            raise UsageError(f"Run {self.id} is of agent {agent_name!r}, not {agent.name!r}.")
        return agent.coder if agent is not None else coder_for(Any)

    @look
    async def _ended(self, execution: Ending | None) -> Callable[[Coder[Any]], Any] | None:
        """The result of a run that has ended, to be read by a coder (or raised); `execution` was the last one here."""
        if execution is not None and execution.error is None and execution.row.status.is_final:
            row, text = execution.row, execution.outcome or "null"
        else:
            row = await self._row()
            if not row.status.is_final:
                return None
            row, text = await self._end()
        return lambda coder: self._outcome(row.status, row.reason, text, coder)

    async def _wait_decided(self, leaves: Callable[[RunRow], Awaitable[bool]]) -> tuple[RunRow, str]:
        """Wait until the run is over, or `leaves` says that it is not waited for; what it ended with, as JSON text."""
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
            if await leaves(row):
                refuse_elsewhere(row)
                return row, "null"
            await asyncio.sleep(min(_POLL_S + waited_s / 20, 0.5))
            waited_s += _POLL_S

    @refused("use `await run.result()` there")
    async def _result_or_needs(
        self,
        timeout: Duration | None = None,
        *,
        tell: Callable[[Needs], None] = lambda needs: None,
        stays: bool = False,
    ) -> R_co:
        """As `result`, but a run that waits for a person or a signal raises NeedsHuman.

        It does not if something is due within a minute, or if whoever asks `stays`. `tell` hears what is needed
        whenever it is looked at.
        """
        needs = Needs((), None, False)

        async def leaves(row: RunRow) -> bool:
            nonlocal needs
            if row.status not in _NEEDING or is_elsewhere(row):
                return row.status in STUCK or is_elsewhere(row)
            needs = await needs_of(self._store, row)
            tell(needs)
            return not stays and needs.is_far

        async with asyncio.timeout(_limit_s(timeout, "Run._result_or_needs(timeout=)")):
            row, text = await self._wait_decided(leaves)
        if row.status in _NEEDING:
            raise self._needs(needs)
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
                raise self._needs(Needs(tuple(doubts_needed(self.id, f"Run {self.id}", reason)), None, False))
            case Status.quarantined:
                raise CorruptJournal(reason.get("detail", f"Run {self.id} is quarantined."), run_id=self.id)
            case Status.done:
                return coder.loads(text, what=f"the result of run {self.id}")
            case Status.failed:
                live = ((self._here.raised if self._here is not None else None) or {}).get(self.id)
                error = decode_error(text, ())
                if live is not None:
                    error.__traceback__ = trimmed(live.__traceback__)
                raise RunFailed(
                    f"Run {self.id} failed: {type(error).__name__}: {error}", run_id=self.id, token=token
                ) from error
            case _:
                cause = decode_error(text, ()) if text != "null" else None
                raise RunCancelled(f"Run {self.id} was cancelled.", run_id=self.id, token=token) from cause

    def _needs(self, needs: Needs) -> NeedsHuman:
        text = "\n".join(need.text for need in needs.open) or f"Run {self.id} waits."
        command = needs.open[0].command if needs.open else hint("show", self.id)
        return NeedsHuman(text, run_id=self.id, token=self.token, command=command)

    # acting

    @durable
    async def pause(self, *, by: str | None = None, note: str = "") -> Status:
        """Stop the run at its next durable boundary, timers included: `paused`, or what it is if it has ended.

        A body under way ends first. Inside a run this is a durable call.

        Example: `await run.pause(note="the API is down")`
        """
        return Status(await self._act("pause", control.pause, by, note))

    @durable
    async def resume(self, *, by: str | None = None, note: str = "") -> None:
        """Have the run go on: paused, it goes on; blocked, it is tried again; left over, it is taken over.

        One that waits is replayed with the code as it is now, and waits on if that still does. On a live or final run
        nothing happens; a quarantined one raises CorruptJournal. An app that knows the agent executes it, else any
        worker does. Who did it and why is recorded. Inside a run this is a durable call, and any worker executes it.

        Example: `await run.resume(note="the call is back in the code")`
        """
        here = self._here
        if is_in_run():
            await self._act("resume", control.go_on, by, note)
            if here is not None:
                here.started.add(self.id)
            return
        row = await self._row()
        may_be_here = here is not None and here.executes and row.agent in here.agents
        await control.go_on(self._store, self.id, by=by, note=note, requeues=not may_be_here)
        if row.status.is_final:
            return
        if here is not None:
            here.started.add(self.id)
            if may_be_here:
                await here.take_up(self.id, act=(control.actor(by), note))

    @durable
    async def cancel(
        self, *, by: str | None = None, note: str = "", kill: bool = False, timeout: Duration = 10.0
    ) -> Status:
        """Cancel the run and say the truth: `cancelled`, or what it ended as before.

        What executes is cancelled within milliseconds; its sagas undo and its clean-up runs first, for as long as that
        takes (after `timeout` this returns `cancelled` all the same, once it is on disk that it will be). A run
        that waits and has no saga to undo ends at once: its `finally` blocks are not in memory. Children follow. `kill`
        ends the run without asking its code, for what does not yield: its owner can write nothing more. Inside a run
        this is a durable call, and does not wait.

        Example: `if await run.cancel() is hf.Status.done: print("too late")`
        """
        if is_in_run():
            return Status(await self._act("cancel", partial(control.cancel, kill=kill), by, note))
        give_up = monotonic_us() + int(in_seconds(timeout, "Run.cancel(timeout=)", may_be_over=True) * 1_000_000)
        ended = await control.cancel(self._store, self.id, by=by, note=note, kill=kill)
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

    @overload
    async def send(
        self,
        signal: Signal[T],
        value: T,
        *,
        dedup: str | None = None,
        by: str | None = None,
        transaction: Any = None,
    ) -> bool: ...
    @overload
    async def send(
        self,
        signal: Signal[None] | str,
        value: Any = None,
        *,
        dedup: str | None = None,
        by: str | None = None,
        transaction: Any = None,
    ) -> bool: ...
    @durable
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
        if is_in_run():
            if transaction is not None:
                raise UsageError("Run.send(transaction=) was called inside a run; call it in the body of an effect.")
            return bool(await self._send_in_run(name, text, dedup, by))
        if transaction is not None:
            await control.send_later(self._store, transaction, self.id, name, text, dedup=dedup, by=by)
            return True
        return await self._post(name, text, dedup=dedup, by=by)

    async def _post(self, name: str, text: str, *, dedup: str | None, by: str | None) -> bool:
        takes = self._here.takes(self.id) if self._here is not None else None
        return await control.send(self._store, self.id, name, text, dedup=dedup, by=by, takes=takes)

    async def _send_in_run(self, name: str, text: str, dedup: str | None, by: str | None) -> Any:
        async def send(run_id: str, name: str, text: str) -> bool:
            info = this_step()
            by_whom = by or f"run {info.run_id}"
            if dedup is not None:
                return await self._post(name, text, dedup=dedup, by=by_whom)
            with suppress(ConflictingSend):  # its own id: it was sent just before a crash, whatever the code says now
                await self._post(name, text, dedup=info.idempotency_key, by=by_whom)
            return True

        return await outward("send", send, (self.id, name, text))

    async def _act(self, name: str, act: Callable[..., Any], by: str | None, note: str) -> Any:
        """Do something to the run; inside another run, as a durable call of that one."""
        if not is_in_run():
            return await act(self._store, self.id, by=by, note=note)

        async def told(run_id: str) -> str:
            info = this_step()
            own_id = info.idempotency_key
            if info.attempt > 1 and await control.was_done(self._store, self.id, own_id):
                return _DONE[name]  # just before a crash; who acted since then is not overridden
            by_whom = by or f"run {info.run_id}"
            return str(await act(self._store, self.id, by=by_whom, note=note, own_id=own_id) or _DONE[name])

        return await outward(name, told, (self.id,))

    @durable
    async def interrupt(self, message: Any, *, by: str | None = None, timeout: Duration | None = None) -> Any:
        """Interrupt the run with a message, and return what its handler replies.

        The agent declares the handler with `@my_agent.on_interrupt`. The main line is held at its next durable call
        while the handler works, and goes on where it was. RunFinished if the run ends before. Inside a run this is a
        durable call: a replay does not interrupt again, and has the reply at once.

        Example: `print(await run.interrupt("how far are you?"))`
        """
        timeout_s = _limit_s(timeout, "Run.interrupt(timeout=)")
        text = coder_for(Any).dumps(message, what="the message")
        if is_in_run():
            return await self._interrupt_in_run(text, by, timeout_s)
        number = await control.interrupt(self._store, self.id, text, by=by)
        replies, wait_s = Replies(self._store, self.id, number), 0.005
        async with asyncio.timeout(timeout_s):
            while (reply := await replies.look(await self._row())) is None:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 1.5, 0.2)
        return replies.read(reply)

    async def _interrupt_in_run(self, text: str, by: str | None, timeout_s: float | None) -> Any:
        async def interrupt(run_id: str, text: str) -> int:
            info = this_step()
            by_whom = by or f"run {info.run_id}"
            return await control.interrupt(self._store, self.id, text, by=by_whom, dedup=info.idempotency_key)

        number = int(await outward("interrupt", interrupt, (self.id, text)))
        replies = Replies(self._store, self.id, number)

        async def find_reply() -> tuple[tuple[str, str] | None, bool]:
            return await replies.look(await self._row()), False

        awaited = Awaited("Run.interrupt()", _REPLY, self.id, f"{self.id}/{number}", f"{self.id} did not reply in time")
        return replies.read(await wait_for(awaited, find_reply, REPLY, timeout_s))

    @durable
    async def questions(self, *, only_open: bool = True) -> list[Question]:
        """What the run asks people, oldest first; with `only_open=False` also what was decided.

        Inside a run what it finds is recorded, as that of a step: a replay answers the same ones.

        Example: `for question in await run.questions(): await question.answer(True)`
        """

        async def find(run_id: str, only_open: bool) -> list[dict[str, Any]]:
            found = await self._store.questions(run_id=self.id, only_open=only_open)
            return [asdict(row) | {"state": row.state.value} for row in found]

        asked = (self.id, only_open)
        rows = await (recorded("questions", find, asked) if is_in_run() else find(*asked))
        return [Question._of(self._store, QuestionRow(**row | {"state": QuestionState(row["state"])})) for row in rows]

    @refused("retry it from outside, or start a new run with `hf.start`")
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


def _limit_s(timeout: Duration | None, what: str) -> float | None:
    return None if timeout is None else in_seconds(timeout, what, may_be_over=True)


async def _is_stuck(row: RunRow) -> bool:
    """Can nobody but a person change it? A question, a signal or a pause is waited for: somebody may come."""
    return row.status in STUCK


def _blocked(run_id: RunId, token: str, reason: Mapping[str, Any]) -> RunBlocked:
    lines = [f"Run {run_id} is blocked: {reason.get('why', 'unknown')}.", *told(run_id, reason)]
    return RunBlocked("\n".join(lines), run_id=run_id, token=token, reason=dict(reason))
