"""Durable AI agents: kill one at step 47, and it goes on at step 47."""

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.durations import Duration
from holdfast.errors import (
    AlreadyDecided,
    AlreadySettled,
    AmbiguousId,
    CarriedLocal,
    ConflictingSend,
    ConflictingStart,
    CorruptJournal,
    DamagedFile,
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
from holdfast.running.options import Retry
from holdfast.verbs.agent import Agent, Call, MainLine, agent
from holdfast.verbs.step import Step, step
from holdfast.version import VERSION as __version__  # noqa: F401 - an attribute, not a name to import

if TYPE_CHECKING:
    from holdfast.app import Holdfast, WorkerInfo, arun, connect, run
    from holdfast.automation.schedules.timetable import ScheduleInfo
    from holdfast.automation.triggers import FileChange, FileEvent, NatsMessage, NatsQueue, TriggerInfo
    from holdfast.base.config import Settings
    from holdfast.base.secrets import Secret, redact
    from holdfast.control.upkeep.retention import PruneResult, RetentionInfo
    from holdfast.handle.decisions import InDoubt, Question
    from holdfast.handle.run import Run
    from holdfast.history.checkpoints import CheckpointInfo, StateChange
    from holdfast.history.info import RunInfo
    from holdfast.history.receipts import Receipt
    from holdfast.model.budgets import Budget
    from holdfast.model.plans import PlanItem
    from holdfast.model.questions import QuestionState
    from holdfast.model.statuses import Status
    from holdfast.model.streams import Partial, StreamEvent
    from holdfast.running.artifacts import Artifact
    from holdfast.running.workspaces import Workspace
    from holdfast.verbs.artifact import artifact
    from holdfast.verbs.effect.effect import effect
    from holdfast.verbs.effect.settling import Verdict, landed, not_landed
    from holdfast.verbs.effect.signatures import Effect
    from holdfast.verbs.effect.transactions import transaction
    from holdfast.verbs.fingerprints import guards
    from holdfast.verbs.guard import guard
    from holdfast.verbs.logger import logger
    from holdfast.verbs.plan import Plan, plan
    from holdfast.verbs.question import Approval, Asked, ask
    from holdfast.verbs.race import race
    from holdfast.verbs.reducer import reducer
    from holdfast.verbs.remote import emit
    from holdfast.verbs.saga import Saga, saga
    from holdfast.verbs.signal import Signal, receive
    from holdfast.verbs.start import get, resume, start
    from holdfast.verbs.stream import StreamWriter, stream
    from holdfast.verbs.thread import Thread, thread
    from holdfast.verbs.timer import sleep, timeout
    from holdfast.verbs.turns import turns
    from holdfast.verbs.values import now, patched, progress, rng, this_run, this_step, usage, uuid4
    from holdfast.verbs.workspace import workspace
    from holdfast.worker.queues import QueueInfo

__all__ = [
    "Agent",
    "AlreadyDecided",
    "AlreadySettled",
    "AmbiguousId",
    "Approval",
    "Artifact",
    "Asked",
    "Budget",
    "Call",
    "CarriedLocal",
    "CheckpointInfo",
    "ConflictingSend",
    "ConflictingStart",
    "CorruptJournal",
    "DamagedFile",
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
    "Partial",
    "Plan",
    "PlanItem",
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
    "Secret",
    "Settings",
    "Signal",
    "StateChange",
    "Status",
    "Step",
    "StepError",
    "Stop",
    "StoreError",
    "StreamEvent",
    "StreamWriter",
    "Thread",
    "TriggerInfo",
    "Undecodable",
    "Unserialisable",
    "UsageError",
    "Verdict",
    "WorkerInfo",
    "Workspace",
    "agent",
    "artifact",
    "arun",
    "ask",
    "connect",
    "effect",
    "emit",
    "get",
    "guard",
    "guards",
    "landed",
    "logger",
    "not_landed",
    "now",
    "patched",
    "plan",
    "progress",
    "race",
    "receive",
    "redact",
    "reducer",
    "resume",
    "rng",
    "run",
    "saga",
    "sleep",
    "start",
    "step",
    "stream",
    "this_run",
    "this_step",
    "thread",
    "timeout",
    "transaction",
    "turns",
    "usage",
    "uuid4",
    "workspace",
]

#: Loaded when they are first asked for: what a program needs that has not connected yet stands above. No name here is
#: also that of a module, which would take its place.
_LATER = {
    "Approval": "holdfast.verbs.question",
    "Artifact": "holdfast.running.artifacts",
    "Asked": "holdfast.verbs.question",
    "Budget": "holdfast.model.budgets",
    "CheckpointInfo": "holdfast.history.checkpoints",
    "Effect": "holdfast.verbs.effect.signatures",
    "FileChange": "holdfast.automation.triggers",
    "FileEvent": "holdfast.automation.triggers",
    "Holdfast": "holdfast.app.app",
    "InDoubt": "holdfast.handle.decisions",
    "NatsMessage": "holdfast.automation.triggers",
    "NatsQueue": "holdfast.automation.triggers",
    "Partial": "holdfast.model.streams",
    "Plan": "holdfast.verbs.plan",
    "PlanItem": "holdfast.model.plans",
    "PruneResult": "holdfast.control.upkeep.retention",
    "Question": "holdfast.handle.decisions",
    "QuestionState": "holdfast.model.questions",
    "QueueInfo": "holdfast.worker.queues",
    "Receipt": "holdfast.history.receipts",
    "RetentionInfo": "holdfast.control.upkeep.retention",
    "Run": "holdfast.handle.run",
    "RunInfo": "holdfast.history.info",
    "Saga": "holdfast.verbs.saga",
    "ScheduleInfo": "holdfast.automation.schedules.timetable",
    "Secret": "holdfast.base.secrets",
    "Settings": "holdfast.base.config",
    "Signal": "holdfast.verbs.signal",
    "StateChange": "holdfast.history.checkpoints",
    "Status": "holdfast.model.statuses",
    "StreamEvent": "holdfast.model.streams",
    "StreamWriter": "holdfast.verbs.stream",
    "Thread": "holdfast.verbs.thread",
    "TriggerInfo": "holdfast.automation.triggers",
    "Verdict": "holdfast.verbs.effect.settling",
    "WorkerInfo": "holdfast.app.looks",
    "Workspace": "holdfast.running.workspaces",
    "artifact": "holdfast.verbs.artifact",
    "arun": "holdfast.app.bridge",
    "ask": "holdfast.verbs.question",
    "connect": "holdfast.app.connection",
    "effect": "holdfast.verbs.effect.effect",
    "emit": "holdfast.verbs.remote",
    "get": "holdfast.verbs.start",
    "guard": "holdfast.verbs.guard",
    "guards": "holdfast.verbs.fingerprints",
    "landed": "holdfast.verbs.effect.settling",
    "logger": "holdfast.verbs.logger",
    "not_landed": "holdfast.verbs.effect.settling",
    "now": "holdfast.verbs.values",
    "patched": "holdfast.verbs.values",
    "plan": "holdfast.verbs.plan",
    "progress": "holdfast.verbs.values",
    "race": "holdfast.verbs.race",
    "receive": "holdfast.verbs.signal",
    "redact": "holdfast.base.secrets",
    "reducer": "holdfast.verbs.reducer",
    "resume": "holdfast.verbs.start",
    "rng": "holdfast.verbs.values",
    "run": "holdfast.app.bridge",
    "saga": "holdfast.verbs.saga",
    "sleep": "holdfast.verbs.timer",
    "start": "holdfast.verbs.start",
    "stream": "holdfast.verbs.stream",
    "this_run": "holdfast.verbs.values",
    "this_step": "holdfast.verbs.values",
    "thread": "holdfast.verbs.thread",
    "timeout": "holdfast.verbs.timer",
    "transaction": "holdfast.verbs.effect.transactions",
    "turns": "holdfast.verbs.turns",
    "usage": "holdfast.verbs.values",
    "uuid4": "holdfast.verbs.values",
    "workspace": "holdfast.verbs.workspace",
}


if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_LATER[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
