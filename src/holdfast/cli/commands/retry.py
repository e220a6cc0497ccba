"""`holdfast retry`"""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import with_app
from holdfast.cli.commands.resume import execute_here
from holdfast.cli.execution import Patience, patience_options
from holdfast.cli.failure import OK, USAGE, Failure
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.takers import advice_for, tell
from holdfast.cli.text import clean, to_json
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
    `holdfast resume RUN FILE --retry`, but only for runs that failed or were cancelled. Behind a server (--url) any
    worker takes it up.

    \b
    holdfast retry issue-7 agent.py --note "the API is back"
    holdfast retry issue-7 --url https://agents.example.org
    """

    async def read(store: Store) -> RunRow:
        return await find(store, run)

    row = with_store(setup, read)
    if row.status not in (Status.failed, Status.cancelled):
        raise Failure(f"Run {row.id} is {row.status}; only failed and cancelled runs can be retried.", USAGE)
    if setup.served is not None:
        return _hand_over(setup, row.id, source, note=note, by=by)
    sources = [] if source is None else [source]
    return execute_here(setup, row.id, sources, None, retry=True, note=note, by=by, patience=Patience(timeout_s, stays))


def _hand_over(setup: Setup, run_id: str, source: str | None, *, note: str, by: str | None) -> int:
    """Have the workers behind a server take it up."""
    if source is not None:
        raise Failure("A server executes nothing: its workers have the code. Leave FILE out.", USAGE)

    async def work(app: Holdfast) -> tuple[Status, str]:
        run = await app.find(run_id)
        await run.retry(by=by, note=note)
        return await run.status(), await advice_for(app, run_id)

    status, advice = with_app(setup, work)
    if setup.is_json:
        print(to_json({"run": run_id, "status": status.value}))
    else:
        print(clean(f"Run {run_id} is open again; a worker takes it up.", one_line=True))
    tell(advice)
    return OK
