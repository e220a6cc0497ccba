"""One execution of one run: from its claim to its end, its parking, or its loss to another worker."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from holdfast import faults
from holdfast.clock import now_us
from holdfast.codec import encode_error
from holdfast.context import Host, RunContext, enter, outside
from holdfast.errors import CorruptJournal, HoldfastError, StoreError, Undecodable
from holdfast.journal.integrity import check_mail
from holdfast.journal.replay import mismatch
from holdfast.journal.ticks import Quiet
from holdfast.model import Kind, Record, RunRow, Status
from holdfast.telemetry import warn
from holdfast.verbs.child import Agent, Call
from holdfast.verbs.timer import timeout

_PARKED = {"in doubt": Status.in_doubt, "child": Status.waiting, "handed over": Status.queued}
_PARK_GRACE_S = 0.1
_MAIL_POLL_S = 0.1
_TEAR_DOWN_S = 5.0
_THREAD_POLL_S = 0.01


class Execution:
    """Drives a run that this process owns."""

    def __init__(
        self,
        host: Host,
        agent: Agent[..., Any],
        row: RunRow,
        records: list[Record],
        *,
        blobs: dict[str, bytes],
        claim_note: str | None,
        reopen: tuple[str, str] | None,
        refuse: dict[str, Any] | None,
    ) -> None:
        self._host = host
        self._agent = agent
        self._records = records
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[BaseException | None] = self._loop.create_future()
        self.row = row
        self.has_mail = False
        self.outcome: str | None = None  #: how the run ended, as stored
        self.error: BaseException | None = None  #: why this execution ended without deciding the run
        self._waiters: list[asyncio.Future[None]] = []
        self._refuse = refuse
        self._seen_mail = 0
        self._watcher: asyncio.Task[None] | None = None
        reopening = ""
        if reopen is not None:
            reopening = json.dumps({"superseded": _superseded(records), "note": reopen[1]})
            reopened = Record(
                0, row.epoch, row.generation, "", Kind.reopened, reopen[0], 1, 0, now_us(), 0, "", None, reopening, b""
            )
            records = [*records, reopened]
        self.run = RunContext(
            host, row, records, blobs=blobs, code=agent.code, on_stop=self._stop, on_hold=self._watch_holds
        )
        self._is_resumed = claim_note is not None
        if claim_note is not None:
            self.run.journal.add(Kind.claimed, "", row.owner or "", payload=claim_note)
            self.run.replay.claims.append((row.epoch, now_us(), json.loads(claim_note)["proof"]))
        if reopen is not None:
            self.run.journal.add(Kind.reopened, "", reopen[0], payload=reopening)

    async def wait_ended(self) -> None:
        """Return when this execution is over."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def begin(self, slots: asyncio.Semaphore | None, on_end: Callable[[], None]) -> None:
        """Execute in the background."""
        self._task = asyncio.Task(self._go(slots, on_end), loop=self._loop, context=outside())

    async def _go(self, slots: asyncio.Semaphore | None, on_end: Callable[[], None]) -> None:
        try:
            if slots is None:
                await self._drive()
            else:
                async with slots:
                    await self._drive()
        except Exception as error:  # whoever waits for the run must hear of it
            self.error = error
            warn("run.stopped", run=self.run.id, error=f"{type(error).__name__}: {error}")
            await self._give_up(error)
        finally:
            if self._watcher is not None:
                self._watcher.cancel()
            self.run.stop()
            on_end()
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def _give_up(self, error: Exception) -> None:
        """Something here is wrong, not the run: leave it so that it can be taken up again."""
        self.run.stop_reason = {"why": "internal error", "detail": f"{type(error).__name__}: {error}"}
        try:
            if isinstance(error, CorruptJournal):
                await self._host.store.quarantine(self.run.id, str(error))
            elif not self.run.journal.lost:
                await self._park()
        except StoreError as again:
            warn("run.not_released", run=self.run.id, error=str(again))

    async def _drive(self) -> None:
        run = self.run
        if self._refuse is not None or self._stopped.done():
            run.stop_reason = self._refuse or run.stop_reason
            await self._park()
            return
        await self._read_mail()
        context = contextvars.copy_context()
        context.run(enter, run.root)
        root = asyncio.Task(self._root(), loop=self._loop, context=context)
        run.root.task = root
        run.tasks[root] = run.root
        error = await self._stopped
        if root.done() and run.stop_reason is None and not run.journal.lost:
            await self._finish(root)
        elif run.journal.lost:
            self.error = error
            await self._tear_down()
        else:
            await self._park()

    async def _root(self) -> Any:
        try:
            return await self._main()
        finally:
            if not self._stopped.done():
                self._stopped.set_result(None)  # heard in the next turn, when this task is done

    async def _main(self) -> Any:
        created = self._records[0]
        try:
            call = Call.decoded(self._agent, self.run.text(created.args))
        except Undecodable as error:
            await self.run.block({"why": "input does not fit", "asked": self._agent.name, "detail": str(error)})
            raise
        if self._agent.timeout_s is None:
            return await self._agent.fn(*call.args, **call.kwargs)
        async with timeout(self._agent.timeout_s):
            return await self._agent.fn(*call.args, **call.kwargs)

    def _stop(self, error: BaseException | None) -> None:
        """The run was lost, or cannot go on with this code."""
        self.run.dead = True
        self.run.ticks.stopped = True
        if not self._stopped.done():
            self._stopped.set_result(error)

    # how it ends

    async def _finish(self, root: asyncio.Task[Any]) -> None:
        run, journal = self.run, self.run.journal
        await self._end_branches(root)
        if run.stop_reason is not None or journal.lost:
            await self._park()
            return
        left = run.without_settled(run.replay.open_intents())
        if left:
            asked = run.replay.attempted.get("", [])
            run.stop_reason = mismatch(run.id, asked="the end of the run", where="", recorded=left, attempted=asked)
            await self._park()
            return
        if root.cancelled():
            status, payload, keys = Status.cancelled, None, None
        elif (error := root.exception()) is not None:
            status, payload, keys = Status.failed, encode_error(error), json.dumps(sorted(_keys(error)))
            if not isinstance(error, Exception):
                raise error
        else:
            status, payload, keys = self._returned(root.result())
        self._sum_up()
        if status is Status.failed:
            journal.summary["now"] = _first_line(root.exception())
        journal.summary.pop("progress", None)
        journal.add(Kind.finished, "", status, payload=payload, args=keys)
        faults.point("finish.before")
        if await journal.finish(status, inline=run.host.is_alone):
            self.row, self.outcome = journal.row, payload
        faults.point("finish.after")

    def _returned(self, value: Any) -> tuple[Status, str | None, str | None]:
        try:
            payload = self._agent.coder.dumps(value, what=f"the result of {self._agent.name}")
            self.run.journal.check_size(payload, f"the result of {self._agent.name}")
            return Status.done, payload, None
        except HoldfastError as error:
            return Status.failed, encode_error(error), "[]"

    async def _end_branches(self, root: asyncio.Task[Any]) -> None:
        """Tasks that outlive the agent are cancelled, as `asyncio.run` does; effects among them end first."""
        self.run.tasks.pop(root, None)
        for task in list(self.run.tasks):
            task.cancel()
        while self.run.tasks and not self.run.dead:
            await asyncio.wait(list(self.run.tasks), timeout=_MAIL_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)

    async def _park(self) -> None:
        """Write what is known, give the run up, and leave memory."""
        run = self.run
        run.dead = run.parking = True
        run.ticks.stopped = True
        await self._let_effects_end()
        run.ticks.deliver_ready()  # recorded, though nobody will act on it here
        reason = run.stop_reason or {"why": "lost"}
        self._sum_up()
        status = _PARKED.get(str(reason["why"]), Status.blocked)
        if await run.journal.finish(status, reason):
            self.row = run.journal.row
        await self._tear_down()
        if status is Status.in_doubt:
            self.has_mail = bool(await self._host.store.mail(run.id, after=self._seen_mail))

    async def _let_effects_end(self) -> None:
        """An effect under way is not cut off, if it ends soon."""
        give_up = self._loop.time() + self._host.settings.drain_s
        while self.run.acting and self._loop.time() < give_up:  # noqa: ASYNC110 - seldom, and short
            await asyncio.sleep(_THREAD_POLL_S)

    def _sum_up(self) -> None:
        """Note what this execution did not have to do again."""
        if self._is_resumed:
            self.run.journal.add(Kind.noted, "", "resumed", payload=json.dumps(asdict(self.run.receipt)))

    async def _tear_down(self) -> None:
        tasks = set(self.run.tasks)
        self.run.stop()
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=_TEAR_DOWN_S)
        for task in tasks - pending:
            if not task.cancelled():
                task.exception()
        if pending:
            warn("run.branches_linger", run=self.run.id, tasks=len(pending))

    async def hand_over(self) -> None:
        """The process is closing: let another one go on. A `def` body is waited for; its thread cannot be stopped."""
        run = self.run
        while run.threads and not self._stopped.done():  # noqa: ASYNC110 - seldom, and short
            await asyncio.sleep(_THREAD_POLL_S)
        if not self._stopped.done():
            run.stop_reason = {"why": "handed over"}
            self._stop(None)
        await asyncio.wait({self._task})

    # effects that a person must settle

    def _watch_holds(self) -> None:
        if self._watcher is None:
            self._watcher = asyncio.Task(self._watch(), loop=self._loop, context=outside())

    async def _watch(self) -> None:
        """While calls are held: hear what persons say; park when nothing else is going on."""
        try:
            await self._watch_until_parked()
        except (StoreError, CorruptJournal) as error:
            self.run.stop_reason = {"why": "mail unreadable", "detail": str(error)}
            self._stop(None)

    async def _watch_until_parked(self) -> None:
        run = self.run
        quiet_since = self._loop.time()
        while not run.dead:
            await self._read_mail()
            await self._look_at_children()
            is_idle = run.holds and not run.bodies and not run.ticks.has_work and run.quiet() is not Quiet.busy
            if not is_idle:
                quiet_since = self._loop.time()
            elif self._loop.time() - quiet_since >= _PARK_GRACE_S:
                run.stop_reason = self._why_parked()
                self._stop(None)
                return
            await asyncio.sleep(_MAIL_POLL_S / 2)

    def _why_parked(self) -> dict[str, Any]:
        holds = sorted(self.run.hold_reasons.items())
        children = [reason["child"] for _, reason in holds if "child" in reason]
        effects = [{"key": key, **reason} for key, reason in holds if "child" not in reason]
        return {
            "why": "in doubt" if effects else "child",
            "effects": effects,
            "children": children,
            "mail": self._seen_mail,
        }

    async def _look_at_children(self) -> None:
        """A child that was parked may have ended."""
        for key, reason in list(self.run.hold_reasons.items()):
            if "child" in reason:
                row = await self._host.store.run(reason["child"])
                if row is not None and row.status.is_final:
                    self.run.settle_by(key, {})

    async def _read_mail(self) -> None:
        run = self.run
        if not self.row.mail and self._watcher is None:
            return
        for mail in await self._host.store.mail(run.id, after=self._seen_mail):
            check_mail(mail)
            self._seen_mail = mail.number
            if mail.number not in run.replay.consumed_mail:
                run.settle_by(mail.key, {**json.loads(mail.body), "mail": mail.number})


def _first_line(error: BaseException | None) -> str:
    if error is None:
        return ""
    try:
        return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    except Exception:  # a broken __str__ must not keep the run from ending
        return type(error).__name__


def _keys(error: BaseException) -> set[str]:
    """The calls whose failures ended the run."""
    keys: set[str] = set()
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    while stack:
        each = stack.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if key := getattr(each, "_holdfast_key", None):
            keys.add(key)
        stack += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            stack += each.exceptions
    return keys


def _superseded(records: list[Record]) -> list[int]:
    """The outcomes that ended the run: its end, and the failures that led to it."""
    end = next((r for r in reversed(records) if r.kind == Kind.finished), None)
    if end is None:
        return []
    keys = set(json.loads(end.args or "[]"))
    gone = {seq for r in records if r.kind == Kind.reopened for seq in json.loads(r.payload or "{}")["superseded"]}
    failures = [r.seq for r in records if r.kind == Kind.failed and r.key in keys and r.seq not in gone]
    return [*failures, end.seq]
