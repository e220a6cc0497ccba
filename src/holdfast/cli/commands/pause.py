"""`holdfast pause`"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import with_app
from holdfast.cli.failure import OK
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
from holdfast.cli.text import SHAPES
from holdfast.handle.run import Run
from holdfast.history.info import RunInfo
from holdfast.model import FINAL, Status

_PAUSABLE = (Status.queued, Status.running, Status.sleeping, Status.waiting, Status.in_doubt)
_SETTLED = FINAL | {Status.paused}
_LOOKS = 40  #: two seconds, for a worker to end the call under way
_POLL_S = 0.05


@command("pause")
@runs_argument
@filter_options
@actor_options
def pause_command(
    setup: Setup,
    runs: tuple[str, ...],
    agent: str | None,
    queue: str | None,
    statuses: tuple[str, ...],
    every: bool,
    note: str,
    by: str | None,
) -> int:
    """Stop runs between two calls, until they are resumed.

    What is under way is finished first. `holdfast resume` has them go on. Exit code 5: a run that was named had ended
    already. Piped, lines of: run, status, what happened, agent.

    \b
    holdfast pause issue-7 issue-8 --note "the API is down"
    holdfast pause --agent research
    """
    filters = Filters(agent, queue, statuses, every)
    filters.check(runs, "pause")

    async def pause(run: Run[Any], was: RunInfo) -> Told:
        """Say how the run stands once its worker has heard of it, or after a moment."""
        await run.pause(by=by, note=note)
        for _ in range(_LOOKS):
            if await run.status() in _SETTLED:
                break
            await asyncio.sleep(_POLL_S)
        status = await run.status()
        if status.is_final:
            return already(status)
        if status is Status.paused:
            return status, "was paused already" if was.status is Status.paused else "paused", OK
        return status, f"told to pause; still {SHAPES[status][1]}, until the call under way ends", OK

    async def work(app: Holdfast) -> list[Outcome]:
        return await act_on(app, await chosen(app, runs, filters, _PAUSABLE), pause)

    return report(setup, with_app(setup, work), nothing=f"No run to pause ({filters}).", was_named=bool(runs))
