"""`Holdfast`: a connection to a store, and what can be done with it. Its methods hand on to the parts that do it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from holdfast.app import crowds, extensions, looks, opening
from holdfast.app.commanded import Commanded
from holdfast.app.looks import WorkerInfo
from holdfast.app.options import AppOptions
from holdfast.base.clock import due_us
from holdfast.control.acting import act_on
from holdfast.control.filters import Filters
from holdfast.control.upkeep.retention import PruneResult, RetentionInfo, prune
from holdfast.durations import Duration
from holdfast.errors import UsageError
from holdfast.handle.acts import IN_AN_EFFECT, look, refused
from holdfast.handle.decisions import InDoubt, Question
from holdfast.handle.run import Run
from holdfast.history.info import RunInfo
from holdfast.history.lookup import find
from holdfast.model import Actor, Status, ThreadId, checked_id, token_of, token_parts
from holdfast.store import open_store
from holdfast.verbs.agent import Agent, Call
from holdfast.verbs.thread import Thread, thread_of
from holdfast.worker.executor import Executor
from holdfast.worker.queues import QueueInfo
from holdfast.worker.starting import QueuePlace

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from holdfast.app.parts import Parts
    from holdfast.automation.schedules.timetable import ScheduleInfo
    from holdfast.automation.triggers import RefusedStart, Source, TriggerInfo

R = TypeVar("R")


class Holdfast:
    """A connection to a store, and the executor of this process."""

    def __init__(self, url: str, options: AppOptions) -> None:
        self.url = url
        self._options = options
        self._store = open_store(url, settings=options.settings)
        self._opened: Parts | None = None
        self._commanded = Commanded(self._store)

    @look
    async def __aenter__(self) -> Holdfast:
        self._opened = await opening.open_parts(self._store, self._options)
        return self

    @look
    async def __aexit__(self, *error: object) -> None:
        opened, self._opened = self._opened, None
        await opening.close_parts(self._store, opened)

    @asynccontextmanager
    async def lifespan(self, asgi: object = None) -> AsyncIterator[None]:
        """Open the app for as long as a web app of FastAPI or Starlette is served.

        Example: `web = FastAPI(lifespan=app.lifespan)`
        """
        async with self:
            yield

    @property
    def _parts(self) -> Parts:
        if self._opened is None:
            raise UsageError("The app is not open: use `async with hf.connect(…) as app:`.")
        return self._opened

    @property
    def _here(self) -> Executor:
        """What executes runs here; for the command line and for tests too."""
        return self._parts.executor

    # runs

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
        a worker: by `priority` (higher first), fairly between different `queue_key`s, not before `delay` has passed.
        `paused` ones wait until they are resumed. Starting an id that exists returns that run if agent and arguments
        are the same, else raises ConflictingStart.

        With `transaction`, a connection of your own to the same database with an open transaction, the run is started
        by a worker if and when that is committed; an id that exists is not noticed then.

        Example: `run = await app.start(newsletter("tides"), id="issue-7")`
        """
        place = QueuePlace(queue, queue_key, priority, due_us(delay, "delay=") or 0, paused)
        return await self._parts.starts.start(
            call, place, run_id=id, thread_id=thread_id, tags=tags, transaction=transaction
        )

    @overload
    def get(self, token: str) -> Run[Any]: ...
    @overload
    def get(self, token: str, agent: Agent[..., R]) -> Run[R]: ...
    def get(self, token: str, agent: Agent[..., Any] | None = None) -> Run[Any]:
        """The handle of a run, by its token or id; it has no side effect and does not look whether the run exists.
        With its agent the result has the type that the agent returns, in a client too.

        Example: `text = await app.get("issue-7", newsletter).result()`
        """
        named, thread_id = token_parts(token, "app.get()")
        return self._here.handle(named, ThreadId(thread_id))._of(agent)

    def thread(self, id: str, type: TypeForm[R]) -> Thread[R]:
        """What was said in a thread, whose messages are of this type; nothing was, if nobody has heard of it yet.

        Example: `await app.thread("chat-7", Message).append(Message("user", "hello"))`
        """
        return thread_of(self._store, checked_id(id, "id"), type)

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
        run = await self.find(token_of(token, run_id=run_id, thread_id=thread_id))
        self._here.started.add(run.id)
        await run.resume()
        return run

    @look
    async def find(self, given: str) -> Run[Any]:
        """The run that an id, a token, a unique prefix or `@last` names; RunNotFound, AmbiguousId.

        Example: `run = await app.find("@last")`
        """
        row = await find(self._store, given)
        return self._here.handle(row.id, row.thread_id)

    @look
    async def runs(self, *, limit: int = 50, after: str | None = None, **filters: Unpack[Filters]) -> list[RunInfo]:
        """Runs, newest first, that all filters fit: `status`, `agent`, `thread_id`, `queue`, `tags`, `since` (a time,
        or how long ago it is). `after`: the last id of the page before.

        Example: `failed = await app.runs(status="failed", since=timedelta(days=1))`
        """
        return await looks.runs(self._store, filters, limit=limit, after=after)

    @look
    async def in_doubt(self) -> list[InDoubt]:
        """The effects of all runs that a person must settle.

        Example: `for doubt in await app.in_doubt(): print(doubt.run_id, doubt.key)`
        """
        return await looks.in_doubt(self._here)

    @look
    async def questions(self, *, only_open: bool = True, limit: int = 200) -> list[Question]:
        """What all runs ask people, oldest first.

        Example: `for question in await app.questions(): print(question.prompt)`
        """
        return await looks.questions(self._store, only_open=only_open, limit=limit)

    @look
    async def question(self, given: str) -> Question:
        """The question with this id, or the one whose id starts so.

        Example: `await (await app.question("q_3f")).answer(True)`
        """
        return await looks.question(self._store, given)

    @refused("use `await hf.get(id).pause()` for each")
    async def pause_all(self, *, by: str | None = None, note: str = "", **filters: Unpack[Filters]) -> list[str]:
        """Pause every unfinished run that the filters of `runs()` name; the ids of those paused.

        Example: `await app.pause_all(agent="newsletter", note="maintenance")`
        """
        return await crowds.pause_all(self._here, filters, by=by, note=note)

    @refused("use `await hf.resume(id)` for each")
    async def resume_all(self, *, by: str | None = None, note: str = "", **filters: Unpack[Filters]) -> list[str]:
        """Have every paused run that the filters of `runs()` name go on; their ids. One about to be paused will not be.

        Example: `await app.resume_all(queue="mail")`
        """
        return await crowds.resume_all(self._here, filters, by=by, note=note)

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
        return await crowds.cancel_all(self._here, filters, by=by, note=note, kill=kill, timeout=timeout)

    extension = extensions.extension

    # what starts and removes runs by itself: queues, schedules, triggers, events, rules of retention

    @refused("use `await hf.emit(…)` there")
    async def emit(
        self,
        event: str,
        value: Any = None,
        *,
        dedup: str | None = None,
        transaction: Any = None,
        by: str | None = None,
        note: str = "",
    ) -> str:
        """Emit an event: triggers on its name start runs, runs whose agent declares such a signal receive it. Its id.

        Once this returns the event will be delivered; with `transaction`, a connection of your own to the same
        database, if and when that is committed. A second one with the same `dedup` id is the first, or, if its value
        is another, raises ConflictingSend.

        Example: `await app.emit("order.paid", {"id": 7}, dedup="order-7")`
        """
        act = act_on(by, note, "emit", target=event) if isinstance(by, Actor) else None  # code emits all the time
        return await self._parts.triggers.emit(event, value, dedup=dedup, transaction=transaction, act=act)

    @refused(IN_AN_EFFECT)
    async def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per_key: int | None = None,
        rate: tuple[int, Duration] | None = None,
        by: str | None = None,
        note: str = "",
    ) -> None:
        """Declare the limits of a queue, for all workers together: runs at once, in all and per `queue_key`, and
        starts in a time (`rate=(10, timedelta(minutes=1))`, or seconds). A run that waits takes no place.

        Example: `await app.queue("mail", concurrency=4, per_key=1)`
        """
        act = act_on(by, note, "queue limits", target=name)
        await self._here.queues.set(name, concurrency=concurrency, per_key=per_key, rate=rate, act=act)

    @look
    async def queues(self) -> list[QueueInfo]:
        """The queues that are declared, with how many runs they have.

        Example: `for queue in await app.queues(): print(queue.name, queue.queued)`
        """
        return await self._here.queues.infos()

    @refused(IN_AN_EFFECT)
    async def pause_queue(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Take no more runs from a queue; those under way go on until they wait or end.

        Example: `await app.pause_queue("mail")`
        """
        await self._here.queues.pause(name, act_on(by, note, "queue pause", target=name))

    @refused(IN_AN_EFFECT)
    async def resume_queue(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Take runs from a queue again.

        Example: `await app.resume_queue("mail")`
        """
        await self._here.queues.resume(name, act_on(by, note, "queue resume", target=name))

    @refused(IN_AN_EFFECT)
    async def schedule(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str,
        tz: str = "UTC",
        jitter: Duration = 0,
        overlap: Literal["skip", "allow", "replace"] = "skip",
        missed: Literal["latest", "skip"] | int = "latest",
        queue: str | None = None,
    ) -> None:
        """Start a run of a call whenever the cron expression says, in its time zone; declared again, it is changed.

        `overlap`: what happens if the run before has not ended. `missed`: which of the times that nobody was there for
        are made up for. Whoever fires a time, it is one run: its id is made of the schedule and the time.

        Example: `await app.schedule("nightly", report(), cron="0 2 * * *", tz="Europe/Vienna")`
        """
        await self._parts.declare_schedule(
            name, call, cron=cron, tz=tz, jitter=jitter, overlap=overlap, missed=missed, queue=queue
        )

    @look
    async def schedules(self) -> list[ScheduleInfo]:
        """The schedules, with their next times.

        Example: `for schedule in await app.schedules(): print(schedule.name, schedule.next_fires)`
        """
        return await self._parts.schedules.list()

    @refused(IN_AN_EFFECT)
    async def pause_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Let a schedule start nothing.

        Example: `await app.pause_schedule("nightly")`
        """
        await self._parts.schedules.pause(name, act_on(by, note, "schedule pause", target=name))

    @refused(IN_AN_EFFECT)
    async def resume_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Let a paused schedule go on; times that passed meanwhile are not made up for.

        Example: `await app.resume_schedule("nightly")`
        """
        await self._parts.schedules.resume(name, act_on(by, note, "schedule resume", target=name))

    @refused(IN_AN_EFFECT)
    async def fire_schedule(self, name: str, *, by: str | None = None, note: str = "") -> Run[Any]:
        """Start a run of a schedule now, besides its times.

        Example: `run = await app.fire_schedule("nightly")`
        """
        return await self.find(await self._parts.schedules.fire(name, act_on(by, note, "schedule run", target=name)))

    @refused(IN_AN_EFFECT)
    async def backfill_schedule(
        self, name: str, start: datetime, end: datetime, *, by: str | None = None, note: str = ""
    ) -> list[Run[Any]]:
        """Start a run for each time of a schedule in a range that has none yet.

        Example: `await app.backfill_schedule("nightly", monday, friday)`
        """
        act = act_on(by, note, "schedule backfill", target=name)
        return [await self.find(each) for each in await self._parts.schedules.backfill(name, start, end, act=act)]

    @refused(IN_AN_EFFECT)
    async def remove_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Forget a schedule. The runs that it started stay.

        Example: `await app.remove_schedule("nightly")`
        """
        await self._parts.schedules.remove(name, act_on(by, note, "schedule remove", target=name))

    @refused(IN_AN_EFFECT)
    async def on(
        self,
        event: Source,
        agent: Agent[..., Any],
        *,
        name: str | None = None,
        where: Mapping[str, Any] | None = None,
        queue: str | None = None,
        queue_key: str = "",
    ) -> TriggerInfo:
        """Start a run of an agent for each event of a name, changed file or message of a queue; it is the one argument.

        `where` names what the value must have: `{"customer.country": "AT", "total": {"gt": 100}}`. `queue_key` may take
        from it: `"{customer.id}"`. Declared again under the same name, the trigger is changed.

        Example: `await app.on("order.paid", ship, where={"total": {"gt": 100}})`
        """
        return await self._parts.declare_trigger(event, agent, name=name, where=where, queue=queue, queue_key=queue_key)

    @look
    async def triggers(self) -> list[TriggerInfo]:
        """The triggers, with what they received and started.

        Example: `for trigger in await app.triggers(): print(trigger.name, trigger.started)`
        """
        return await self._parts.triggers.list()

    @look
    async def refused_starts(self, trigger: str, *, limit: int = 1000) -> list[RefusedStart]:
        """What came for a trigger and can never be a run: it cannot be read, does not fit the agent's argument, or has
        no valid queue key. Oldest first; each is kept for 30 days.

        Example: `for each in await app.refused_starts("orders"): print(each.why, each.data)`
        """
        return list(await self._parts.triggers.refused(trigger, limit=limit))

    @refused(IN_AN_EFFECT)
    async def pause_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Let a trigger start nothing.

        Example: `await app.pause_trigger("ship")`
        """
        await self._parts.triggers.pause(name, act_on(by, note, "trigger pause", target=name))

    @refused(IN_AN_EFFECT)
    async def resume_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Let a paused trigger go on.

        Example: `await app.resume_trigger("ship")`
        """
        await self._parts.triggers.resume(name, act_on(by, note, "trigger resume", target=name))

    @refused(IN_AN_EFFECT)
    async def remove_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        """Forget a trigger. The runs that it started stay.

        Example: `await app.remove_trigger("ship")`
        """
        await self._parts.triggers.remove(name, act_on(by, note, "trigger remove", target=name))

    @refused(IN_AN_EFFECT)
    async def prune(
        self,
        *,
        older_than: Duration,
        agent: str | None = None,
        status: Sequence[Status] = (),
        dry_run: bool = False,
        forget: bool = False,
        progress: Callable[[int], None] | None = None,
        by: str | None = None,
        note: str = "",
    ) -> PruneResult:
        """Remove what runs did that ended longer ago than that. Their tombstones stay: who they were, how they ended.

        So a start with the same id, or a message with a known `dedup` id, does nothing as before; reading the run
        raises RunPruned. A run stays while something alive may need it: an ancestor that is not over for as long, an
        unfinished child, an open question. `forget` also removes tombstones that are so old. Killed in between, it can
        be called again. `progress` is told how many runs are pruned.

        Example: `result = await app.prune(older_than=timedelta(days=30), agent="newsletter")`
        """
        act = None if dry_run else act_on(by, note, "prune", target=agent or "*")
        return await prune(
            self._store, older_than, agent=agent, statuses=status, forget=forget, progress=progress, act=act
        )

    @refused(IN_AN_EFFECT)
    async def retain(self, agent: str, *, keep: Duration | None, by: str | None = None, note: str = "") -> None:
        """Have workers prune the runs of an agent that ended longer ago than that; None takes the rule away.

        The agent `"*"` means all that have no rule of their own. `timedelta.max` keeps runs for ever.

        Example: `await app.retain("newsletter", keep=timedelta(days=30))`
        """
        await self._parts.retention.set(agent, keep, act_on(by, note, "retention", target=agent))

    @look
    async def retention(self) -> list[RetentionInfo]:
        """For how long runs are kept, by agent.

        Example: `for rule in await app.retention(): print(rule.agent, rule.keep)`
        """
        return await self._parts.retention.infos()

    # workers

    @look
    async def workers(self) -> list[WorkerInfo]:
        """The processes that execute runs of this store.

        Example: `for worker in await app.workers(): print(worker.id, worker.alive)`
        """
        return await looks.workers(self._store)

    @refused("a run is executed by a worker, and is none")
    async def work(self, queues: Sequence[str] | None = None) -> None:
        """Execute runs until SIGTERM or SIGINT, or until cancelled; then hand over what is under way.

        Bodies under way get `settings.drain_s` seconds to end when the app closes; runs that are not in a body are
        handed over at once. `queues`: take runs from these only.

        Example: `await app.work()`, inside of `async with hf.connect(agents=[newsletter]) as app:`
        """
        await self._parts.work(queues)
