"""Durable AI agents: kill one at step 47, and it goes on at step 47."""

from holdfast.app import Holdfast, connect, run
from holdfast.calls import Duration, Retry
from holdfast.config import Settings
from holdfast.errors import (
    AlreadySettled,
    AmbiguousId,
    ConflictingStart,
    CorruptJournal,
    Declined,
    EffectInDoubt,
    EffectUndone,
    HoldfastError,
    LeaseLost,
    NeedsHuman,
    NestedCall,
    NotInRun,
    ReplayMismatch,
    ResultNotStored,
    RetryLater,
    RunBlocked,
    RunCancelled,
    RunError,
    RunFailed,
    RunNotFound,
    StepError,
    StoreError,
    Undecodable,
    Unserialisable,
    UsageError,
)
from holdfast.handle import InDoubt, Run
from holdfast.history import Receipt, RunInfo
from holdfast.model import Status
from holdfast.settling import Verdict, landed, not_landed
from holdfast.verbs.child import Agent, Call, agent, get, resume, start
from holdfast.verbs.effect import Effect, effect
from holdfast.verbs.race import race
from holdfast.verbs.saga import Saga, saga
from holdfast.verbs.step import Step, step
from holdfast.verbs.timer import timeout
from holdfast.verbs.values import now, patched, progress, rng, this_run, this_step, usage, uuid4
from holdfast.version import VERSION as __version__  # noqa: F401 - an attribute, not a name to import

__all__ = [
    "Agent",
    "AlreadySettled",
    "AmbiguousId",
    "Call",
    "ConflictingStart",
    "CorruptJournal",
    "Declined",
    "Duration",
    "Effect",
    "EffectInDoubt",
    "EffectUndone",
    "Holdfast",
    "HoldfastError",
    "InDoubt",
    "LeaseLost",
    "NeedsHuman",
    "NestedCall",
    "NotInRun",
    "Receipt",
    "ReplayMismatch",
    "ResultNotStored",
    "Retry",
    "RetryLater",
    "Run",
    "RunBlocked",
    "RunCancelled",
    "RunError",
    "RunFailed",
    "RunInfo",
    "RunNotFound",
    "Saga",
    "Settings",
    "Status",
    "Step",
    "StepError",
    "StoreError",
    "Undecodable",
    "Unserialisable",
    "UsageError",
    "Verdict",
    "agent",
    "connect",
    "effect",
    "get",
    "landed",
    "not_landed",
    "now",
    "patched",
    "progress",
    "race",
    "resume",
    "rng",
    "run",
    "saga",
    "start",
    "step",
    "this_run",
    "this_step",
    "timeout",
    "usage",
    "uuid4",
]
