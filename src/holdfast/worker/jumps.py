"""A wall clock that is set while a worker is at work, and what a wrong one has left behind.

Somebody mistypes a date, a time server is wrong, a machine wakes up without one: for a moment it is next year. Whoever
acts on that has schedules fire that are not due, prunes what is young, and writes down times that nobody can reach. So
a worker that sees its clock jump claims nothing for a while. If the clock stays where it is, it is believed: most
clocks that are set were wrong before.

What was written by a clock that was ahead is put right when it is found: `timetable.believed`, `queue_state.believed`.
"""

from __future__ import annotations

from typing import Final

from holdfast.base import clock
from holdfast.base.telemetry import info, warn

#: How long a clock that has jumped must stay where it is to be believed.
_SETTLE_US: Final = 60 * 1_000_000
#: How often what is stored is looked through for times that are ahead.
_LOOK_US: Final = 60 * 1_000_000


class Jumps:
    """The wall clock of this machine, as one worker has seen it since it began."""

    def __init__(self, settle_us: int = _SETTLE_US) -> None:
        self._settle_us = settle_us
        self._looked_us: int | None = None
        self._believed_us = clock.offset_us()
        self._seen_us = 0
        self._since_us: int | None = None  # on the clock that nobody sets; None: it is as it was

    def is_steady(self) -> bool:
        """May something be claimed by this clock?"""
        offset_us = clock.offset_us()
        if abs(offset_us - self._believed_us) <= clock.AN_HOUR_US:
            self._believed_us = offset_us
            if self._since_us is not None:
                self._since_us = None
                info("clock.put_right")
            return True
        now_us = clock.monotonic_us()
        if self._since_us is None or abs(offset_us - self._seen_us) > clock.AN_HOUR_US:
            self._since_us, self._seen_us, self._looked_us = now_us, offset_us, None
            warn(
                "clock.jumped",
                by_s=(offset_us - self._believed_us) // 1_000_000,
                advice=f"nothing is claimed until it is put right, or stays so for {self._settle_us // 1_000_000} s",
            )
        if now_us - self._since_us < self._settle_us:
            return False
        self._believed_us, self._since_us = offset_us, None
        warn("clock.believed")
        return True

    def is_time_to_look(self) -> bool:
        """Is what is stored to be looked through: at first, after a jump, and now and then? Asked once each time."""
        now_us = clock.monotonic_us()
        if self._looked_us is not None and now_us - self._looked_us < _LOOK_US:
            return False
        self._looked_us = now_us
        return True
