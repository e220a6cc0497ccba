"""`holdfast emit`"""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import with_app
from holdfast.cli.inputs import value_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.text import clean, to_json


@command("emit")
@click.argument("event")
@click.argument("value", metavar="[JSON|@FILE|-]", required=False)
@click.option("--dedup", metavar="ID", help="A second event with this id is the first: it changes nothing.")
@actor_options
def emit_command(setup: Setup, event: str, value: str | None, dedup: str | None, *, note: str, by: str) -> int:
    """Emit an event, which starts the runs of its triggers.

    The event is stored before this returns; a worker starts the runs. Prints the event's id.

    \b
    holdfast emit order.paid '{"order": 17}'
    """
    given = value_of(value, "the value")

    async def work(app: Holdfast) -> str:
        return await app.emit(event, given, dedup=dedup, by=by, note=note)

    event_id = with_app(setup, work)
    print(to_json({"event": event, "id": event_id}) if setup.is_json else clean(event_id, one_line=True))
    return 0
