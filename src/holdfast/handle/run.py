"""What a caller holds of a run, wherever it executes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Generic, TypeVar, overload

from holdfast.base.clock import in_seconds, monotonic_us
from holdfast.codec import MISSING, Coder, coder_for, coder_of
from holdfast.control import lifecycle, signals
from holdfast.control.acting import actor
from holdfast.durations import Duration
from holdfast.errors import RunFinished, UsageError
from holdfast.handle import forks
from holdfast.handle.acts import durable, is_in_run, look, refused, refused_following
from holdfast.handle.awaiting import AwaitedEnd, is_stuck
from holdfast.handle.decisions import InDoubt, Question
from holdfast.handle.here import Here, LocalExecution
from holdfast.handle.watching import changes, limit_s, within
from holdfast.history.artifacts import outputs_of
from holdfast.history.checkpoints import CheckpointInfo, StateChange, checkpoints_of, difference_of, state_of
from holdfast.history.doubts import doubts_of
from holdfast.history.forks import ForkPlan
from holdfast.history.info import RunInfo, info_of
from holdfast.history.lookup import is_lost, row_of
from holdfast.history.needs import Needs
from holdfast.history.pages import history, receipts_of_run
from holdfast.history.receipts import Receipt
from holdfast.history.replies import Replies
from holdfast.history.results import states_of
from holdfast.history.streams import events
from holdfast.history.timeline import TimelineItem
from holdfast.journal.tombstones import refuse_empty
from holdfast.journal.verification import Verification, verify
from holdfast.model import QuestionRow, QuestionState, RunId, RunRow, Status, StreamEvent, ThreadId
from holdfast.model.budgets import Budget
from holdfast.running.artifacts import Artifact
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent
from holdfast.verbs.remote import act_on, interrupt_in, recorded, send_to, wait_end
from holdfast.verbs.signal import Signal

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Run(Generic[R_co]):
    """A run, wherever it executes: look at it, wait for it, act on it.

    `token` ("run@thread") is all that another process needs to find it again.
    """

    def __init__(self, store: Store, run_id: RunId, thread_id: ThreadId, *, here: Here | None) -> None:
        self._store = store
        self._here = here
        self.id = run_id
        self.thread_id = thread_id
        self._end = AwaitedEnd(store, run_id, self.token, here=here)

    def _of(self, agent: Agent[..., Any] | None) -> Run[Any]:
        """The same, with an agent whose type its result has; whether it is of that agent shows when it is read."""
        if agent is not None and not isinstance(agent, Agent):
            raise UsageError(f"get() takes a token, and a function decorated with @hf.agent; got {agent!r}.")
        self._end.agent = agent
        return self

    @property
    def token(self) -> str:
        """The resume token."""
        return f"{self.id}@{self.thread_id}"

    def __repr__(self) -> str:
        return f"<run {self.token}>"

    async def _row(self) -> RunRow:
        return await row_of(self._store, self.id)

    # looking

    @look
    async def info(self) -> RunInfo:
        """Where the run stands, in one object.

        Example: `print((await run.info()).now)`
        """
        row = await self._row()
        return info_of(row, is_lost=await is_lost(self._store, row))

    @look
    async def status(self) -> Status:
        """Where the run stands, in one word."""
        return (await self._row()).status

    @look
    async def history(self, *, after: int = 0, limit: int | None = None) -> list[TimelineItem]:
        """Everything that happened, in order: calls, attempts, outages; or a page of it, behind the `seq` of an item.

        Example: `page = await run.history(after=page[-1].seq, limit=100)`
        """
        return await history(self._store, self.id, after=after, limit=limit)

    @look
    async def states(self) -> list[Any]:
        """The states that a reducer went through, the first one included, as plain values.

        Example: `before, after = (await run.states())[-2:]`
        """
        return await states_of(self._store, self.id)

    @look
    async def checkpoints(self) -> list[CheckpointInfo]:
        """The turns of the run, oldest first: when each began, and how large its state is. Empty without `hf.turns`.

        Example: `turns = [each.turn for each in await run.checkpoints()]`
        """
        return await checkpoints_of(self._store, self.id)

    @look
    async def state(self, turn: int | None = None) -> Any:
        """The state that a turn began with, as plain JSON; without a turn, the last one.

        UsageError if there is no such turn; CorruptJournal if what is stored is not what was written.

        Example: `print((await run.state())["history"][-1])`
        """
        return await state_of(self._store, self.id, turn)

    @look
    async def diff(self, a: int, b: int) -> list[StateChange]:
        """What differs between the states that two turns began with.

        Example: `for change in await run.diff(3, 4): print(change.kind, change.path)`
        """
        return await difference_of(self._store, self.id, turns=(a, b))

    @look
    async def receipts(self) -> list[Receipt]:
        """One for each time the run was resumed: what was replayed, what was executed, what that saved."""
        return await receipts_of_run(self._store, self.id)

    @look
    async def artifacts(self, *, check: bool = True) -> list[Artifact]:
        """Everything durable that the run has put out: its record, files and references with versions, workspaces.

        With `check`, all stored bytes are compared with their digests: `state` is `stored`, `missing` or `damaged`.

        Example: `for artifact in await run.artifacts(): print(artifact.name, artifact.version, artifact.state)`
        """
        return [
            Artifact._of(self.id, each, self._store) for each in await outputs_of(self._store, self.id, check=check)
        ]

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
            refuse_empty(await row_of(self._store, self.id))
            return [asdict(doubt) for doubt in await doubts_of(self._store, self.id)]

        found = await (recorded("in_doubt", find, (self.id,)) if is_in_run() else find(self.id))
        return [InDoubt(self._store, self.id, **each) for each in found]

    # waiting

    @durable
    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end of the run: what the agent returned, or RunFailed, RunCancelled, RunBlocked, NeedsHuman.

        Example: `text = await run.result(timeout=60)`
        """
        timeout_s = limit_s(timeout, "Run.result(timeout=)")
        if is_in_run():
            agent, status, text = await wait_end(self._store, self.id, timeout_s)
            awaited: R_co = self._end.read(agent, status, None, text)
            return awaited
        async with within(timeout_s, f"Run {self.id} did not come to its end"):
            row, text = await self._end.decided(is_stuck)
        value: R_co = self._end.read(row.agent, row.status, row.reason, text)
        return value

    @look
    async def _ended(self, execution: LocalExecution | None) -> Callable[[Coder[Any]], Any] | None:
        """The result if the run has ended, to be read by a coder (or raised); `execution` was the last one here."""
        return await self._end.read_if_over(execution)

    @refused("use `await run.result()` there")
    async def _result_or_needs(
        self, timeout: Duration | None = None, *, tell: Callable[[Needs], None] = lambda _: None, stays: bool = False
    ) -> R_co:
        """As `result`, but a run that waits for a person or a signal raises NeedsHuman.

        It does not if something is due within a minute, or if whoever asks `stays`. `tell` hears what is needed
        whenever it is looked at.
        """
        timeout_s = limit_s(timeout, "Run._result_or_needs(timeout=)")
        value: R_co = await self._end.result_or_needs(timeout_s, tell=tell, stays=stays)
        return value

    @refused("use `await run.questions()`")
    async def question(self, timeout: Duration | None = None) -> Question:
        """Wait until the run asks a person something: the question that is open longest.

        TimeoutError if it asks nothing in time, RunFinished if it is over and asks nothing any more.

        Example: `question = await run.question(timeout=60); await question.answer(True)`
        """
        status = Status.done
        async with within(limit_s(timeout, "Run.question(timeout=)"), f"Run {self.id} asked nothing"):
            async for row, _ in changes(self._store, self.id):
                status = row.status
                if found := await self._store.questions(run_id=self.id, limit=1):
                    return Question._of(self._store, found[0])
        raise RunFinished(f"Run {self.id} is {status}; it asks nothing any more.", status=status)

    @refused_following("use `await run.result()`")
    async def watch(self) -> AsyncIterator[RunInfo]:
        """How the run stands: now, and whenever that has changed, until it is over. Steps in between may be left out.

        Example: `async for info in run.watch(): print(info.status, info.now)`
        """
        async for row, is_cut_off in changes(self._store, self.id):
            yield info_of(row, is_lost=is_cut_off)

    def stream(self, name: str = "output", *, offset: int | None = None) -> AsyncIterator[StreamEvent]:
        """What bodies of the run write with `hf.stream(name)`: each event behind `offset` once, in order, to its end.

        `offset` is the number of the last event that you have, 0 for all; without one it begins at the last reset.

        Example: `async for event in run.stream(): print(event.text, end="", flush=True)`
        """
        if self._store.home is not None:
            self._store.home.check("Run.stream()")
        return events(self._store, self.id, name, offset=offset)

    # acting

    @durable
    async def pause(self, *, by: str | None = None, note: str = "") -> Status:
        """Stop the run at its next durable boundary, timers included: `paused`, or what it is if it has ended.

        A body under way ends first. Inside a run this is a durable call.

        Example: `await run.pause(note="the API is down")`
        """
        return Status(await self._act("pause", lifecycle.pause, by, note))

    @durable
    async def resume(self, *, budget: Budget | None = None, by: str | None = None, note: str = "") -> None:
        """Have the run go on: paused, it goes on; blocked, it is tried again; left over, it is taken over.

        One that waits is replayed with the code as it is now, and waits on if that still does. On a live or final run
        nothing happens; a quarantined one raises CorruptJournal. An app that knows the agent executes it, else any
        worker does. Who did it and why is recorded. Inside a run this is a durable call, and any worker executes it.

        `budget`: what the run may use from now on, with all that comes of it; limits that are not given stay. Those
        that came of it and are blocked because it was used up go on, too. What is blocked because something changed
        outside goes on with what is there now.

        Example: `await run.resume(budget=hf.Budget(cost=10.0), note="it is worth it")`
        """
        here = self._here
        if budget is not None and not isinstance(budget, Budget):
            raise UsageError(f"resume(budget=) takes a Budget, like hf.Budget(cost=10.0); got {budget!r}.")
        if is_in_run():
            await self._act("resume", partial(lifecycle.go_on, budget=budget), by, note)
            if here is not None:
                here.started.add(self.id)
            return
        row = await self._row()
        may_be_here = here is not None and here.executes and row.agent in here.agents
        await lifecycle.go_on(self._store, self.id, by=by, note=note, requeues=not may_be_here, budget=budget)
        if row.status.is_final:
            return
        if here is not None:
            here.started.add(self.id)
            if may_be_here:
                await here.take_up(self.id, act=(actor(by), note))

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
        give_up = monotonic_us() + int(in_seconds(timeout, "Run.cancel(timeout=)", may_be_over=True) * 1_000_000)
        ended, wait_s = await self._cancel(by=by, note=note, kill=kill), 0.002
        while ended is None and not is_in_run():
            row = await self._row()
            if row.status.is_final:
                return row.status
            if monotonic_us() > give_up:
                return Status.cancelled if row.summary.get("cancelling") else row.status
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, 0.1)
        return ended or Status.cancelled

    async def _cancel(self, *, by: str | None, note: str, kill: bool) -> Status | None:
        told = await self._act("cancel", partial(lifecycle.cancel, kill=kill), by, note)
        return None if told is None else Status(told)

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
        if not isinstance(name, str):
            raise UsageError(f"send() takes a Signal, or the name of one; got {signal!r}.")
        coder: Coder[Any] = coder_for(signal.type) if isinstance(signal, Signal) else coder_of(value)
        text = coder.dumps(value, what=f"signal {name}")
        if is_in_run():
            if transaction is not None:
                raise UsageError("Run.send(transaction=) was called inside a run; call it in the body of an effect.")
            return await send_to(self.id, name, text, self._send, dedup=dedup, by=by)
        if transaction is not None:
            await signals.send_later(self._store, transaction, self.id, name, text, dedup=dedup, by=by)
            return True
        return await self._send(name, text, dedup=dedup, by=by)

    async def _send(self, name: str, text: str, *, dedup: str | None, by: str | None) -> bool:
        takes = self._here.takes(self.id) if self._here is not None else None
        return await signals.send(self._store, self.id, name, text, dedup=dedup, by=by, takes=takes)

    async def _act(self, name: str, act: Callable[..., Any], by: str | None, note: str) -> Any:
        """Do something to the run; inside another run, as a durable call of that one."""
        if not is_in_run():
            return await act(self._store, self.id, by=by, note=note)
        return await act_on(self._store, self.id, name, act, by=by, note=note)

    @durable
    async def interrupt(self, message: Any, *, by: str | None = None, timeout: Duration | None = None) -> Any:
        """Interrupt the run with a message, and return what its handler replies.

        The agent declares the handler with `@my_agent.on_interrupt`. The main line is held at its next durable call
        while the handler works, and goes on where it was. RunFinished if the run ends before. Inside a run this is a
        durable call: a replay does not interrupt again, and has the reply at once.

        Example: `print(await run.interrupt("how far are you?"))`
        """
        timeout_s = limit_s(timeout, "Run.interrupt(timeout=)")
        text = coder_for(Any).dumps(message, what="the message")
        if is_in_run():
            return await interrupt_in(self._store, self.id, text, by=by, timeout_s=timeout_s)
        number = await self._interrupt(text, by=by)
        replies, wait_s = Replies(self._store, self.id, number), 0.005
        async with within(timeout_s, f"Run {self.id} did not reply to the interrupt"):
            while (reply := await replies.look(await self._row())) is None:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 1.5, 0.2)
        return replies.read(reply)

    async def _interrupt(self, text: str, *, by: str | None) -> int:
        return await signals.interrupt(self._store, self.id, text, by=by)

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
        await self._executor().take_up(self.id, reopen=(actor(by), note))

    @look
    async def fork_plan(self, at: int | None = None, *, turn: int | None = None) -> ForkPlan:
        """What a fork behind this record (None: the last), or at the head of a `turn`, would be; nothing is changed.

        Example: `print("\\n".join((await run.fork_plan(12)).sentences))`
        """
        return await forks.plan(self._store, self.id, forks.Wanted(at, turn))

    @refused("fork it from outside")
    async def fork(
        self,
        at: int | None = None,
        *,
        turn: int | None = None,
        state: Any = MISSING,
        results: Mapping[str, Any] | None = None,
        id: str | None = None,
        thread_id: str | None = None,
        by: str | None = None,
        note: str = "",
    ) -> Run[R_co]:
        """Make a new run of what this one had done by a record, and have it go on from there. This one stays as it is.

        Calls that had ended answer as they did, or with `results` (by key); what follows is done anew, under other
        keys. If an effect, child or saga was open there, it begins before that. `turn`, `state`: of a run with turns.

        Example: `better = await run.fork(12, results={"search#1": ["tides"]}, note="what if it had found this")`
        """
        wanted = forks.Wanted(at, turn, state=state, results=results, run_id=id, thread_id=thread_id)
        return await self._fork(wanted, by=by, note=note)

    @refused("fork it from outside")
    async def _fork(self, wanted: forks.Wanted, *, by: str | None, note: str) -> Run[R_co]:
        row = await forks.fork(self._store, self.id, wanted, by=by, note=note)
        if self._here is not None:
            self._here.started.add(row.id)
        return Run(self._store, row.id, row.thread_id, here=self._here)._of(self._end.agent)

    def _executor(self) -> Here:
        if self._here is None or not self._here.executes:
            raise UsageError("This app executes nothing: pass the agents to hf.connect(agents=[…]).")
        return self._here
