"""`holdfast schedules` and `holdfast fire`"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.automation.schedules.cron import instants, zone
from holdfast.automation.schedules.timetable import ScheduleInfo
from holdfast.base.clock import as_time, now_us
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import complete_defined, with_app
from holdfast.cli.defined import act_on, named
from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.groups import group
from holdfast.cli.lists import Listed, ago, show_list, stamp
from holdfast.cli.numbers import Number
from holdfast.cli.prompts import confirm
from holdfast.cli.setup import Setup, command
from holdfast.cli.text import clean, to_json
from holdfast.history.words import count, left_text

_MOST = 10_000  #: runs that one backfill may start

_schedule_argument = click.argument("name", metavar="NAME", shell_complete=complete_defined("schedule"))


@group("schedules")
def schedules_command(setup: Setup) -> int:
    """List schedules: what starts runs at given times.

    Piped, lines of: schedule, active|paused, cron, time zone, agent, next time, last time, last run, queue.
    """

    async def read(app: Holdfast) -> list[ScheduleInfo]:
        return await app.schedules()

    schedules = with_app(setup, read)
    show_list(
        setup,
        [_listed(schedule) for schedule in schedules],
        head=("STATE", "SCHEDULE", "WHEN", "STARTS", "NEXT", "LAST", "LAST RUN"),
        flexible=2,
        nothing="No schedule. `app.schedule(NAME, call, cron=…)` makes one.",
        footer=count(len(schedules), "schedule"),
    )
    return 0


def _facts(schedule: ScheduleInfo) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "state": "paused" if schedule.paused else "active",
        "cron": schedule.cron,
        "explained": schedule.explained,
        "tz": schedule.tz,
        "agent": schedule.agent,
        "queue": schedule.queue,
        "jitter_s": schedule.jitter_s,
        "overlap": schedule.overlap,
        "missed": schedule.missed,
        "next_at": stamp(_next(schedule)),
        "last_at": stamp(schedule.last_at),
        "last_run": schedule.last_run,
        "skipped": schedule.skipped,
    }


def _next(schedule: ScheduleInfo) -> datetime | None:
    return schedule.next_fires[0] if schedule.next_fires else None


def _listed(schedule: ScheduleInfo) -> Listed:
    facts = _facts(schedule)
    state, mark, style = ("paused", "⏸", "yellow") if schedule.paused else ("active", "▶", "green")
    line = [facts[each] for each in ("name", "state", "cron", "tz", "agent", "next_at", "last_at", "last_run", "queue")]
    following = _next(schedule)
    cells = (
        f"{mark} {state}",
        schedule.name,
        f"{schedule.explained} ({schedule.tz})",
        schedule.agent,
        "" if following is None else f"{following.astimezone(zone(schedule.tz)):%a %H:%M} ({left_text(following)})",
        f"{ago(schedule.last_at)} ago" if schedule.last_at is not None else "",
        schedule.last_run or "",
    )
    return Listed(facts, line, cells, style)


async def _find(app: Holdfast, name: str) -> ScheduleInfo:
    return named(await app.schedules(), "schedule", name)


def _act(setup: Setup, name: str, becomes: str, act: Callable[[Holdfast], Awaitable[object]]) -> int:
    async def work(app: Holdfast) -> None:
        await _find(app, name)
        await act(app)

    return act_on(setup, "schedule", name, becomes=becomes, act=work)


@schedules_command.act("pause")
@_schedule_argument
@actor_options
def pause_schedule(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Have a schedule start nothing until it is resumed."""
    return _act(setup, name, "paused", lambda app: app.pause_schedule(name, by=by, note=note))


@schedules_command.act("resume")
@_schedule_argument
@actor_options
def resume_schedule(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Have a paused schedule go on."""
    return _act(setup, name, "resumed", lambda app: app.resume_schedule(name, by=by, note=note))


@schedules_command.act("rm")
@_schedule_argument
@actor_options
def remove_schedule(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Remove a schedule; the runs it started are not touched."""
    return _act(setup, name, "removed", lambda app: app.remove_schedule(name, by=by, note=note))


@schedules_command.act("run")
@_schedule_argument
@actor_options
def run_schedule(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Start a run of a schedule now; prints its id."""
    return _fire(setup, name, by=by, note=note)


@command("fire")
@_schedule_argument
@actor_options
def fire_command(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Start a run of a schedule now.

    The same as `holdfast schedules run NAME`. Prints the run's id; a worker executes it.
    """
    return _fire(setup, name, by=by, note=note)


def _fire(setup: Setup, name: str, *, by: str, note: str) -> int:
    async def work(app: Holdfast) -> str:
        await _find(app, name)
        return (await app.fire_schedule(name, by=by, note=note)).id

    run_id = with_app(setup, work)
    print(to_json({"schedule": name, "run": run_id}) if setup.is_json else clean(run_id, one_line=True))
    return 0


@schedules_command.act("next")
@_schedule_argument
@click.option("--count", "number", type=Number(1, 1000), default=5, show_default=True, help="How many times.")
def next_times(setup: Setup, name: str, number: int) -> int:
    """Show when a schedule starts runs next, in its own time zone.

    Piped, lines of: time, in seconds from now.
    """

    async def read(app: Holdfast) -> ScheduleInfo:
        return await _find(app, name)

    schedule = with_app(setup, read)
    now = as_time(now_us())
    items = []
    for at in itertools.islice(instants(schedule.cron, schedule.tz, now), number):
        local = at.astimezone(zone(schedule.tz))
        left_s = (at - now).total_seconds()
        text = f"{local:%a %Y-%m-%d %H:%M:%S %Z}"
        items.append(
            Listed(
                {"at": stamp(local), "in_s": round(left_s, 3)},
                (stamp(local), f"{left_s:.0f}"),
                (text, left_text(at)),
            )
        )
    paused = "It is paused: nothing is started. " if schedule.paused else ""
    show_list(
        setup,
        items,
        head=("AT", "IN"),
        flexible=0,
        nothing=f"{name} never fires again.",
        footer=f"{paused}{schedule.explained}, {schedule.tz}",
    )
    return 0


@schedules_command.act("backfill")
@_schedule_argument
@click.option("--from", "start", required=True, metavar="TIME", help="From when: 2026-03-01 or 2026-03-01T12:00.")
@click.option("--to", "end", metavar="TIME", help="Until when. [default: now]")
@click.option("--yes", is_flag=True, help="Do not ask, however many runs that makes.")
@actor_options
def backfill(setup: Setup, name: str, start: str, end: str | None, yes: bool, *, note: str, by: str) -> int:
    """Start the runs that a schedule would have started in a time that is over.

    Times without a zone are in the schedule's own. A time that has its run already gets no second one. Prints the ids
    of the runs.
    """

    async def plan(app: Holdfast) -> tuple[datetime, datetime, int]:
        schedule = await _find(app, name)
        since = _time(start, schedule.tz, "--from")
        until = as_time(now_us()) if end is None else _time(end, schedule.tz, "--to")
        if until <= since:
            raise Failure(f"--to must be later than --from; got {since.isoformat()} to {until.isoformat()}.", USAGE)
        fitting = itertools.takewhile(
            lambda at: at <= until, instants(schedule.cron, schedule.tz, since - timedelta(seconds=1))
        )
        return since, until, sum(1 for _ in itertools.islice(fitting, _MOST + 1))

    since, until, number = with_app(setup, plan)
    if number > _MOST:
        raise Failure(f"That makes more than {_MOST} runs; take a shorter time.", USAGE)
    if number > 1 and not yes:
        confirm(f"Start {count(number, 'run')} of schedule {name} for {since.isoformat()} to {until.isoformat()}?")

    async def work(app: Holdfast) -> list[str]:
        return [run.id for run in await app.backfill_schedule(name, since, until, by=by, note=note)]

    started = with_app(setup, work)
    if setup.is_json:
        print(to_json({"schedule": name, "runs": started}))
        return 0
    for run_id in started:
        print(clean(run_id, one_line=True))
    print(f"{count(len(started), 'run')} started.", file=sys.stderr)
    return 0


def _time(given: str, tz: str, option: str) -> datetime:
    try:
        found = datetime.fromisoformat(given)
    except ValueError as error:
        raise Failure(f"{option} takes a time like 2026-03-01T12:00; got {given!r}.", USAGE) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=zone(tz))
