"""Whether a signal to stop is a second one, or the first one again."""

from __future__ import annotations

from holdfast.base.clock import monotonic_us

#: One request to stop may come as several signals: `timeout` and managers of services send one to the process and one
#: to its group, and a terminal and a parent both pass it on. They arrive together; a person who insists takes longer.
ECHO_S = 0.5


class StopSignals:
    """Counts signals to stop; those that come right after the first are part of it."""

    def __init__(self) -> None:
        self._first_us: int | None = None

    def is_first(self) -> bool:
        """To be asked once for each signal that came, before `is_second`."""
        if self._first_us is not None:
            return False
        self._first_us = monotonic_us()
        return True

    def is_second(self) -> bool:
        """Whether somebody has lost patience."""
        return self._first_us is not None and monotonic_us() - self._first_us > ECHO_S * 1e6
