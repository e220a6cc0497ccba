"""`holdfast send`"""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import by_option
from holdfast.cli.clients import with_app
from holdfast.cli.inputs import value_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument
from holdfast.cli.takers import advice_for, tell
from holdfast.cli.text import clean, to_json


@command("send")
@run_argument()
@click.argument("signal")
@click.argument("value", metavar="[JSON|@FILE|-]", required=False)
@click.option("--dedup", metavar="ID", help="A second signal with this id is the first: it changes nothing.")
@by_option("Who sends it")
def send_command(setup: Setup, run: str, signal: str, value: str | None, dedup: str | None, by: str | None) -> int:
    """Send a signal to a run.

    The run gets it where its code receives SIGNAL, now or later. The value is JSON; without one it is null. Exit code
    2: the run's agent has no such signal, or the value has another shape; 5: the run is over, or something
    else was sent with this id.

    \b
    holdfast send issue-7 approved true
    holdfast send issue-7 reply '"a text"' --dedup mail-17
    """
    sent = value_of(value, "the value")

    async def work(app: Holdfast) -> tuple[str, bool, str]:
        found = await app.find(run)
        is_new = await found.send(signal, sent, dedup=dedup, by=by)
        return found.id, is_new, await advice_for(app, found.id)

    run_id, is_new, advice = with_app(setup, work)
    if setup.is_json:
        print(to_json({"run": run_id, "signal": signal, "is_new": is_new, "dedup": dedup}))
    elif is_new:
        print(clean(f"Sent {signal} to run {run_id}.", one_line=True))
    else:
        print(clean(f"Run {run_id} has {signal} with the id {dedup} already; nothing was changed.", one_line=True))
    tell(advice)
    return 0
