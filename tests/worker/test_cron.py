"""When cron expressions fire, above all where clocks are put forward and back."""

from __future__ import annotations

import itertools
import sys
import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from holdfast.automation.schedules import cron
from holdfast.errors import UsageError

VIENNA, NEW_YORK, LORD_HOWE = "Europe/Vienna", "America/New_York", "Australia/Lord_Howe"
MINUTE = timedelta(minutes=1)

#: (zone, a change of its clock, in UTC)
CHANGES = [
    (VIENNA, datetime(2026, 3, 29, 1, tzinfo=UTC)),
    (VIENNA, datetime(2026, 10, 25, 1, tzinfo=UTC)),
    (NEW_YORK, datetime(2026, 3, 8, 7, tzinfo=UTC)),
    (NEW_YORK, datetime(2026, 11, 1, 6, tzinfo=UTC)),
    (LORD_HOWE, datetime(2026, 4, 4, 15, tzinfo=UTC)),
    (LORD_HOWE, datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 4, 23, 22, tzinfo=UTC)),  # at midnight
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),  # a whole day is left out
]
#: For sweeps: one of each sort always, the others to prove.
SOME_CHANGES = [
    pytest.param(*each, marks=() if each[0] in (VIENNA, "Pacific/Apia") else pytest.mark.prove) for each in CHANGES
]


def at(text: str, tz: str | None = None) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz) if tz else UTC).astimezone(UTC)


def walls(expression: str, tz: str, after: str, count: int) -> list[str]:
    """The next fires as the clock shows them, with the offset from UTC."""
    found = itertools.islice(cron.instants(expression, tz, at(after, tz)), count)
    return [instant.astimezone(ZoneInfo(tz)).isoformat(timespec="minutes") for instant in found]


def between(expression: str, tz: str, start: datetime, end: datetime) -> list[datetime]:
    found = cron.instants(expression, tz, start)
    return list(itertools.takewhile(lambda instant: instant <= end, found))


def fits(expression: str, wall: datetime) -> bool:
    """Whether a clock that shows this, to the minute, fits the expression."""
    return next(CronSim(expression, wall - timedelta(seconds=1))) == wall


def each_minute(start: datetime, end: datetime) -> list[datetime]:
    return [start + MINUTE * n for n in range(1, (end - start) // MINUTE + 1)]


# hours are named: once for each time that the clock shows


def test_a_time_that_the_clock_leaves_out_fires_when_it_goes_on() -> None:
    assert walls("30 2 * * *", VIENNA, "2026-03-28T00:00", 3) == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert walls("30 2 * * *", NEW_YORK, "2026-03-08T00:00", 2) == ["2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"]
    assert walls("15 2 * * *", LORD_HOWE, "2026-10-04T00:00", 2) == ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"]
    assert walls("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00", 2) == [
        "2026-04-24T01:00+03:00",
        "2026-04-25T00:00+03:00",
    ]


def test_all_the_times_that_the_clock_leaves_out_fire_as_one() -> None:
    assert walls("*/10 2,3 * * *", VIENNA, "2026-03-29T00:00", 4) == [
        "2026-03-29T03:00+02:00",
        "2026-03-29T03:10+02:00",
        "2026-03-29T03:20+02:00",
        "2026-03-29T03:30+02:00",
    ]


def test_a_time_that_the_clock_shows_twice_fires_the_first_time() -> None:
    assert walls("30 2 * * *", VIENNA, "2026-10-24T12:00", 2) == ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]
    assert walls("30 1 * * *", NEW_YORK, "2026-10-31T12:00", 2) == ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"]
    assert walls("45 1 * * *", LORD_HOWE, "2026-04-04T12:00", 2) == ["2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"]


def test_asked_in_the_second_pass_of_an_hour_it_does_not_go_back_to_the_first() -> None:
    second_pass = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    assert second_pass.astimezone(ZoneInfo(VIENNA)).isoformat() == "2026-10-25T02:10:00+01:00"
    assert cron.next_after("30 2 * * *", VIENNA, second_pass) == at("2026-10-26T01:30")
    assert cron.next_after("0 3 * * *", VIENNA, second_pass) == at("2026-10-25T02:00")


def test_with_seconds_the_rules_are_the_same() -> None:
    assert cron.next_after("30 30 2 * * *", VIENNA, at("2026-03-29T00:00")) == at("2026-03-29T01:00")
    first = cron.next_after("30 30 2 * * *", VIENNA, at("2026-10-25T00:00"))
    assert first == datetime(2026, 10, 25, 0, 30, 30, tzinfo=UTC)
    assert cron.next_after("30 30 2 * * *", VIENNA, first) == datetime(2026, 10, 26, 1, 30, 30, tzinfo=UTC)


# no hours are named: in every hour that passes


@pytest.mark.parametrize(("tz", "change"), CHANGES)
def test_every_minute_is_every_minute_whatever_the_clock_does(tz: str, change: datetime) -> None:
    start, end = change - timedelta(hours=5), change + timedelta(hours=5)
    assert between("* * * * *", tz, start, end) == each_minute(start, end)


@pytest.mark.parametrize(("tz", "change"), SOME_CHANGES)
@pytest.mark.parametrize(
    "expression", ["40 * * * *", "*/15 * * * *", "0 0-23 * * *", "*/7 * * * SUN,FRI", "5,50 * 1-7 * *"]
)
def test_without_hours_it_fires_whenever_the_clock_fits(tz: str, change: datetime, expression: str) -> None:
    start, end = change - timedelta(hours=30), change + timedelta(hours=54)
    shown = [(instant, instant.astimezone(ZoneInfo(tz)).replace(tzinfo=None)) for instant in each_minute(start, end)]
    assert between(expression, tz, start, end) == [instant for instant, wall in shown if fits(expression, wall)]


def test_a_rare_day_without_hours_is_found_behind_changes_of_the_clock() -> None:
    assert walls("0 * 29 2 *", VIENNA, "2026-01-01T00:00", 2) == ["2028-02-29T00:00+01:00", "2028-02-29T01:00+01:00"]
    assert walls("0 * 1 7 *", VIENNA, "2026-07-01T23:30", 1) == ["2027-07-01T00:00+02:00"]


# both


@pytest.mark.parametrize(("tz", "change"), SOME_CHANGES)
@pytest.mark.parametrize(
    "expression", ["* * * * *", "*/20 * * * *", "*/20 1-3 * * *", "* 0-22 * * *", "30 */2 * * *", "0 0 * * *"]
)
def test_asked_one_by_one_or_from_any_instant_the_answer_is_the_same(
    tz: str, change: datetime, expression: str
) -> None:
    start, end = change - timedelta(hours=30), change + timedelta(hours=30)
    found = between(expression, tz, start, end)
    assert found == sorted(set(found))
    one_by_one, last = [], start
    while (following := cron.next_after(expression, tz, last)) is not None and following <= end:
        one_by_one.append(following)
        last = following
    assert one_by_one == found
    for asked in each_minute(start, end)[::37]:
        before = [instant for instant in found if instant <= asked]
        assert len(before) < 5 or cron.latest(expression, tz, asked, count=5) == before[-5:]
        later = next((instant for instant in found if instant > asked), None)
        assert later is None or cron.next_after(expression, tz, asked + timedelta(microseconds=5)) == later


def test_the_latest_instants_are_found_from_behind() -> None:
    until = at("2026-03-01T00:00")
    assert cron.latest("0 0 29 2 *", "UTC", until, count=2) == [at("2020-02-29T00:00"), at("2024-02-29T00:00")]
    assert cron.latest("0 0 1 * *", "UTC", until, count=1) == [until]
    assert cron.latest("0 0 1 * *", "UTC", until - timedelta(microseconds=1), count=1) == [at("2026-02-01T00:00")]
    assert cron.latest("0 0 1 * *", "UTC", until, count=0) == []


def test_parts_of_seconds_do_not_matter() -> None:
    assert cron.next_after("0 9 * * *", "UTC", at("2026-01-01T08:59:59.999999")) == at("2026-01-01T09:00")
    assert cron.next_after("0 9 * * *", "UTC", at("2026-01-01T09:00:00.000001")) == at("2026-01-02T09:00")
    assert cron.next_after("0 9 * * *", "UTC", at("2026-01-01T09:00")) == at("2026-01-02T09:00")


def test_the_leap_day_comes_in_leap_years_only() -> None:
    found = itertools.islice(cron.instants("0 0 29 2 *", "UTC", at("2026-01-01T00:00")), 3)
    assert [instant.year for instant in found] == [2028, 2032, 2036]
    assert cron.next_after("0 0 29 2 *", VIENNA, at("2096-03-01T00:00")) == at("2104-02-28T23:00")


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2,4,6 *"])
def test_a_day_that_never_comes_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="day-of-month cannot be read, or never comes"):
        cron.check(expression, "UTC", at("2026-01-01T00:00"))


@pytest.mark.parametrize("tz", ["UTC", VIENNA])
@pytest.mark.parametrize("hour", ["0", "*"])
def test_an_expression_that_never_fits_is_refused_and_no_endless_loop(tz: str, hour: str) -> None:
    first_day_and_fifth_monday = f"0 {hour} */31 * MON#5"
    assert cron.next_after(first_day_and_fifth_monday, tz, at("2026-01-01T00:00")) is None
    with pytest.raises(UsageError, match="never fires"):
        cron.check(first_day_and_fifth_monday, tz, at("2026-01-01T00:00"))


def test_the_end_of_the_calendar_is_the_end() -> None:
    last = datetime(9999, 12, 31, 12, tzinfo=UTC)
    for expression, tz in itertools.product(["0 0 * * *", "0 * * * *"], ["UTC", VIENNA, NEW_YORK]):
        assert len(list(cron.instants(expression, tz, last))) < 48


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "it has 0 fields"),
        ("* * *", "it has 3 fields"),
        ("@daily", "it has 1 field\\."),
        ("61 * * * *", "the minute cannot be read"),
        ("0 24 * * *", "the hour cannot be read"),
        ("0 0 * * XYZ", "the day-of-week cannot be read"),
        ("*/0 * * * *", "the minute cannot be read"),
        ("*" * 300, "at most 200 characters"),
        (f"*/{'9' * 150} * * * * * *", "it has 7 fields"),
    ],
)
def test_what_is_no_cron_expression_is_refused_with_the_field(expression: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        cron.next_after(expression, "UTC", at("2026-01-01T00:00"))
    with pytest.raises(UsageError, match=said):
        cron.explain(expression)


@pytest.mark.parametrize("tz", ["", "Vienna", "Europe", "../etc/passwd", "/etc/localtime", "Europe/Vienna\0"])
def test_an_unknown_time_zone_is_refused(tz: str) -> None:
    with pytest.raises(UsageError, match="is no time zone that this machine knows"):
        cron.next_after("0 0 * * *", tz, at("2026-01-01T00:00"))


def test_without_a_time_zone_database_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = zoneinfo.TZPATH
    for name in {"tzdata", *(each for each in sys.modules if each.startswith("tzdata."))}:
        monkeypatch.setitem(sys.modules, name, None)
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache(only_keys=["Antarctica/Troll"])  # other tests compare zones that they have
    try:
        with pytest.raises(UsageError, match="pip install tzdata"):
            cron.zone("Antarctica/Troll")
        assert cron.next_after("0 0 * * *", "UTC", at("2026-01-01T00:00")) == at("2026-01-02T00:00")
    finally:
        zoneinfo.reset_tzpath(to=before)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(UsageError, match="has no time zone"):
        cron.next_after("0 0 * * *", "UTC", datetime(2026, 1, 1))


def test_an_expression_is_told_in_words() -> None:
    assert cron.explain("5 0 * * MON") == "At 00:05 on Monday"
    assert cron.explain("*/10 * * * * *") == "Every 10th second of every minute"
