"""Dry replays: what would become of a run if it were resumed with the code as it is now.

The agent is called as on a resume, and answered from the journal. Where the journal ends, everything stays: no body
runs, nothing is waited for, nothing is written. What a resume would find on the way there is found here too, by the
same code: a call that the journal does not have, a result or an input that does not fit.

How far that looks: up to the first call of each branch that is not recorded. A step that is new stands before what was
recorded behind it, and what it would return is not known, so that is not looked at.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any, Final, cast

from holdfast.base.config import Settings
from holdfast.base.data import data
from holdfast.base.tracebacks import where_raised
from holdfast.codec import said_by
from holdfast.errors import CorruptJournal
from holdfast.handle.run import Run
from holdfast.history.facts import Facts
from holdfast.journal.blocks import told
from holdfast.journal.leftovers import is_unasked
from holdfast.journal.mismatches import mismatch
from holdfast.journal.replay import Entry
from holdfast.journal.stillness import Quiet
from holdfast.model import Kind, RunId, RunRow, Status, ThreadId
from holdfast.model.diagnoses import Mismatch, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.branches import install
from holdfast.running.context import RunContext
from holdfast.running.outcomes import key_of
from holdfast.running.own_waits import places_outside
from holdfast.running.scopes import Scope, caller, enter
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent
from holdfast.worker.calling import call_agent
from holdfast.worker.cancelling import Cancelling
from holdfast.worker.interrupts import Interrupts
from holdfast.worker.loading import LoadedRun

_LOOK_S: Final = 0.002
_QUIET_LOOKS: Final = 2
_LIMIT_S: Final = 20.0  # for code that waits for something by itself
#: What a dry replay may ask of a store.
_READS: Final = frozenset(
    {"url", "home", "run", "runs", "records", "load", "mail", "blobs", "questions", "definitions"}
)


class Prospect(StrEnum):
    """What would become of a run that is resumed."""

    goes_on = "goes on"
    blocks = "would block"
    may_block = "may block"  #: its code went past a recorded effect: the next new effect blocks it, if one comes
    fails = "would fail"  #: its code raises something, and no recorded call did
    damaged = "damaged"  #: what is stored of it does not fit its hashes
    unclear = "unclear"  #: its code waits for something by itself, and did not come to an end


@data
class Forecast(Facts):
    """What would become of one run, and why."""

    run_id: str
    agent: str
    status: Status
    prospect: Prospect
    why: str = ""  #: the reason in a word
    call: str = ""  #: that the code makes there
    where: str = ""  #: file:line
    detail: str = ""  #: what is wrong, in a few words
    advice: tuple[str, ...] = ()  #: lines for people: both lists, and what to do
    anew: tuple[str, ...] = ()  #: the calls that the journal does not answer: they come next
    unseen: int = 0  #: recorded effects behind a call that is new, which were not looked at

    @property
    def is_problem(self) -> bool:
        """Is it to be looked at before a deploy?"""
        return self.prospect not in (Prospect.goes_on, Prospect.unclear)


class Unwritten:
    """A store that is read, and that nothing is written to: appends go nowhere, and are never acknowledged."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def submit(self, *_: object, **__: object) -> None:
        pass

    def commit_alone(self, *_: object) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name not in _READS:
            raise AssertionError(f"a dry replay was about to call Store.{name}()")
        return getattr(self._store, name)


class _NoTimer:
    def cancel(self) -> None:
        pass


class _NoClock:
    """Nothing becomes due."""

    def at(self, due_us: int, callback: object) -> _NoTimer:
        return _NoTimer()


class DryHost:
    """What a run needs of its process, where nothing happens."""

    def __init__(self, store: Store, settings: Settings, agents: Mapping[str, Agent[..., Any]]) -> None:
        self.store = cast("Store", Unwritten(store))
        self.settings = settings
        self.agents = agents
        self.timers = _NoClock()
        self.threads = ThreadPoolExecutor(1)  # makes a thread for a body, of which none runs
        self.is_alone = False

    def handle(self, run_id: RunId, thread_id: ThreadId) -> Run[Any]:
        return Run(self.store, run_id, thread_id, here=None)

    def local(self, run_id: RunId) -> None:
        return None

    def adopt_child(self, call: object, run_id: RunId) -> None:
        pass

    lapses = 0

    def has_lease(self) -> bool:
        return True

    async def _never(self, *_: object, **__: object) -> Any:
        await asyncio.get_running_loop().create_future()

    start_child = cancel_child = wake_family = read_mail = hold_queue = emit = wait_lease = _never


class Rehearsal:
    """The dry replay of one run."""

    def __init__(self, host: DryHost, agent: Agent[..., Any], whole: LoadedRun) -> None:
        self._agent = agent
        self._row = whole.row
        self._records = whole.records
        self._where = ""
        self._stopped = asyncio.get_running_loop().create_future()
        self._run = RunContext(
            host,
            whole.row,
            whole.records,
            blobs=whole.blobs,
            code=agent._code,
            on_stop=self._stop,
            on_wait=lambda: None,
        )
        self._ended: tuple[Any, BaseException | None] = (None, None)

    async def result(self) -> Forecast:
        """Replay it, and say what would become of it."""
        run = self._run
        install(run.life.loop)
        run.gate.rehearse()
        scope = Scope(run, "")
        run.turning.begin(scope)
        if (cut := self._row.cut) is not None:
            run.replay.read_mail_up_to(cut.mail)
        context = contextvars.copy_context()
        context.run(enter, scope)
        root = asyncio.Task(self._main_line(), loop=run.life.loop, context=context)
        scope.created(root)
        run.activity.add(root, scope)
        cancelling, interrupts = Cancelling(run), Interrupts(run, self._agent)
        cancelling.begin(root)
        interrupts.begin()
        try:
            is_over = await self._settle(root)
            return self._forecast(root, is_over=is_over)
        finally:
            cancelling.close()
            await self._tear_down(scope)

    async def _main_line(self) -> None:
        self._run.life.begin()
        try:
            self._ended = (await call_agent(self._run, self._agent, self._records[0]), None)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._ended = (None, error)

    def _stop(self, error: BaseException | None) -> None:
        if not self._stopped.done():
            self._where = caller()  # whoever blocks the run does so in the task of the call
            self._run.die()
            self._stopped.set_result(error)

    async def _settle(self, root: asyncio.Task[None]) -> bool:
        """Return when nothing more happens; False: its code still waits for something by itself."""
        run, looks, seen = self._run, 0, -1
        give_up = run.life.loop.time() + _LIMIT_S
        while looks < _QUIET_LOOKS and not self._stopped.done() and not root.done():
            await asyncio.sleep(_LOOK_S)
            # Who waits for the rest to be told, or to be cancelled again, is in a call and not at the gate.
            is_told = run.is_waiting and not run.ticks.has_work and not len(run.ticks.cancels)
            is_still = run.ticks.activity == seen and is_told
            looks = looks + 1 if is_still and run.activity.quiet() is Quiet.settled else 0
            seen = run.ticks.activity
            if run.life.loop.time() > give_up:
                return False
        return True

    async def _tear_down(self, scope: Scope) -> None:
        run = self._run
        tasks = set(run.activity.tasks)
        run.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()
        scope.created(None)
        run.let_go()

    # what was found

    def _forecast(self, root: asyncio.Task[None], *, is_over: bool) -> Forecast:
        run = self._run
        blocked = run.life.stop_reason
        if isinstance(blocked, Blocked):
            return self._blocks(blocked)
        if root.done():
            return self._at_end()
        if not is_over:
            waits = ", ".join(places_outside(run.activity.tasks).values())
            return self._made(Prospect.unclear, where=waits, detail="its code waits for something by itself")
        reached = run.gate.reached
        left = [entry for entry in run.replay.entries.values() if is_unasked(entry)]
        if certain := [entry for entry in left if self._was_passed(entry)]:
            asked, where = _last(run)
            return self._blocks(
                mismatch(
                    asked=asked,
                    where=where,
                    recorded=certain,
                    attempted=run.replay.attempted.get("", []),
                    detail="Its next effect that is not recorded blocks it; if none comes, the record is passed by.",
                ),
                Prospect.may_block,
            )
        anew = tuple(f"{each.name}  {each.where}" for each in reached if each.entry is None)
        return self._made(Prospect.goes_on, anew=anew, unseen=len(left))

    def _was_passed(self, left: Entry) -> bool:
        """Has the code come to a call that was recorded later, in the same branch, and not to this one?

        A run that was opened again does what failed anew: what was recorded behind that may yet come.
        """
        if any(record.kind == Kind.reopened for record in self._records):
            return False
        held = (each.entry for each in self._run.gate.reached)
        return any(entry is not None and entry.branch == left.branch and entry.seq > left.seq for entry in held)

    def _at_end(self) -> Forecast:
        run, (_, error) = self._run, self._ended
        if error is not None and not key_of(error):
            return self._made(
                Prospect.fails,
                why=type(error).__name__,
                where=where_raised(error),
                detail=said_by(error).partition("\n")[0][:300],
            )
        if run.replay.cancel is None and (left := run.replay.open_intents()):
            asked = run.replay.attempted.get("", [])
            return self._blocks(mismatch(asked="the end of the run", where="", recorded=left, attempted=asked))
        return self._made(Prospect.goes_on)

    def _blocks(self, reason: Blocked, prospect: Prospect = Prospect.blocks) -> Forecast:
        found = reason.found
        asked, where, detail = "", "", found.detail or ""
        match found:
            case Mismatch():
                asked, where = found.asked, found.where
                detail = detail or f"the journal has {', '.join(each.key for each in found.recorded[:3])} instead"
            case Trouble():
                asked = found.asked or ""
            case _:
                pass
        code = self._agent.fn.__code__
        return self._made(
            prospect,
            why=found.cause.value,
            call=asked,
            where=where or self._where or f"{code.co_filename}:{code.co_firstlineno}",
            detail=detail,
            advice=tuple(told(self._row.id, reason)),
        )

    def _made(self, prospect: Prospect, **more: Any) -> Forecast:
        return Forecast(self._row.id, self._row.agent, self._row.status, prospect, **more)


def _last(run: RunContext) -> tuple[str, str]:
    """The call that the code came to last."""
    last = run.gate.reached[-1]
    return last.entry.key if last.entry is not None else last.name, last.where


def damaged(row: RunRow, error: CorruptJournal) -> Forecast:
    """The forecast of a run that nobody would take up."""
    return Forecast(row.id, row.agent, row.status, Prospect.damaged, "damaged", detail=str(error))
