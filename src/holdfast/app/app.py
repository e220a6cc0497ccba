"""The composition root: `connect()` makes an app, `run()` is the one bridge from ordinary code."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from holdfast.app.administration import Administration
from holdfast.app.interruption import Interruption, is_default, left_safe
from holdfast.automation.outbox import Outbox, start_later
from holdfast.base.characters import escaped
from holdfast.base.clock import due_us
from holdfast.base.config import Settings, store_url
from holdfast.base.data import data
from holdfast.base.hints import about_store, resume_hint
from holdfast.base.telemetry import info
from holdfast.base.tracebacks import show_trimmed
from holdfast.codec import Input, input_of, schema
from holdfast.control import control, doubts
from holdfast.control.filters import Filters, run_filter
from holdfast.control.upkeep.retention import Retention
from holdfast.durations import Duration
from holdfast.errors import RunFinished, RunMoved, RunNotFound, StoreError, Undecodable, UsageError
from holdfast.handle.acts import is_in_run, look, refused
from holdfast.handle.people import InDoubt, Question
from holdfast.handle.run import Run
from holdfast.history.history import RunInfo, as_time, info_of
from holdfast.history.needs import Needs
from holdfast.model import FINAL, RunId, Status, ThreadId
from holdfast.running.scopes import scope_or_none
from holdfast.store import open_store
from holdfast.store.home import Home
from holdfast.verbs.child import Agent, Call
from holdfast.worker.attending import Attendant
from holdfast.worker.executor import Executor
from holdfast.worker.hiding import hide_url
from holdfast.worker.starting import ANYWHERE, NewRun, Place

if TYPE_CHECKING:
    from holdfast.automation.schedules.schedules import ScheduledStart
    from holdfast.automation.triggers import TriggeredStart

R = TypeVar("R")

_MOST = 1000  # runs acted on in one page


def connect(
    url: str | PathLike[str] | None = None,
    *,
    agents: Agent[..., Any] | Iterable[Agent[..., Any]] = (),
    concurrency: int = 100,
    queues: Iterable[str] | None = None,
    settings: Settings | None = None,
) -> Holdfast:
    """An app on a store; use it with `async with`. With `agents` this process executes, and takes up what others left.

    Without `agents` (one, or several) it is a client: runs that it starts wait for a worker. `url` is a path,
    sqlite:///path or postgresql://…; the default is $HOLDFAST_URL, else ./.holdfast/holdfast.db. At most `concurrency`
    runs execute here at once; runs are taken from these `queues` only, if they are given.

    Example:
        async with hf.connect(agents=[newsletter]) as app:
            run = await app.start(newsletter("tides"), id="issue-7")
            print(await run.result())
    """
    return Holdfast(
        store_url(url),
        agents=_several(agents),
        concurrency=concurrency,
        settings=settings or Settings(),
        queues=None if queues is None else tuple(queues),
    )


def _several(agents: Agent[..., Any] | Iterable[Agent[..., Any]]) -> tuple[Agent[..., Any], ...]:
    return tuple(agents) if isinstance(agents, Iterable) else (agents,)


@data
class WorkerInfo:
    """A process that executes runs."""

    id: str
    pid: int
    host: str
    started_at: datetime
    alive: bool
    proof: str | None  #: how it is known that it is dead: lock, boot, lease
    runs: int  #: that it owns


class Holdfast(Administration):
    """A connection to a store, and the executor of this process."""

    def __init__(
        self,
        url: str,
        *,
        agents: tuple[Agent[..., Any], ...],
        concurrency: int,
        settings: Settings,
        queues: tuple[str, ...] | None = None,
        only_own: bool = False,
    ) -> None:
        for agent in agents:
            if not isinstance(agent, Agent):
                raise UsageError(f"agents= takes functions decorated with @hf.agent, not {agent!r}.")
        if concurrency < 1:
            raise UsageError(f"concurrency= must be at least 1, not {concurrency}.")
        self.url = url
        self._agents = agents
        self._concurrency = concurrency
        self._settings = settings
        self._queues = queues
        self._only_own = only_own
        self._store = open_store(url, settings=settings)
        self._executor: Executor | None = None
        self._attendant: Attendant | None = None
        self._tending: asyncio.Task[None] | None = None
        self._drain_s = 0.0

    @look
    async def __aenter__(self) -> Holdfast:
        # Not at the top: schedules and triggers take as long to load as the rest of the worker.
        from holdfast.automation.schedules.schedules import Schedules
        from holdfast.automation.triggers import Triggers

        if self._agents and is_in_run():
            raise UsageError("An app that executes runs was opened inside a run. Open one without agents=, to look.")
        await self._store.open()
        if self._settings.hide_url:
            hide_url()
        self._store.home = Home()
        self._schedules = Schedules(self._store, self._start_scheduled, self._cancel_quietly)
        self._triggers = Triggers(self._store, self._start_triggered, self._signal)
        self._retention = Retention(self._store)
        executor = self._executor = Executor(
            self._store, self._settings, self._agents, self._concurrency, self._triggers.emit
        )
        if self._only_own:
            executor.raised = {}  # it lives as long as its run: tracebacks kept for longer would keep what they hold
        if self._agents:
            try:
                await executor.open()
            except BaseException:
                self._store.home = None
                await self._store.close()
                raise
            outbox = Outbox(self._store, executor.put)
            chores = (
                outbox.deliver_due,
                self._schedules.fire_due,
                self._triggers.deliver_due,
                self._retention.prune_due,
            )
            self._attendant = Attendant(
                executor,
                only_own=self._only_own,
                chores=() if self._only_own else chores,
                remedies=(self._schedules.put_right,),
            )
            self._attendant.queues = self._queues
            self._attendant.begin()
            if not self._only_own:
                self._tending = asyncio.create_task(self._triggers.run())
        return self

    @look
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        executor, self._executor = self._executor, None
        try:
            if self._tending is not None and self._tending.get_loop() is asyncio.get_running_loop():
                self._tending.cancel()
                await asyncio.wait({self._tending})
            if self._attendant is not None:
                await self._attendant.stop()
            if executor is not None:
                await self._retention.stop()
                await executor.close(drain_s=self._drain_s)
        finally:
            self._store.home = None
            await self._store.close()

    @property
    def _here(self) -> Executor:
        """What executes runs here; for the command line and for tests too."""
        if self._executor is None:
            raise UsageError("The app is not open: use `async with hf.connect(…) as app:`.")
        return self._executor

    # starting

    @refused("use `await hf.start(…)` there")
    async def start(
        self,
        call: Call[R],
        *,
        id: str | None = None,
        thread_id: str | None = None,
        queue: str | None = None,
        queue_key: str = "",
        priority: int = 0,
        delay: Duration | None = None,
        paused: bool = False,
        tags: Mapping[str, str] | None = None,
        transaction: Any = None,
    ) -> Run[R]:
        """Store a run. Once this returns, it survives whatever happens.

        An app with agents begins to execute it at once, if it has room; with a queue (or in a client) the run waits for
        a worker: runs of a queue go by `priority` (higher first), fairly between those with different `queue_key`, and
        not before `delay` has passed. `paused` ones wait until they are resumed. Starting an id that exists returns
        that run if agent and arguments are the same, else raises ConflictingStart.

        With `transaction`, a connection of your own to the same database with an open transaction, the run is started
        by a worker if and when that is committed; an id that exists is not noticed then.

        Example: `run = await app.start(newsletter("tides"), id="issue-7")`
        """
        if not isinstance(call, Call):
            raise UsageError(f"start() takes a call of an agent, like `my_agent(1, 2)`; got {call!r}.")
        if scope_or_none() is not None:
            raise UsageError("app.start() was called in the body of a step or effect; use `hf.start` in the agent.")
        here = self._here
        if here.executes and call.agent.name not in here.declared:
            raise UsageError(_unknown(call.agent.name, here.declared))
        place: Place | None = Place(queue, queue_key, priority, due_us(delay, "delay=") or 0, paused)
        if transaction is not None:
            new = NewRun.of(call, run_id=id, thread_id=thread_id, parent_id=None, tags=tags or {}, place=place)
            run_id, thread = await start_later(self._store, transaction, new)
            return here.handle(RunId(run_id), ThreadId(thread))._of(call.agent)
        if here.executes and place == ANYWHERE:
            place = None
        if here.executes:
            return await here.start(call, run_id=id, thread_id=thread_id, tags=tags, place=place)
        new = NewRun.of(call, run_id=id, thread_id=thread_id, parent_id=None, tags=tags or {}, place=place)
        run, _ = await here.put(new)
        return run._of(call.agent)

    async def _start_scheduled(self, start: ScheduledStart) -> None:
        place = Place(start.queue)
        given = Input.read(start.args_text, start.defaults)
        new = _new_run(start.agent, given, start.run_id, start.tags, place)
        await self._here.put(replace(new, scheduled_at=start.scheduled_at))

    async def _start_triggered(self, start: TriggeredStart) -> bool:
        known = await control.definition(self._store, start.agent)
        if not known.get("first"):
            raise UsageError(f"No worker has declared agent {start.agent!r} with an argument to take the event.")
        if problems := schema.problems_outside(known.get("takes"), start.text):
            found = "; ".join(problems[:5])
            raise Undecodable(f"The value does not fit {known['first']}= of agent {start.agent!r}: {found}.")
        given = input_of(known["first"], start.text, known.get("defaults", {}))
        place = Place(start.queue or known.get("queue"), start.queue_key)
        new = _new_run(start.agent, given, start.run_id, start.tags, place)
        _, is_new = await self._here.put(replace(new, outside=known["first"]))
        return is_new

    async def _signal(self, run_id: str, name: str, text: str, dedup: str) -> bool:
        return await control.send(self._store, RunId(run_id), name, text, dedup=dedup, by="event")

    async def _cancel_quietly(self, run_id: RunId) -> None:
        with suppress(RunNotFound, RunFinished, RunMoved):
            await control.cancel(self._store, run_id, by="schedule", note="")

    # finding

    @overload
    def get(self, token: str) -> Run[Any]: ...
    @overload
    def get(self, token: str, agent: Agent[..., R]) -> Run[R]: ...
    def get(self, token: str, agent: Agent[..., Any] | None = None) -> Run[Any]:
        """The handle of a run, by its token or id; it has no side effect and does not look whether the run exists.

        With its agent the result has the type that the agent returns, in a client too.

        Example: `text = await app.get("issue-7", newsletter).result()`
        """
        run_id, _, thread_id = token.partition("@")
        return self._here.handle(RunId(run_id), ThreadId(thread_id))._of(agent)

    @overload
    async def resume(self, token: str) -> Run[Any]: ...
    @overload
    async def resume(self, *, run_id: str, thread_id: str | None = None) -> Run[Any]: ...
    @refused("use `await hf.resume(…)` there")
    async def resume(
        self, token: str | None = None, *, run_id: str | None = None, thread_id: str | None = None
    ) -> Run[Any]:
        """Have a run go on, by its resume token or by its ids; a run that is live or final is left as it is.

        Example: `run = await app.resume(token); print(await run.result())`
        """
        given = token if token is not None else f"{run_id}@{thread_id}" if thread_id else run_id
        if not given:
            raise UsageError("resume() takes a token, or run_id=.")
        row = await control.find(self._store, given)
        run = self._here.handle(row.id, row.thread_id)
        self._here.started.add(row.id)
        await run.resume()
        return run

    @look
    async def find(self, given: str) -> Run[Any]:
        """The run that an id, a token, a unique prefix or `@last` names; RunNotFound, AmbiguousId.

        Example: `run = await app.find("@last")`
        """
        row = await control.find(self._store, given)
        return self._here.handle(row.id, row.thread_id)

    @look
    async def runs(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        **filters: Unpack[Filters],
    ) -> list[RunInfo]:
        """Runs, newest first, that all filters fit: `status`, `agent`, `thread_id`, `queue`, `tags`, `since` (a time,
        or how long ago it is). `after`: the last id of the page before.

        Example: `failed = await app.runs(status="failed", since=timedelta(days=1))`
        """
        which = run_filter(filters, limit=limit, after=after)
        dead = await self._store.dead_workers()
        return [info_of(row, is_lost=row.owner in dead) for row in await self._store.runs(which)]

    @look
    async def in_doubt(self) -> list[InDoubt]:
        """The effects of all runs that a person must settle.

        Example: `for doubt in await app.in_doubt(): print(doubt.run_id, doubt.key)`
        """
        found = await doubts.all_doubts(self._store)
        if is_in_run():  # what each run has is recorded
            handles = [
                self._here.handle(*which) for which in dict.fromkeys((row.id, row.thread_id) for row, _ in found)
            ]
            return [doubt for handle in handles for doubt in await handle.in_doubt()]
        return [InDoubt(self._store, row.id, **asdict(doubt)) for row, doubt in found]

    @look
    async def questions(self, *, only_open: bool = True, limit: int = 200) -> list[Question]:
        """What all runs ask people, oldest first.

        Example: `for question in await app.questions(): print(question.prompt)`
        """
        return [Question._of(self._store, row) for row in await self._store.questions(only_open=only_open, limit=limit)]

    @look
    async def question(self, given: str) -> Question:
        """The question with this id, or the one whose id starts so.

        Example: `await (await app.question("q_3f")).answer(True)`
        """
        found = await self._store.questions(id_prefix=given, only_open=False, limit=3)
        exact = [row for row in found if row.id == given] or found
        if not exact:
            raise RunNotFound(f"There is no question {given!r} in {self._store.url}; see `holdfast questions`.")
        if len(exact) > 1:
            raise UsageError(f"{given!r} fits several questions; give more of the id.")
        return Question._of(self._store, exact[0])

    # acting on many

    @refused("use `await hf.get(id).pause()` for each")
    async def pause_all(self, *, by: str | None = None, note: str = "", **filters: Unpack[Filters]) -> list[str]:
        """Pause every unfinished run that the filters of `runs()` name; the ids of those paused.

        Example: `await app.pause_all(agent="newsletter", note="maintenance")`
        """
        return [
            run.id
            for run in await self._unfinished(filters)
            if run.status is not Status.paused
            and await self._here.handle(RunId(run.id), ThreadId(run.thread_id)).pause(by=by, note=note) is Status.paused
        ]

    @refused("use `await hf.resume(id)` for each")
    async def resume_all(self, *, by: str | None = None, note: str = "", **filters: Unpack[Filters]) -> list[str]:
        """Have every paused run that the filters of `runs()` name go on; their ids. One about to be paused will not be.

        Example: `await app.resume_all(queue="mail")`
        """
        running = await self._unfinished({**filters, "status": Status.running})
        found = await self._unfinished({**filters, "status": Status.paused})
        every = {run.id: run for run in [*found, *running]}
        return [run_id for run_id in every if await control.resume(self._store, RunId(run_id), by=by, note=note)]

    @refused("use `await hf.get(id).cancel()` for each")
    async def cancel_all(
        self,
        *,
        by: str | None = None,
        note: str = "",
        kill: bool = False,
        timeout: Duration = 10.0,
        **filters: Unpack[Filters],
    ) -> list[str]:
        """Cancel every unfinished run that the filters of `runs()` name; the ids of those cancelled.

        Example: `await app.cancel_all(agent="newsletter", status="paused")`
        """
        cancelled: list[str] = []
        for run in await self._unfinished(filters):
            handle = self._here.handle(RunId(run.id), ThreadId(run.thread_id))
            if await handle.cancel(by=by, note=note, kill=kill, timeout=timeout) is Status.cancelled:
                cancelled.append(run.id)
        return cancelled

    async def _unfinished(self, filters: Filters) -> list[RunInfo]:
        found: list[RunInfo] = []
        last: str | None = None
        while page := await self.runs(limit=_MOST, after=last, **filters):
            found += [run for run in page if run.status not in FINAL]
            last = page[-1].id
        return found

    # working

    @look
    async def workers(self) -> list[WorkerInfo]:
        """The processes that execute runs of this store.

        Example: `for worker in await app.workers(): print(worker.id, worker.alive)`
        """
        dead = await self._store.dead_workers()
        return [
            WorkerInfo(
                id=worker.id,
                pid=worker.pid,
                host=worker.host,
                started_at=as_time(worker.started_at),
                alive=worker.id not in dead,
                proof=dead.get(worker.id),
                runs=len(await self._store.mail_counts(worker.id)),
            )
            for worker in await self._store.workers()
        ]

    @refused("a run is executed by a worker, and is none")
    async def work(self, queues: Sequence[str] | None = None) -> None:
        """Execute runs until SIGTERM or SIGINT, or until cancelled; then hand over what is under way.

        Bodies under way get `settings.drain_s` seconds to end when the app closes; runs that are not in a body are
        handed over at once. `queues`: take runs from these only.

        Example:
            async with hf.connect(agents=[newsletter]) as app:
                await app.work()
        """
        if self._attendant is None:
            raise UsageError("This app executes nothing: pass the agents to hf.connect(agents=[…]).")
        if queues is not None:
            self._attendant.queues = list(queues)
        self._attendant.nudge()
        self._drain_s = self._settings.drain_s
        gc.freeze()  # what is loaded by now stays; runs come and go by the thousand
        gc.set_threshold(20_000, 5, 10)
        stopped = asyncio.Event()
        loop, signals = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        if threading.current_thread() is threading.main_thread():
            for each in signals:
                loop.add_signal_handler(each, stopped.set)
        info("worker.started", worker=self._here.lease.worker_id, agents=sorted(self._here.agents))
        try:
            while not stopped.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), 1.0)
                if self._here.lease.is_lost:
                    raise StoreError("This worker was removed by another process; start a new one.")
                if self._store.failure is not None:
                    raise self._store.failure
            info("worker.stopping", worker=self._here.lease.worker_id, runs=len(self._here.executions))
            await self._attendant.stop()
        finally:
            if threading.current_thread() is threading.main_thread():
                for each in signals:
                    loop.remove_signal_handler(each)


def _unknown(agent: str, declared: Collection[str]) -> str:
    return (
        f"This app executes {', '.join(sorted(declared))}, and not {agent}: nobody would go on with the run after a "
        f"crash. Pass {agent} to hf.connect(agents=[…]) too, or start it in an app without agents=, for a worker that "
        "has it."
    )


def _new_run(agent: str, given: Input, run_id: str, tags: Mapping[str, str], place: Place) -> NewRun:
    return NewRun(
        agent,
        given.text,
        given.digest,
        run_id,
        tags=tags,
        place=place,
        args_given=given.given,
        defaults=given.defaults,
    )


def run(
    call: Call[R], *, id: str | None = None, thread_id: str | None = None, url: str | PathLike[str] | None = None
) -> R:
    """Execute an agent and return its result: start it, or go on with the run that has this id.

    Kill the process and call it again with the same id: it goes on where it was. A run that failed is opened again,
    because running a repaired script is the explicit act. If a person has to decide, NeedsHuman says what to do.

    Example: `print(hf.run(newsletter("tides"), id="issue-7"))`
    """
    started: list[Run[R]] = []
    interruption = Interruption(lambda: _interrupted(call, started, url))
    work = _run(call, id, thread_id, url, on_start=started.append)
    try:
        if _has_loop():
            work.close()
            name = call.agent.name if isinstance(call, Call) else "my_agent"
            raise UsageError(
                "hf.run() was called where an event loop runs already, as in a notebook: use "
                f"`await hf.arun({name}(…), id=…)` there, or `async with hf.connect(…) as app:` and app.start()."
            )
        return asyncio.run(interruption.guard(work) if is_default() else work)
    except BaseException as error:
        shown = KeyboardInterrupt(interruption.told()) if interruption.times else error
        show_trimmed(shown)
        if shown is error:
            raise
    raise shown


def _has_loop() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def _interrupted(call: Call[R], started: Sequence[Run[R]], url: str | PathLike[str] | None) -> str:
    """What the command says, too."""
    if not started:
        return "Interrupted."
    about_store(url if url is None else fspath(url))
    return f"Interrupted; {left_safe(started[0].id, resume_hint(started[0].id, call.agent._source))}"


async def arun(
    call: Call[R], *, id: str | None = None, thread_id: str | None = None, url: str | PathLike[str] | None = None
) -> R:
    """What `run` does, where an event loop runs already (a notebook): start a run, or go on with that of this id.

    Execute the cell again, after a restart of the kernel too: it goes on where it was.

    Example: `print(await hf.arun(newsletter("tides"), id="issue-7"))`
    """
    return await _run(call, id, thread_id, url, on_start=lambda run: None)


async def _run(
    call: Call[R],
    id: str | None,
    thread_id: str | None,
    url: str | PathLike[str] | None,
    *,
    on_start: Callable[[Run[R]], object],
) -> R:
    if not isinstance(call, Call):
        raise UsageError(f"hf.run() and hf.arun() take a call of an agent, like `my_agent(1, 2)`; got {call!r}.")
    app = Holdfast(store_url(url), agents=(call.agent,), concurrency=100, settings=Settings(), only_own=True)
    async with app:
        handle, has_failed = await app._here.start_again(call, run_id=id, thread_id=thread_id)
        on_start(handle)
        if has_failed:
            await handle.retry(note="run again")
        elif await handle.status() not in FINAL:
            await handle.resume()
        told: set[str] = set()

        def tell(needs: Needs) -> None:
            for need in needs.open:
                if need.key not in told and not needs.is_far:
                    told.add(need.key)
                    sys.stderr.write(f"{escaped(need.text)}\n")

        return await handle._result_or_needs(tell=tell)
