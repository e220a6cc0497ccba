"""`holdfast runs`"""

from __future__ import annotations

import shutil
import sys
from datetime import timedelta

import click

from holdfast.base.clock import now_us
from holdfast.base.hints import quoted
from holdfast.cli.clients import complete_defined
from holdfast.cli.durations import age
from holdfast.cli.numbers import Number
from holdfast.cli.setup import Setup, command, status_option
from holdfast.cli.stores import with_store
from holdfast.cli.text import LOST, SHAPES, clean, table, to_json
from holdfast.history.info import RunInfo, info_of, is_sound
from holdfast.history.waiting import needs_answer, now_of
from holdfast.history.words import amount, count, duration
from holdfast.model import RunFilter, RunId, RunRow, Status, ThreadId
from holdfast.store.contract import Store


@command("runs")
@status_option(Status, "Only these")
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option("--thread", metavar="ID", help="Only runs of this thread.")
@click.option("--queue", metavar="NAME", shell_complete=complete_defined("queue"), help="Only runs of this queue.")
@click.option("--tag", "tags", metavar="NAME=VALUE", multiple=True, help="Only runs with this tag; may be repeated.")
@click.option("--since", metavar="AGE", help="Only runs started within 30m, 12h, 7d, …")
@click.option("--limit", type=Number(1, 1000), default=50, show_default=True)
@click.option("--cursor", metavar="RUN", help="List on after this run (the last one of the page before).")
def runs_command(
    setup: Setup,
    statuses: tuple[str, ...],
    agent: str | None,
    thread: str | None,
    queue: str | None,
    tags: tuple[str, ...],
    since: str | None,
    limit: int,
    cursor: str | None,
) -> int:
    """List runs, newest first.

    A table on a terminal; piped, lines of: id, status, agent, now, steps, effects, started, cost, thread.
    """
    which = RunFilter(
        status=frozenset(Status(each) for each in statuses) or None,
        agent=agent,
        thread_id=None if thread is None else ThreadId(thread),
        queue=queue,
        tags=tuple(_tag(each) for each in tags),
        since=None if since is None else now_us() - age(since, "--since") // timedelta(microseconds=1),
        limit=limit + 1,
        before_id=None if cursor is None else RunId(cursor),
    )

    async def read(store: Store) -> tuple[list[RunRow], frozenset[str]]:
        return await store.runs(which), frozenset(await store.dead_workers())

    rows, dead = with_store(setup, read)
    following = rows[limit - 1].id if len(rows) > limit else None
    rows = rows[:limit]
    infos = [(info_of(row, is_lost=row.owner in dead), is_sound(row)) for row in rows]
    if setup.is_json:
        print(to_json({"items": [{**info.as_dict(), "is_sound": sound} for info, sound in infos], "next": following}))
    elif setup.is_table:
        _show_table(infos, following, setup.has_color(sys.stdout))
    else:
        for info, _ in infos:
            print(_line(info))
    return 0


def _tag(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"a tag is NAME=VALUE; got {given!r}", param_hint="--tag")
    return name, value


def _line(info: RunInfo) -> str:
    status = "cut_off" if info.is_lost else info.status.value
    started = info.created_at.isoformat(timespec="seconds")
    parts = (
        info.id,
        status,
        info.agent,
        now_of(info),
        info.steps,
        info.effects,
        started,
        f"{info.cost:g}",
        info.thread_id,
    )
    return "\t".join(clean(str(part), one_line=True) for part in parts)


def _show_table(infos: list[tuple[RunInfo, bool]], following: str | None, has_color: bool) -> None:
    if not infos:
        print("No runs.", file=sys.stderr)
        return
    now = now_us() / 1e6
    rows, styles = [], []
    for info, sound in infos:
        shape, word, style = LOST if info.is_lost else SHAPES[info.status]
        rows.append(
            (
                f"{shape} {word}",
                clean(info.id, one_line=True),
                clean(info.agent, one_line=True),
                clean(now_of(info), one_line=True),
                str(info.steps + info.effects),
                duration(max(0.0, now - info.created_at.timestamp())),
                amount(info.cost),
                "✔" if sound else "✖",
            )
        )
        styles.append(style)
    head = ("STATUS", "RUN", "AGENT", "NOW", "CALLS", "AGE", "COST", "✓")
    columns = shutil.get_terminal_size().columns
    print(table(head, rows, columns=columns, flexible=3, styles=styles, has_color=has_color))
    print(_footer([info for info, _ in infos], following), file=sys.stderr)


def _footer(infos: list[RunInfo], following: str | None) -> str:
    parts = [count(len(infos), "run")]
    asking = sum(needs_answer(info) for info in infos)
    doubts = sum(info.status is Status.in_doubt for info in infos)
    blocked = sum(info.status is Status.blocked for info in infos)
    lost = sum(info.is_lost for info in infos)
    if asking:
        parts.append(f"{asking} need{'s' if asking == 1 else ''} you (holdfast questions)")
    if doubts:
        parts.append(f"{doubts} in doubt (holdfast in-doubt)")
    if blocked:
        parts.append(f"{blocked} blocked (holdfast show RUN)")
    if lost:
        parts.append(f"{lost} cut off (holdfast resume RUN FILE)")
    if following is not None:
        parts.append(f"more: --cursor={quoted(following)}")
    return " · ".join(parts)
