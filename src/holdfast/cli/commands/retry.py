"""`holdfast retry`"""

from __future__ import annotations

import click

from holdfast.cli.acting import actor_options
from holdfast.cli.commands.resume import execute_here
from holdfast.cli.execution import Patience, patience_options
from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.history.lookup import find
from holdfast.model import RunRow, Status
from holdfast.store.contract import Store


@command("retry")
@run_argument()
@click.argument("source", metavar="[FILE[:AGENT]]", required=False)
@actor_options
@patience_options
def retry_command(
    setup: Setup, run: str, source: str | None, note: str, by: str | None, timeout_s: float | None, stays: bool
) -> int:
    """Open a failed or cancelled run again.

    What ended it is done anew, everything before it is kept. It is executed here: the same as
    `holdfast resume RUN FILE --retry`, but only for runs that failed or were cancelled.

    \b
    holdfast retry issue-7 agent.py --note "the API is back"
    """

    async def read(store: Store) -> RunRow:
        return await find(store, run)

    row = with_store(setup, read)
    if row.status not in (Status.failed, Status.cancelled):
        raise Failure(f"Run {row.id} is {row.status}; only failed and cancelled runs can be retried.", USAGE)
    sources = [] if source is None else [source]
    return execute_here(setup, row.id, sources, None, retry=True, note=note, by=by, patience=Patience(timeout_s, stays))
