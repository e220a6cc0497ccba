"""`Holdfast`: a connection to a store, and what can be done with it. Its methods hand on to the parts that do it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, Unpack, overload

from holdfast.app import crowds, extensions, looks
from holdfast.app.looks import WorkerInfo
from holdfast.app.options import AppOptions
from holdfast.app.standing import Standing
from holdfast.base.clock import due_us
from holdfast.base.config import Settings
from holdfast.control import doubts, uploads
from holdfast.control.actors import actor
from holdfast.control.filters import Filters
from holdfast.control.plans import change_plan
from holdfast.control.targets import existing
from holdfast.durations import Duration
from holdfast.errors import UsageError
from holdfast.handle.acts import is_in_run, look, refused
from holdfast.handle.decisions import InDoubt, Question
from holdfast.handle.run import Run
from holdfast.history.info import RunInfo
from holdfast.history.lookup import find
from holdfast.model import ThreadId, token_parts
from holdfast.model.plans import Op
from holdfast.model.runs import checked_id
from holdfast.store import open_store
from holdfast.store.home import Home
from holdfast.verbs.agent import Agent, Call
from holdfast.verbs.artifact import checked_media_type, checked_name
from holdfast.verbs.thread import Thread, thread_of
from holdfast.worker.executor import Executor
from holdfast.worker.hiding import hide_url
from holdfast.worker.starting import QueuePlace

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from holdfast.app.parts import Parts

R = TypeVar("R")

_EFFECT = "do it in the body of an effect there"


class Holdfast(Standing):
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
        reads_only: bool = False,
    ) -> None:
        self.url = url
        self._options = AppOptions(agents, settings, concurrency=concurrency, queues=queues, only_own=only_own)
        self._options.check()
        self._reads_only = reads_only
        self._store = open_store(url, settings=settings)
        self._opened: Parts | None = None

    @look
    async def __aenter__(self) -> Holdfast:
        # Not at the top: schedules and triggers take as long to load as the rest of the worker.
        from holdfast.app.parts import Parts

        if self._options.agents and is_in_run():
            raise UsageError("An app that executes runs was opened inside a run. Open one without agents=, to look.")
        await self._store.open(read_only=self._reads_only)
        if self._options.settings.hide_url:
            hide_url()
        self._store.home = Home()
        self._opened = Parts(self._store, self._options)
        try:
            await self._opened.open()
        except BaseException:
            self._store.home = None
            await self._store.close()
            raise
        return self

    @look
    async def __aexit__(self, *error: object) -> None:
        opened, self._opened = self._opened, None
        try:
            if opened is not None:
                await opened.close()
        finally:
            self._store.home = None
            await self._store.close()

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
        a worker: runs of a queue go by `priority` (higher first), fairly between those with different `queue_key`, and
        not before `delay` has passed. `paused` ones wait until they are resumed. Starting an id that exists returns
        that run if agent and arguments are the same, else raises ConflictingStart.

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
        given = token if token is not None else f"{run_id}@{thread_id}" if thread_id else run_id
        if not given:
            raise UsageError("resume() takes a token, or run_id=.")
        run = await self.find(given)
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
        return [Question._of(self._store, row) for row in await self._store.questions(only_open=only_open, limit=limit)]

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

    @look
    async def _acts_as(self, by: str | None) -> str:
        """Who acts; a server knows that by itself."""
        return actor(by)

    @refused(_EFFECT)
    async def _settle(
        self, run: Run[Any], key: str, body: Mapping[str, Any], *, attempt: int, by: str | None, note: str
    ) -> None:
        """Say what became of an effect, as it is recorded."""
        await doubts.resolve(self._store, run.id, key, dict(body), attempt=attempt, by=by, note=note)

    @refused(_EFFECT)
    async def _change_plan(self, run: Run[Any], ops: Sequence[Op], *, by: str | None, note: str) -> int:
        """Send a run changes of its plan; the number of the mail."""
        return await change_plan(self._store, run.id, ops, by=by, note=note)

    @refused("put it out with hf.artifact()")
    async def _give(
        self, run: Run[Any], name: str, stream: BinaryIO, *, media_type: str | None, by: str | None, note: str
    ) -> tuple[int, bool]:
        """Give a run a file: which version it is, and whether it is new."""
        what = uploads.Upload(checked_name(name), checked_media_type(name, media_type))
        uploads.refuse_upload(await existing(self._store, run.id))
        file = await uploads.store_file(self._store, run.id, stream)
        given = await uploads.give(self._store, run.id, file, what=what, by=by, note=note)
        if given is None:
            raise UsageError(f"A worker executes run {run.id} just now. Give it the file when it waits, or pause it.")
        return given

    # workers, queues

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
