"""Durable AI agents: kill one at step 47, and it goes on at step 47."""

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.durations import Duration
from holdfast.errors import (
    AlreadyDecided,
    AlreadySettled,
    AmbiguousId,
    ConflictingSend,
    ConflictingStart,
    CorruptJournal,
    Declined,
    EffectInDoubt,
    EffectUndone,
    HoldfastError,
    NeedsHuman,
    NestedCall,
    NotInRun,
    QuestionChanged,
    ResultNotStored,
    RetryLater,
    RunBlocked,
    RunCancelled,
    RunError,
    RunFailed,
    RunFinished,
    RunMoved,
    RunNotFound,
    RunPruned,
    StepError,
    Stop,
    StoreError,
    Undecodable,
    Unserialisable,
    UsageError,
)
from holdfast.model import QuestionState, Status
from holdfast.running.calls import Retry
from holdfast.verbs.child import Agent, Call, MainLine, agent, get, resume, start
from holdfast.verbs.step import Step, step
from holdfast.version import VERSION as __version__  # noqa: F401 - an attribute, not a name to import

if TYPE_CHECKING:
    from holdfast.app import Holdfast, WorkerInfo, arun, connect, run
    from holdfast.automation.schedules.timetable import ScheduleInfo
    from holdfast.automation.triggers import FileChange, FileEvent, NatsMessage, NatsQueue, TriggerInfo
    from holdfast.base.config import Settings
    from holdfast.control.upkeep.retention import PruneResult, RetentionInfo
    from holdfast.handle.people import InDoubt, Question
    from holdfast.handle.run import Run
    from holdfast.history.history import Receipt, RunInfo
    from holdfast.verbs.effect.effect import effect
    from holdfast.verbs.effect.settling import Verdict, landed, not_landed
    from holdfast.verbs.effect.signatures import Effect
    from holdfast.verbs.effect.transactions import transaction
    from holdfast.verbs.outward import emit
    from holdfast.verbs.question import Approval, Asked, ask
    from holdfast.verbs.race import race
    from holdfast.verbs.reducer import reducer
    from holdfast.verbs.saga import Saga, saga
    from holdfast.verbs.signal import Signal, receive
    from holdfast.verbs.timer import sleep, timeout
    from holdfast.verbs.values import now, patched, progress, rng, this_run, this_step, usage, uuid4
    from holdfast.worker.queues import QueueInfo

__all__ = [
    "Agent",
    "AlreadyDecided",
    "AlreadySettled",
    "AmbiguousId",
    "Approval",
    "Asked",
    "Call",
    "ConflictingSend",
    "ConflictingStart",
    "CorruptJournal",
    "Declined",
    "Duration",
    "Effect",
    "EffectInDoubt",
    "EffectUndone",
    "FileChange",
    "FileEvent",
    "Holdfast",
    "HoldfastError",
    "InDoubt",
    "MainLine",
    "NatsMessage",
    "NatsQueue",
    "NeedsHuman",
    "NestedCall",
    "NotInRun",
    "PruneResult",
    "Question",
    "QuestionChanged",
    "QuestionState",
    "QueueInfo",
    "Receipt",
    "ResultNotStored",
    "RetentionInfo",
    "Retry",
    "RetryLater",
    "Run",
    "RunBlocked",
    "RunCancelled",
    "RunError",
    "RunFailed",
    "RunFinished",
    "RunInfo",
    "RunMoved",
    "RunNotFound",
    "RunPruned",
    "Saga",
    "ScheduleInfo",
    "Settings",
    "Signal",
    "Status",
    "Step",
    "StepError",
    "Stop",
    "StoreError",
    "TriggerInfo",
    "Undecodable",
    "Unserialisable",
    "UsageError",
    "Verdict",
    "WorkerInfo",
    "agent",
    "arun",
    "ask",
    "connect",
    "effect",
    "emit",
    "get",
    "landed",
    "not_landed",
    "now",
    "patched",
    "progress",
    "race",
    "receive",
    "reducer",
    "resume",
    "rng",
    "run",
    "saga",
    "sleep",
    "start",
    "step",
    "this_run",
    "this_step",
    "timeout",
    "transaction",
    "usage",
    "uuid4",
]

#: Loaded when they are first asked for: what a program needs that has not connected yet stands above. No name here is
#: also that of a module, which would take its place.
_LATER = {
    "Approval": "holdfast.verbs.question",
    "Asked": "holdfast.verbs.question",
    "Effect": "holdfast.verbs.effect.signatures",
    "FileChange": "holdfast.automation.triggers",
    "FileEvent": "holdfast.automation.triggers",
    "Holdfast": "holdfast.app.app",
    "InDoubt": "holdfast.handle.people",
    "NatsMessage": "holdfast.automation.triggers",
    "NatsQueue": "holdfast.automation.triggers",
    "PruneResult": "holdfast.control.upkeep.retention",
    "Question": "holdfast.handle.people",
    "QueueInfo": "holdfast.worker.queues",
    "Receipt": "holdfast.history.history",
    "RetentionInfo": "holdfast.control.upkeep.retention",
    "Run": "holdfast.handle.run",
    "RunInfo": "holdfast.history.history",
    "Saga": "holdfast.verbs.saga",
    "ScheduleInfo": "holdfast.automation.schedules.timetable",
    "Settings": "holdfast.base.config",
    "Signal": "holdfast.verbs.signal",
    "TriggerInfo": "holdfast.automation.triggers",
    "Verdict": "holdfast.verbs.effect.settling",
    "WorkerInfo": "holdfast.app.app",
    "arun": "holdfast.app.app",
    "ask": "holdfast.verbs.question",
    "connect": "holdfast.app.app",
    "effect": "holdfast.verbs.effect.effect",
    "emit": "holdfast.verbs.outward",
    "landed": "holdfast.verbs.effect.settling",
    "not_landed": "holdfast.verbs.effect.settling",
    "now": "holdfast.verbs.values",
    "patched": "holdfast.verbs.values",
    "progress": "holdfast.verbs.values",
    "race": "holdfast.verbs.race",
    "receive": "holdfast.verbs.signal",
    "reducer": "holdfast.verbs.reducer",
    "rng": "holdfast.verbs.values",
    "run": "holdfast.app.app",
    "saga": "holdfast.verbs.saga",
    "sleep": "holdfast.verbs.timer",
    "this_run": "holdfast.verbs.values",
    "this_step": "holdfast.verbs.values",
    "timeout": "holdfast.verbs.timer",
    "transaction": "holdfast.verbs.effect.transactions",
    "usage": "holdfast.verbs.values",
    "uuid4": "holdfast.verbs.values",
}


if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_LATER[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
