"""What Holdfast logs during a test."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Logged(logging.Handler):
    """Keeps events with their fields, in order; threads can wait until one says that the loop is blocked."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, dict[str, object]]] = []
        self.is_blocked = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        event: str = record.__dict__["event"]
        self.events.append((event, record.__dict__["fields"]))
        if event == "loop.blocked":
            self.is_blocked.set()

    def named(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.events if name == event]


@contextmanager
def logged() -> Iterator[Logged]:
    log, handler = logging.getLogger("holdfast"), Logged()
    level, is_passed_on = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = is_passed_on
