"""Every error Holdfast raises.

HoldfastError
├── UsageError                 the library was called wrongly
│   ├── NotInRun               a durable verb was called outside a run
│   └── NestedCall             a durable verb was called inside a step or effect body
├── Unserialisable             a value cannot be stored (names its path)
├── Undecodable                a stored value does not fit the type the code asks for now
├── StepError                  a step or effect raised something not declared in `raises=`
│   ├── EffectInDoubt          an effect may or may not have happened, and the rule says: fail
│   ├── EffectUndone           an effect in doubt was undone by its rule
│   └── ResultNotStored        an effect happened, but its result could not be stored
├── RetryLater                 raised by a step: try again after a while
├── Stop                       raised by a reducer: the run ends with this state
├── Declined                   a person declined a question
├── RunError                   the outcome of a run, seen by whoever waits for it
│   ├── RunFailed              the agent raised
│   ├── RunCancelled           the run was cancelled
│   ├── RunBlocked             the run needs a fix before it can go on
│   └── NeedsHuman             the run is parked until a person decides
├── ConflictingStart           a run with this id exists, with another agent or input
├── ConflictingSend            something else was sent or emitted under this dedup id
├── RunNotFound                no run with this id
├── AmbiguousId                an id prefix that fits several runs
├── AlreadySettled             an effect in doubt was settled before
├── AlreadyDecided             somebody else answered the question first
├── QuestionChanged            the question shows something else than what was answered
├── RunFinished                the run has ended, so nothing can be sent to it
├── RunPruned                  the run has ended, and what it did was removed since
├── RunMoved                   the run lives in another store
├── CorruptJournal             stored data failed verification
├── DamagedFile                a file that a run stored is missing, or is not what it was
├── AccessDenied               a server does not let you do it
└── StoreError                 the store cannot do what was asked
    ├── NoStore                there is none at this place
    ├── StoreCorrupt           the file itself is damaged
    ├── SchemaTooNew           written by a newer Holdfast
    ├── StoreReplaced          the file was deleted, replaced or cut short under a running process
    ├── StoreFull              no space left
    ├── Fenced                 somebody else owns the run that this was done for
    └── ForkedConnection       a connection was used in a forked child

CarriedLocal                   a warning: a local variable of a loop of turns will be forgotten
"""

from __future__ import annotations

from typing import Any

from holdfast.durations import Duration, length_s, no_duration


class HoldfastError(Exception):
    """Base of every error that Holdfast raises."""


class UsageError(HoldfastError):
    """The library was called in a way that cannot work; the message says what to do instead."""


class NotInRun(UsageError):
    """A durable verb was called outside a run."""


class NestedCall(UsageError):
    """A durable verb was called inside the body of a step or effect."""


class CarriedLocal(UserWarning):
    """A local variable changed in a turn of `hf.turns` and is not in its state: a resume does not know it.

    Example: `warnings.simplefilter("error", hf.CarriedLocal)` in tests
    """


class Unserialisable(HoldfastError):
    """A value cannot be stored. `path` says where in the value, `type_name` what was found there."""

    def __init__(self, message: str, *, path: str = "", type_name: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.type_name = type_name


class Undecodable(HoldfastError):
    """A stored value does not fit the type that the code asks for now."""


class StepError(HoldfastError):
    """A step or effect raised an exception that is neither builtin nor declared in `raises=`.

    `error_type` and `error_message` are those of the original. To get the original class back,
    live and after a resume, declare it: `@hf.step(raises=(MyError,))`.
    """

    def __init__(self, message: str, *, error_type: str = "", error_message: str = "") -> None:
        super().__init__(message)
        self.error_type = error_type
        self.error_message = error_message


class EffectInDoubt(StepError):
    """An effect was cut off, nobody can tell whether it happened, and its rule is to fail."""


class EffectUndone(StepError):
    """An effect was cut off and its `undo` ran; whatever may have happened is taken back."""


class ResultNotStored(StepError):
    """An effect happened, but its result could not be stored. The effect is never repeated."""


class RetryLater(HoldfastError):
    """Raise it in a step or effect to be tried again after a time: seconds, or a timedelta.

    It does not count against `retries`. In an effect it states that nothing happened.
    """

    def __init__(self, after: Duration = 1.0, *, hold_queue: bool = False) -> None:
        after_s = length_s(after)
        if after_s is None:
            raise UsageError(no_duration("hf.RetryLater()", after))
        super().__init__(f"retry after {after_s:g} s")
        self.after = max(after_s, 0.0)
        self.hold_queue = hold_queue


class Stop(HoldfastError):
    """Raise it in a reducer to end the run with `state`."""

    def __init__(self, state: Any = None) -> None:
        super().__init__("the reducer stopped")
        self.state = state


class Declined(HoldfastError):
    """A person declined a question."""


class RunError(HoldfastError):
    """The outcome of a run, raised to whoever waits for its result."""

    def __init__(self, message: str, *, run_id: str = "", token: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.token = token


class RunFailed(RunError):
    """The agent raised; the original exception is the `__cause__` where it can be rebuilt."""


class RunCancelled(RunError):
    """The run was cancelled."""


class RunBlocked(RunError):
    """The run needs a fix before it can go on; `reason` says which."""

    def __init__(
        self, message: str, *, run_id: str = "", token: str = "", reason: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message, run_id=run_id, token=token)
        self.reason: dict[str, Any] = reason or {}


class NeedsHuman(RunError):
    """The run is parked until a person decides; `command` shows how."""

    def __init__(self, message: str, *, run_id: str = "", token: str = "", command: str = "") -> None:
        super().__init__(message, run_id=run_id, token=token)
        self.command = command


class ConflictingStart(HoldfastError):
    """A run with this id exists already, with another agent or other arguments."""


class ConflictingSend(HoldfastError):
    """Something else was sent or emitted under this dedup id before; `known` is its id. Nothing was sent now."""

    def __init__(self, message: str, *, known: str = "") -> None:
        super().__init__(message)
        self.known = known


class RunNotFound(HoldfastError):
    """There is no run with this id in this store."""


class AmbiguousId(HoldfastError):
    """The id prefix fits several runs."""


class AlreadySettled(HoldfastError):
    """The effect is not in doubt (any more): somebody, or a verification, was first."""


class AlreadyDecided(HoldfastError):
    """The question was decided before: `state` says how, `by` by whom (None: nobody, it expired)."""

    def __init__(self, message: str, *, state: str = "", by: str | None = None) -> None:
        super().__init__(message)
        self.state = state
        self.by = by


class QuestionChanged(HoldfastError):
    """What the question shows has changed since it was looked at; the answer was refused."""


class RunFinished(HoldfastError):
    """The run has ended, with `status`; nothing can be sent to it any more."""

    def __init__(self, message: str, *, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class RunPruned(HoldfastError):
    """The run ended, with `status`, and what it did was removed since; only that it was there is known."""

    def __init__(self, message: str, *, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class RunMoved(HoldfastError):
    """The run lives in another store, or is on its way: `to` says which one."""

    def __init__(self, message: str, *, to: str = "") -> None:
        super().__init__(message)
        self.to = to


class CorruptJournal(HoldfastError):
    """Stored data of a run failed verification; the run is quarantined."""

    def __init__(self, message: str, *, run_id: str = "", seq: int | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.seq = seq


class DamagedFile(HoldfastError):
    """A file that a run stored is missing, or is not what it was. The run itself is sound, and goes on."""

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class AccessDenied(HoldfastError):
    """A server does not let you in, or your role there does not allow it."""


class StoreError(HoldfastError):
    """The store cannot do what was asked."""


class NoStore(StoreError):
    """There is no store at this place, and reading makes none."""


class StoreAway(StoreError):
    """The server of the store cannot be reached now."""


class StoreCorrupt(StoreError):
    """The database file itself is damaged."""


class SchemaTooNew(StoreError):
    """The store was written by a newer Holdfast; nothing was touched."""


class StoreReplaced(StoreError):
    """The database file or its log was deleted, replaced or cut short while this process used it."""


class StoreFull(StoreError):
    """There is no space left for the store to write."""


class Fenced(StoreError):
    """Something was done for a run that somebody else owns by now; nothing was changed."""


class ForkedConnection(StoreError):
    """A store opened before a fork was used in the child process."""
