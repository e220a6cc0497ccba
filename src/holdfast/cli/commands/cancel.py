"""`holdfast cancel`"""

from __future__ import annotations

from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import with_app
from holdfast.cli.failure import CONFLICT, OK, TIMEOUT
from holdfast.cli.prompts import confirm
from holdfast.cli.selection import (
    Filters,
    Outcome,
    Told,
    act_on,
    already,
    chosen,
    filter_options,
    report,
    runs_argument,
)
from holdfast.cli.setup import Setup, command
from holdfast.cli.text import SHAPES, clean
from holdfast.handle.run import Run
from holdfast.history.info import RunInfo
from holdfast.history.words import count
from holdfast.model import UNFINISHED, Status

_NAMED = 5  #: runs to be named in the question


@command("cancel")
@runs_argument
@filter_options
@actor_options
@click.option("--kill", is_flag=True, help="Take the run away from its worker; a call under way is cut off.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a run may take to clean up.",
)
@click.option("--yes", is_flag=True, help="Do not ask, however many runs there are.")
def cancel_command(
    setup: Setup,
    runs: tuple[str, ...],
    agent: str | None,
    queue: str | None,
    statuses: tuple[str, ...],
    every: bool,
    note: str,
    by: str | None,
    kill: bool,
    timeout_s: float,
    yes: bool,
) -> int:
    """End runs that are not over; they can clean up first.

    Says of each run what became of it: cancelled, or how it ended before. Exit code 5: a run that was named had ended
    already; 124: one is still cleaning up. Filters that fit several runs ask first. Piped, lines of: run, status,
    what happened, agent.

    \b
    holdfast cancel issue-7
    holdfast cancel --queue mail --status queued --yes
    """
    filters = Filters(agent, queue, statuses, every)
    filters.check(runs, "cancel")
    default = UNFINISHED - {Status.quarantined}
    nothing = f"No run to cancel ({filters})."
    asks = not runs and not yes

    async def choose(app: Holdfast) -> list[RunInfo]:
        return await chosen(app, runs, filters, default)

    infos = with_app(setup, choose)
    if asks and len(infos) > 1:
        confirm(f"Cancel {_named(infos)}? What they have not done yet, they will not do.")

    async def cancel(run: Run[Any], was: RunInfo) -> Told:
        said = await run.cancel(by=by, note=note, kill=kill, timeout=timeout_s)
        status = await run.status()
        if status.is_final:
            if was.status.is_final:
                return already(status)
            is_cancelled = status is Status.cancelled
            text = "cancelled" if is_cancelled else f"not cancelled, it ended first: {SHAPES[status][1]}"
            return status, text, OK if is_cancelled else CONFLICT
        if said is Status.cancelled:
            return status, "being cancelled; it still cleans up", TIMEOUT
        return status, "told to stop; its worker has not answered (--kill takes the run away from it)", TIMEOUT

    async def work(app: Holdfast) -> list[Outcome]:
        return await act_on(app, infos, cancel)

    return report(setup, with_app(setup, work) if infos else [], nothing=nothing, was_named=bool(runs))


def _named(infos: list[RunInfo]) -> str:
    shown = ", ".join(clean(info.id, one_line=True) for info in infos[:_NAMED])
    return f"{count(len(infos), 'run')} ({shown}{', …' if len(infos) > _NAMED else ''})"
