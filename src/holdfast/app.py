"""The composition root: `connect()` makes an app, `run()` is the one bridge from ordinary code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar, overload

from holdfast import control
from holdfast.clock import now_us
from holdfast.config import Settings, store_url
from holdfast.errors import UsageError
from holdfast.handle import InDoubt, Run
from holdfast.history import RunInfo, info_of
from holdfast.model import RunFilter, RunId, Status, ThreadId
from holdfast.store import open_store
from holdfast.verbs.child import Agent, Call
from holdfast.worker.executor import Executor

R = TypeVar("R")


def connect(
    url: str | None = None,
    *,
    agents: Iterable[Agent[..., Any]] = (),
    concurrency: int = 100,
    settings: Settings | None = None,
) -> Holdfast:
    """An app on a store; use it with `async with`. With `agents` this process executes, and takes up what others left.

    `url` is a path or sqlite:///path; the default is $HOLDFAST_URL, else ./.holdfast/holdfast.db.

    Example:
        async with hf.connect(agents=[newsletter]) as app:
            run = await app.start(newsletter("tides"), id="issue-7")
            print(await run.result())
    """
    return Holdfast(store_url(url), agents=tuple(agents), concurrency=concurrency, settings=settings or Settings())


class Holdfast:
    """A connection to a store, and the executor of this process."""

    def __init__(self, url: str, *, agents: tuple[Agent[..., Any], ...], concurrency: int, settings: Settings) -> None:
        for agent in agents:
            if not isinstance(agent, Agent):
                raise UsageError(f"agents= takes functions decorated with @hf.agent, not {agent!r}.")
        if concurrency < 1:
            raise UsageError(f"concurrency= must be at least 1, not {concurrency}.")
        self.url = url
        self._agents = agents
        self._concurrency = concurrency
        self._settings = settings
        self._store = open_store(url, settings=settings)
        self._executor: Executor | None = None

    async def __aenter__(self) -> Holdfast:
        await self._store.open()
        self._executor = Executor(self._store, self._settings, self._agents, self._concurrency)
        if self._agents:
            await self._executor.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        executor, self._executor = self._executor, None
        try:
            if executor is not None:
                await executor.close()
        finally:
            await self._store.close()

    @property
    def _here(self) -> Executor:
        if self._executor is None:
            raise UsageError("The app is not open: use `async with hf.connect(…) as app:`.")
        return self._executor

    async def start(
        self,
        call: Call[R],
        *,
        id: str | None = None,
        thread_id: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Run[R]:
        """Store a run and begin to execute it here. Once this returns, the run survives whatever happens.

        Starting an id that exists returns that run if agent and arguments are the same, else raises ConflictingStart.

        Example: `run = await app.start(newsletter("tides"), id="issue-7")`
        """
        if not isinstance(call, Call):
            raise UsageError(f"start() takes a call of an agent, like `my_agent(1, 2)`; got {call!r}.")
        return await self._here.start(call, run_id=id, thread_id=thread_id, tags=tags)

    def get(self, token: str) -> Run[Any]:
        """The handle of a run, by its token or id; it has no side effect and does not look whether the run exists.

        Example: `run = app.get("issue-7")`
        """
        run_id, _, thread_id = token.partition("@")
        return self._here.handle(RunId(run_id), ThreadId(thread_id))

    @overload
    async def resume(self, token: str) -> Run[Any]: ...
    @overload
    async def resume(self, *, run_id: str, thread_id: str | None = None) -> Run[Any]: ...
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
        await run.resume()
        return run

    async def find(self, given: str) -> Run[Any]:
        """The run that an id, a token, a unique prefix or `@last` names; RunNotFound, AmbiguousId.

        Example: `run = await app.find("@last")`
        """
        row = await control.find(self._store, given)
        return self._here.handle(row.id, row.thread_id)

    async def runs(
        self,
        *,
        status: Status | str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        since_s: float | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> list[RunInfo]:
        """Runs, newest first. `since_s`: not older than so many seconds; `after`: the last id of the page before.

        Example: `failed = await app.runs(status="failed")`
        """
        which = RunFilter(
            status=None if status is None else frozenset({Status(status)}),
            agent=agent,
            thread_id=None if thread_id is None else ThreadId(thread_id),
            since=None if since_s is None else now_us() - int(since_s * 1_000_000),
            limit=limit,
            before_id=None if after is None else RunId(after),
        )
        dead = await self._store.dead_workers()
        return [info_of(row, is_lost=row.owner in dead) for row in await self._store.runs(which)]

    async def in_doubt(self) -> list[InDoubt]:
        """The effects of all runs that a person must settle.

        Example: `for doubt in await app.in_doubt(): print(doubt.run_id, doubt.key)`
        """
        found: list[InDoubt] = []
        which = RunFilter(status=frozenset({Status.in_doubt, Status.running}), limit=1000)
        for row in await self._store.runs(which):
            if row.status is Status.running and not row.summary.get("held"):
                continue
            found += await self._here.handle(row.id, row.thread_id).in_doubt()
        return found


def run(call: Call[R], *, id: str | None = None, thread_id: str | None = None, url: str | None = None) -> R:
    """Execute an agent and return its result: start it, or go on with the run that has this id.

    Kill the process and call it again with the same id: it goes on where it was. A run that failed is opened again,
    because running a repaired script is the explicit act. If a person has to decide, NeedsHuman says what to do.

    Example: `print(hf.run(newsletter("tides"), id="issue-7"))`
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run_async(call, id=id, thread_id=thread_id, url=url))
    raise UsageError(
        "hf.run() was called inside a running event loop; use `async with hf.connect(…) as app:` and app.start()."
    )


async def run_async(call: Call[R], *, id: str | None, thread_id: str | None, url: str | None) -> R:
    """What `run` does, on a loop that is there already."""
    if not isinstance(call, Call):
        raise UsageError(f"run() takes a call of an agent, like `my_agent(1, 2)`; got {call!r}.")
    async with connect(url) as app:
        handle = await app.start(call, id=id, thread_id=thread_id)
        status = await handle.status()
        if status in (Status.failed, Status.cancelled):
            await handle.retry(note="run again")
        elif status in (Status.blocked, Status.in_doubt, Status.waiting):
            await handle.resume()
        return await handle.result()
