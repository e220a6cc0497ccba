"""`holdfast interrupt`"""

from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import by_option
from holdfast.cli.clients import with_app
from holdfast.cli.failure import OK, TIMEOUT, Failure
from holdfast.cli.inputs import text_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument
from holdfast.cli.text import clean, to_json
from holdfast.codec import said_by
from holdfast.codec.forms import read_json
from holdfast.errors import HoldfastError
from holdfast.history.values import jsonable


@command("interrupt")
@run_argument()
@click.argument("message", metavar="MESSAGE|@FILE|-")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer than this."
)
@click.option("--no-wait", is_flag=True, help="Do not wait for the reply.")
@by_option("Who interrupts")
def interrupt_command(
    setup: Setup, run: str, message: str, timeout_s: float | None, no_wait: bool, by: str | None
) -> int:
    """Interrupt a run with a message; prints what its handler replies.

    MESSAGE is JSON, or else a text. The run's other calls wait while the handler works. Exit code 2: the agent has no
    handler; 5: the run is over; 124: no reply in time, the message stays sent.

    \b
    holdfast interrupt issue-7 "only European sources, please"
    """
    text = text_of(message, "the message")
    value: Any = text
    try:
        value = read_json(text)
    except ValueError:
        value = text.removesuffix("\n") if message == "-" or message.startswith("@") else text

    async def work(app: Holdfast) -> tuple[str, bool, Any]:
        found = await app.find(run)
        try:
            return found.id, True, await found.interrupt(value, by=by, timeout=0 if no_wait else timeout_s)
        except TimeoutError:
            return found.id, False, None
        except HoldfastError:
            raise
        except Exception as error:  # whatever the handler raised
            raise Failure(f"The handler of run {found.id} raised {said_by(error)}. The run goes on.") from error

    run_id, is_replied, reply = with_app(setup, work)
    if not is_replied:
        if no_wait:
            print(to_json({"run": run_id, "reply": None}) if setup.is_json else clean(f"Sent to run {run_id}."))
            return OK
        raise Failure(
            f"Run {run_id} did not reply within {timeout_s:g} s; it has the message and handles it when it can.",
            TIMEOUT,
        )
    if setup.is_json:
        print(to_json({"run": run_id, "reply": jsonable(reply)}))
    elif isinstance(reply, str):
        print(clean(reply))
    else:
        print(clean(to_json(jsonable(reply), indent=2 if sys.stdout.isatty() else None)))
    return OK
