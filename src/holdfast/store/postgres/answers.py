"""Answers of the server, for a run that is alone in its process: they need not wait for a turn of the loop.

The thread of the loop waits for the answer itself, as it waits for the disk when the store is a file. That saves the
turns of the loop between the answer and whoever waits for it. If the server is near, the thread does not even sleep:
putting it to sleep and waking it up would take a good part of the time that the server needs.
"""

from __future__ import annotations

import asyncio
import os
import select
from typing import Any

from holdfast.base.clock import monotonic_us

_LIMIT_MS = 5  # the loop can do without its thread for so long
_REST_US = 1_000_000  # what took longer is left to the loop for so long
_NEAR_US = 250  # an answer that usually takes no longer is not slept for
_SPIN_US = 400  # and if it takes longer this time, not for longer than this
_NEVER_US = 1 << 62


class AnswerTimes:
    """Of one connection."""

    def __init__(self, connection: Any) -> None:
        self._usual_us = 2.0 * _NEAR_US
        self._slow_until = _NEVER_US
        self._may_spin = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1
        transport: Any = getattr(connection, "_transport", None)
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is None or transport.get_extra_info("sslcontext") is not None or not hasattr(select, "poll"):
            return  # the loop has to take them
        self._slow_until = 0
        self._transport: Any = transport
        self._fd: int = sock.fileno()
        self._readable = select.poll()
        self._readable.register(self._fd, select.POLLIN)

    def wait(self, answer: asyncio.Future[Any]) -> bool:
        """Wait for the answer to what was sent last; False: it comes with a turn of the loop."""
        began = monotonic_us()
        if began < self._slow_until or self._transport.get_write_buffer_size():
            return False
        awake_until = began + _SPIN_US if self._may_spin and self._usual_us < _NEAR_US else 0
        poll = self._readable.poll
        while not answer.done():
            while not (is_there := poll(0)) and monotonic_us() < awake_until:
                pass
            if not is_there and not poll(_LIMIT_MS):
                self._slow_until = monotonic_us() + _REST_US
                return False
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                data = b""
            if not data:
                return False  # the loop meets the end of the connection too
            self._transport.get_protocol().data_received(data)
        self._usual_us += (min(monotonic_us() - began, 4 * _NEAR_US) - self._usual_us) / 8
        return True
