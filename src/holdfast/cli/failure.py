"""Errors as the user sees them: one or two lines on stderr and an exit code."""

from __future__ import annotations

import errno
import json
import sys
import traceback

import click

from holdfast.cli.setup import Setup
from holdfast.cli.text import clean, folded, paint
from holdfast.errors import (
    AlreadyDecided,
    AlreadySettled,
    AmbiguousId,
    ConflictingSend,
    ConflictingStart,
    CorruptJournal,
    DamagedFile,
    HoldfastError,
    NeedsHuman,
    QuestionChanged,
    RunBlocked,
    RunFinished,
    RunMoved,
    RunNotFound,
    RunPruned,
    StoreCorrupt,
    StoreReplaced,
    UsageError,
)

OK, FAILED, USAGE, NOT_FOUND, CONFLICT, INTEGRITY, HUMAN, IN_DOUBT, TIMEOUT, INTERRUPTED = (
    0,
    1,
    2,
    3,
    5,
    6,
    7,
    8,
    124,
    130,
)


class Failure(click.ClickException):
    """Ends a command with this message and code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> int:
    """The exit code that says what kind of error it is."""
    match error:
        case Failure():
            return error.code
        case click.ClickException() | UsageError() | AmbiguousId():
            return USAGE
        case RunNotFound():
            return NOT_FOUND
        case (
            ConflictingStart()
            | ConflictingSend()
            | AlreadySettled()
            | AlreadyDecided()
            | QuestionChanged()
            | RunFinished()
        ):
            return CONFLICT
        case RunPruned() | RunMoved():
            return CONFLICT
        case CorruptJournal() | DamagedFile() | StoreCorrupt() | StoreReplaced():
            return INTEGRITY
        case NeedsHuman():
            return IN_DOUBT if "in-doubt" in error.command else HUMAN
        case RunBlocked():
            return HUMAN
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case _:
            return FAILED


def report(error: BaseException, setup: Setup) -> int:
    """Tell the user on stderr; the exit code."""
    code = code_of(error)
    if setup.is_json:
        _say(json.dumps({"error": {"code": code, "type": type(error).__name__, "message": clean(_message(error))}}))
        return code
    match error:
        case click.Abort() | KeyboardInterrupt():
            _say("Interrupted.")
        case click.UsageError():
            if error.ctx is not None:
                _say(f"{error.ctx.get_usage()}\nTry `{error.ctx.command_path} --help`.")
            _say(f"{_label(setup)}{clean(error.format_message())}")
        case click.ClickException() | HoldfastError():
            _say(f"{_label(setup)}{clean(_message(error))}")
        case OSError() if error.errno == errno.EPIPE:
            pass
        case OSError():
            _say(f"{_label(setup)}{clean(str(error))}")
        case _:
            # Not a mistake of the user: whoever mends it needs all of it.
            _say(clean("".join(traceback.format_exception(error))))
            _say("This is an error in Holdfast. Please report it with the lines above; stored runs are not affected.")
    return code


def _message(error: BaseException) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else str(error) or type(error).__name__


def _label(setup: Setup) -> str:
    return paint("error: ", "red", setup.has_color(sys.stderr))


def _say(text: str) -> None:
    print(folded(text, sys.stderr), file=sys.stderr)
