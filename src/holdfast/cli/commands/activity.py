"""`holdfast activity`"""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.base.clock import now_us
from holdfast.cli.durations import age
from holdfast.cli.failure import OK
from holdfast.cli.lists import Listed, ago, show_list, stamp
from holdfast.cli.numbers import Number
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.history.activity import ActInfo, activity_of
from holdfast.history.lookup import find
from holdfast.history.words import count
from holdfast.model import ActFilter
from holdfast.store.contract import Store


@command("activity")
@run_argument(required=False)
@click.option("--by", metavar="NAME", help="Only what this person did.")
@click.option("--since", metavar="AGE", help="Only what was done within 30m, 12h, 7d, …")
@click.option("--limit", type=Number(1, 10_000), default=50, show_default=True, help="How many at most.")
def activity_command(setup: Setup, run: str | None, by: str | None, since: str | None, limit: int) -> int:
    """List what people did, newest first.

    That is to runs, queues, schedules, triggers and rules, and by what way: web, api, cli, link or code.

    Piped, lines of: time, who, by what way, what, to what, run, why.

    \b
    holdfast activity --since 1d
    holdfast activity issue-7
    """
    since_us = None if since is None else now_us() - age(since, "--since") // timedelta(microseconds=1)

    async def read(store: Store) -> list[ActInfo]:
        run_id = None if run is None else (await find(store, run)).id
        return await activity_of(store, ActFilter(run_id, by, since_us, limit=limit))

    found = with_store(setup, read)
    show_list(
        setup,
        [_listed(act) for act in found],
        head=("WHEN", "WHO", "VIA", "WHAT", "TO", "WHY"),
        flexible=5,
        nothing="Nobody has done anything.",
        footer=count(len(found), "act"),
    )
    return OK


def _listed(act: ActInfo) -> Listed:
    facts = {**act.as_dict(), "at": stamp(act.at)}
    target = act.target if act.run_id in (None, act.target) else f"{act.run_id} {act.target}"
    return Listed(
        facts,
        (stamp(act.at), act.by, act.via, act.what, act.target, act.run_id or "", act.note),
        (f"{ago(act.at)} ago", act.by, act.via.value, act.what, target, act.note),
    )
