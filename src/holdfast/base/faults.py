"""Named crash points: places where a test can make the process die.

`HOLDFAST_FAULT=effect.after_body:kill@3` kills the process (SIGKILL) the third time it passes that point.
Actions: `kill`, `exit` (os._exit without clean-up), `raise` (OSError), `stop` (SIGSTOP).
`HOLDFAST_FAULT_TRACE=FILE` appends the name of each point passed, so a harness can enumerate them.
Without these variables a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter

from holdfast.base import system


class Faults:
    """What the environment asked for; one per process, read once."""

    def __init__(self, spec: str, trace: str) -> None:
        self.trace_fd = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if trace else -1
        self.name, _, action = spec.partition(":")
        self.action, _, count = action.partition("@")
        self.at = int(count or 1)
        self.passed: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        self.passed[name] += 1
        if self.trace_fd >= 0:
            os.write(self.trace_fd, f"{name}\n".encode())
        if name != self.name or self.passed[name] != self.at:
            return
        match self.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(9)
            case "stop":
                _let_commit()
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise OSError(5, f"injected fault at {name}")
            case other:
                raise ValueError(f"HOLDFAST_FAULT: unknown action {other!r}; use kill, exit, stop or raise")


def _let_commit() -> None:
    """Where the event loop stops, the thread that writes ends its transaction first: SQLite would be locked for all."""
    if threading.current_thread() is not threading.main_thread():
        return
    # Byte 120 is that of who writes to a write-ahead log.
    while any(line.endswith(" 120 120") for line in system.locks_of(os.getpid())):
        time.sleep(0.001)


def _of_environment() -> Faults | None:
    spec, trace = os.environ.get("HOLDFAST_FAULT", ""), os.environ.get("HOLDFAST_FAULT_TRACE", "")
    return Faults(spec, trace) if spec or trace else None


_faults = _of_environment()


def reset() -> None:
    """Read the environment anew: for a process that was forked, and then given another one."""
    global _faults
    _faults = _of_environment()


#: Every crash point with what has just happened there. `point()` accepts these names only (a test checks).
POINTS = {
    "start.before_commit": "a new run is about to be stored",
    "start.after_commit": "the run is stored and owned, nothing ran yet",
    "claim.before_commit": "a run is about to be taken over",
    "claim.after_commit": "a left-over run was taken over, nothing ran yet",
    "step.before_body": "a step was called and is not recorded yet",
    "step.after_body": "the step's body ended, its outcome is not recorded",
    "stream.before_append": "what bodies wrote is noted, and about to be appended",
    "stream.before_reset": "a call that wrote to a stream begins again, readers were not told",
    "guard.taken": "a fingerprint was taken, it is not recorded",
    "guard.looked": "what guards look at was looked at again, nothing of it is recorded",
    "plan.before_record": "a change to a plan is about to be recorded, with what people have sent",
    "plan.after_record": "it is recorded, not yet known to be durable",
    "effect.before_intent": "an effect was called, its intent is not durable",
    "effect.after_intent": "the intent is durable, the body has not started",
    "effect.after_body": "the effect happened, its outcome is not recorded",
    "effect.after_outcome": "the outcome is appended, not yet known to be durable",
    "settle.before_record": "a verdict on an effect in doubt is known, not recorded",
    "settle.after_record": "the verdict is recorded",
    "undo.before": "an undo is about to run",
    "undo.after": "an undo ran and is recorded",
    "child.before_start": "a child run is about to be stored",
    "child.after_start": "the child run is stored, the parent has not heard of it",
    "park.before": "the run is about to leave memory",
    "park.after": "it has left memory",
    "cancel.accepted": "a cancellation is on disk, the code has not heard of it",
    "turn.before": "a turn is about to begin, its checkpoint is not appended",
    "turn.after": "the checkpoint is appended, not yet known to be durable",
    "interrupt.before": "a handler is about to begin",
    "append.before_commit": "a batch was written into the transaction, not committed",
    "append.after_commit": "the batch is committed, nobody was told",
    "finish.before": "the agent returned, its result is not durable",
    "finish.after": "the result is durable, nobody was told",
    "send.before_commit": "mail for a run is about to be stored",
    "send.after_commit": "the mail is stored, the run has not seen it",
    "land.before_commit": "an effect has changed the user's own tables, not committed",
    "land.after_commit": "the changes are committed with the effect's result, nobody was told",
    "amend.before_commit": "what a person does to a run that nobody has is about to be stored",
    "amend.after_commit": "it is stored, nobody was told",
    "budget.raised": "a budget is raised, those who waited for it have not heard",
    "question.before_commit": "a question, or that it is closed, is about to be stored",
    "question.after_commit": "the question is stored, nobody was told",
    "say.before_commit": "messages of a thread are about to be stored",
    "say.after_commit": "the messages are stored, nobody was told",
    "define.before_commit": "definitions that workers share are about to be stored",
    "define.after_commit": "the definitions are stored, nobody was told",
    "schedule.before_start": "instants of a schedule are claimed, the next run of them is not stored",
    "schedule.after_start": "the run is stored, it is not struck out of the schedule",
    "event.before_delivery": "an event is stored, nobody was told of it",
    "event.after_delivery": "everybody was told of an event, that is not recorded",
    "trigger.after_refusal": "a message that can never be a run is set aside, its server has not heard",
    "files.before_commit": "chunks of a file are about to be stored",
    "files.after_commit": "the chunks are stored, nobody was told",
    "artifact.after_data": "all of a file is stored, no record names it",
    "workspace.before_body": "the directory is as the journal says, the body has not started",
    "workspace.after_data": "what a body left in its workspace is stored, no record names it",
    "prune.before_commit": "what ended runs did is about to be removed",
    "prune.after_commit": "it is removed, nobody was told",
    "fork.before_messages": "what a fork knows of its thread is about to be copied",
    "fork.before_commit": "a fork of a run is about to be stored",
    "fork.after_commit": "the fork is stored, nobody was told",
    "copy.after_mark": "a run that is to be moved is shut in its store, the other one has nothing of it",
    "upload.after_data": "the bytes of a file that a person gives to a run are stored, and nothing names them yet",
    "copy.before_commit": "a run of another store is about to be stored",
    "copy.after_commit": "it is stored, and not compared yet",
    "copy.before_release": "the copy of a run that moves is the same, and still shut",
    "copy.after_release": "the run goes on in its new store, the old one still has all of it",
    "migrate.before_commit": "a migration was applied, not committed",
}


#: How the names of variables begin that make a process fail, or its clock go wrong.
_SWITCHES = ("HOLDFAST_FAULT", "HOLDFAST_TEST_CLOCK")


def switched_on() -> list[str]:
    """What the environment has that is for tests only: `NAME=value`, each."""
    return [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(_SWITCHES) and value]


def point(name: str) -> None:
    """Die here if the environment says so."""
    if _faults is not None:
        _faults.hit(name)
