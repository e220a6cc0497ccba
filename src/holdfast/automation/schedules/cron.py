"""When a cron expression fires: pure calendar arithmetic.

Five fields (minute, hour, day of month, month, day of week), or six with the seconds in front. `cronsim` knows the
fields; it is only ever asked about clocks on the wall, without a time zone. What a wall clock means when it is put
forward or back is decided here, by one question: does the expression name hours?

- It does (`30 2 * * *`): it fires once for each time that the clock shows. A time that is passed twice fires the first
  time only; times that are left out fire at once when the clock goes on, together as one.
- It does not (`*/15 * * * *`): it fires in every hour that passes, also in the one that the clock shows twice, and not
  for the one that it leaves out.

All results are instants in UTC, strictly later than the ones before: whatever the clock does, none comes twice.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from holdfast.errors import UsageError

_SECOND = timedelta(seconds=1)
#: No clock is changed by as much; two matches further apart than this on the wall are in the same order in time.
_FAR = timedelta(days=2)
#: Clocks are not changed twice within this time.
_STRIDE = timedelta(hours=6)
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class _Times:
    """A parsed expression."""

    sim: CronSim
    names_hours: bool

    def after(self, wall: datetime) -> Iterator[datetime]:
        """What a wall clock shows at each match later than `wall`; ends where none comes within 50 years."""
        return self._from(wall.replace(microsecond=0), 1)

    def until(self, wall: datetime) -> Iterator[datetime]:
        """The same backwards, from `wall` itself."""
        return self._from(wall.replace(microsecond=0) + _SECOND, -1)

    def _from(self, wall: datetime, direction: int) -> Iterator[datetime]:
        sim = copy.copy(self.sim)
        sim.dt, sim.tick_direction = wall, direction
        while True:
            try:
                yield next(sim)
            except (StopIteration, OverflowError):
                return


def _parsed(cron: str) -> _Times:
    if not isinstance(cron, str) or len(cron) > _LONGEST:
        raise UsageError(f"cron= takes a text of at most {_LONGEST} characters; got {str(cron)[:_LONGEST]!r}.")
    return _parse(cron)


@functools.lru_cache(maxsize=1000)
def _parse(cron: str) -> _Times:
    try:
        sim = CronSim(cron, datetime(2000, 1, 1))
    except (CronSimError, ValueError, AssertionError) as error:
        raise UsageError(
            f"{cron!r} is no cron expression: {_said(cron, error)}. It takes five fields: minute, hour, day of month, "
            "month, day of week (0 or SUN to 6 or SAT), for example '30 7 * * MON-FRI'; or six, with seconds first."
        ) from error
    return _Times(sim, names_hours=len(sim.hours) < 24)


def _said(cron: str, error: Exception) -> str:
    text = str(error)
    if text == "Wrong number of fields":
        return f"it has {len(cron.split())} field{'' if len(cron.split()) == 1 else 's'}"
    if text.startswith("Bad "):
        return f"the {text[4:]} cannot be read, or never comes"
    return "it cannot be read"


def zone(tz: str) -> tzinfo:
    """The time zone of this name; UsageError if there is none.

    Example: `zone("Europe/Vienna")`
    """
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        if not available_timezones():
            raise UsageError(
                f"There is no time zone database on this machine, so tz={tz!r} cannot be looked up. "
                "Install one: `pip install tzdata` (or the package tzdata of the operating system)."
            ) from error
        raise UsageError(
            f"tz={tz!r} is no time zone that this machine knows. Use a name such as 'UTC' or 'Europe/Vienna'; if it is "
            "one, the database is too old: `pip install tzdata`."
        ) from error


def check(cron: str, tz: str, after: datetime) -> None:
    """Raise UsageError unless the expression and the time zone are sound and it fires at least once after `after`.

    Example: `check("0 9 * * MON", "Europe/Vienna", datetime.now(UTC))`
    """
    if next_after(cron, tz, after) is None:
        raise UsageError(f"{cron!r} never fires: no day within 50 years fits it.")


def next_after(cron: str, tz: str, after: datetime) -> datetime | None:
    """The first instant later than `after` (in UTC); None if no day within 50 years fits.

    Example: `next_after("0 9 * * *", "Europe/Vienna", datetime(2026, 3, 28, 12, tzinfo=UTC))`
    """
    return next(instants(cron, tz, after), None)


def instants(cron: str, tz: str, after: datetime) -> Iterator[datetime]:
    """All instants later than `after`, in UTC, each one once and in order.

    Example: `itertools.islice(instants("*/5 * * * *", "UTC", datetime.now(UTC)), 5)`
    """
    if after.tzinfo is None:
        raise UsageError(f"{after.isoformat()} has no time zone; give it one, such as datetime.UTC.")
    times, where, start = _parsed(cron), zone(tz), after.astimezone(UTC).replace(microsecond=0)
    if where is UTC:
        return _in_utc(times, start)
    return _by_the_clock(times, where, start) if times.names_hours else _by_the_hour(times, where, start)


def latest(cron: str, tz: str, until: datetime, *, count: int) -> list[datetime]:
    """The last `count` instants up to `until`, oldest first. The work does not grow with the time before them.

    Example: `latest("*/5 * * * *", "Europe/Vienna", datetime.now(UTC), count=3)`
    """
    times, where = _parsed(cron), zone(tz)
    shown = until.astimezone(where).replace(tzinfo=None)
    wanted = count
    while True:
        walls = list(itertools.islice(times.until(shown), wanted))
        if not walls or count < 1:
            return []
        # A time that the clock shows twice, or leaves out, has two readings: all there is lies after the earlier one.
        first = min(walls[-1].replace(tzinfo=where, fold=fold).astimezone(UTC) for fold in (0, 1))
        found = list(itertools.takewhile(lambda instant: instant <= until, instants(cron, tz, first - _SECOND)))
        if len(found) >= count or len(walls) < wanted:
            return found[-count:]
        wanted *= 2


def explain(cron: str) -> str:
    """The expression in words.

    Example: `explain("5 0 * * MON")`  # At 00:05 on Monday
    """
    return _parsed(cron).sim.explain()


def _in_utc(times: _Times, start: datetime) -> Iterator[datetime]:
    for wall in times.after(start.replace(tzinfo=None)):
        yield wall.replace(tzinfo=UTC)


def _by_the_clock(times: _Times, where: tzinfo, start: datetime) -> Iterator[datetime]:
    """Once for each time that the clock shows."""
    for wall in times.after(start.astimezone(where).replace(tzinfo=None)):
        instant = _first_shown(wall, where)
        if instant is None:
            return
        # In the hour that comes twice, and for all but the first of the times left out, it is not.
        if instant > start:
            start = instant
            yield instant


def _first_shown(wall: datetime, where: tzinfo) -> datetime | None:
    """The first instant at which the clock shows this, or has passed it; None beyond the end of the calendar."""
    try:
        instant = wall.replace(tzinfo=where, fold=0).astimezone(UTC)
        if instant.astimezone(where).replace(tzinfo=None) == wall:
            return instant
        # Left out. With the offset from after the change this is before the change, with the one from before, after it.
        before = wall.replace(tzinfo=where, fold=1).astimezone(UTC)
        return _change(where, before, instant) or instant
    except OverflowError:
        return None


def _by_the_hour(times: _Times, where: tzinfo, start: datetime) -> Iterator[datetime]:
    """Whenever the clock shows a match, however often it does: one stretch without a change of the clock at a time."""
    while True:
        try:
            stretch = start + _SECOND
            offset = _offset(where, stretch)
            change = _change(where, stretch, start + _FAR)
        except OverflowError:
            return
        for wall in times.after((start + offset).replace(tzinfo=None)):
            instant = (wall - offset).replace(tzinfo=UTC)
            if change is not None and instant >= change:
                start = change - _SECOND
                break
            if change is None and instant > start + _FAR:
                # The clock may have been changed on the way. Nothing else matches in between, see _FAR.
                start = max(start + _FAR, instant - _FAR)
                break
            yield instant
        else:
            return


def _offset(where: tzinfo, instant: datetime) -> timedelta:
    return instant.astimezone(where).utcoffset() or timedelta()


def _change(where: tzinfo, start: datetime, end: datetime) -> datetime | None:
    """The first instant after `start`, up to `end`, from which the clock has another offset."""
    offset, low = _offset(where, start), start
    while low < end:
        high = min(low + _STRIDE, end)
        if _offset(where, high) != offset:
            while high - low > _SECOND:
                middle = low + (high - low) // _SECOND // 2 * _SECOND
                low, high = (middle, high) if _offset(where, middle) == offset else (low, middle)
            return high
        low = high
    return None
