"""What user code raises besides `Exception`: cancellations from within, SystemExit, exceptions of a framework's own."""

from __future__ import annotations

import asyncio
import opcode

from holdfast.codec import message_of, named
from holdfast.errors import StepError

_RAISES = frozenset({opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]})


def raised(error: BaseException, *, is_over: bool = False) -> Exception:
    """What user code raised, as an outcome that can be recorded. Raises again what is not the code's own.

    A cancellation is the code's own unless the run is being given up (`is_over`). So are SystemExit and
    KeyboardInterrupt, which would otherwise end the event loop with everybody's runs; but for a real Ctrl-C, which is
    the process's.
    """
    if isinstance(error, Exception):
        return error
    is_cancelled = isinstance(error, asyncio.CancelledError)
    if (is_cancelled and is_over) or is_from_outside(error):
        raise error
    kind = type(error).__name__
    text = message_of(error) or ("it was cancelled from within" if is_cancelled else "")
    seen = StepError(named(kind, text), error_type=kind, error_message=text)
    seen.__cause__ = error
    return seen


def is_from_outside(error: BaseException) -> bool:
    """Did no statement of the code raise it, but a signal (Ctrl-C), or whoever closes the coroutine?"""
    if not isinstance(error, KeyboardInterrupt | GeneratorExit):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    code = trace.tb_frame.f_code
    return code.co_code[trace.tb_lasti] not in _RAISES or code.co_name == "_on_sigint"
