"""`holdfast fork`"""

from __future__ import annotations

from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import with_app
from holdfast.cli.failure import OK, USAGE, Failure
from holdfast.cli.inputs import parse_json, text_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.takers import advice_for, tell
from holdfast.cli.text import clean, to_json
from holdfast.handle.forks import Wanted, plan
from holdfast.history.forks import ForkPlan
from holdfast.history.lookup import find
from holdfast.store.contract import Store


@command("fork")
@run_argument()
@click.option("--at", metavar="SEQ", type=int, help="The record that it begins behind. [default: the last one]")
@click.option("--turn", metavar="N", type=int, help="The turn that it begins with, for a run that has turns.")
@click.option("--set", "sets", metavar="PATH=JSON", multiple=True, help="Change the state it begins with. Repeatable.")
@click.option("--result", "results", metavar="KEY=JSON", multiple=True, help="Another result of a call. Repeatable.")
@click.option("--id", "new_id", metavar="ID", help="Of the new run; the same fork under the same id is made once.")
@click.option("--thread", "thread_id", metavar="ID", help="Of the new run. [default: one of its own]")
@click.option("--dry-run", is_flag=True, help="Only tell what it would be.")
@actor_options
def fork_command(
    setup: Setup,
    run: str,
    at: int | None,
    turn: int | None,
    sets: tuple[str, ...],
    results: tuple[str, ...],
    new_id: str | None,
    thread_id: str | None,
    dry_run: bool,
    note: str,
    by: str | None,
) -> int:
    """Make a new run of what a run had done by a record.

    Calls that had ended by then answer as they did, or with what --result says; what comes after is done anew, effects
    too, with other idempotency keys. RUN stays as it is. If an effect, a child or a saga was open at that record, the
    fork begins before it. `holdfast show RUN --journal` has the numbers. Any worker takes the new run up.

    \b
    holdfast fork issue-7 --at 12 --dry-run
    holdfast fork issue-7 --at 12 --result 'search#1=[]'
    """
    if at is not None and turn is not None:
        raise Failure("Give --at or --turn, not both.", USAGE)
    wanted = Wanted(at, turn, _parsed(sets, "--set"), _parsed(results, "--result"), new_id, thread_id)

    async def look(store: Store) -> ForkPlan:
        return await plan(store, (await find(store, run)).id, wanted)

    told = with_store(setup, look)
    if dry_run:
        _show(setup, told, None)
        return OK

    async def work(app: Holdfast) -> tuple[str, str]:
        made = await (await app.find(run))._fork(wanted, by=by, note=note)
        return made.token, await advice_for(app, made.id)

    token, advice = with_app(setup, work)
    _show(setup, told, token)
    tell(advice)
    return OK


def _parsed(given: tuple[str, ...], option: str) -> dict[str, Any]:
    """What stands before and behind the `=`."""
    found: dict[str, Any] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals or not key:
            raise Failure(f"{option} takes NAME=JSON; got {each!r}.", USAGE)
        found[key] = parse_json(text_of(text, option), f"{option} {key}")
    return found


def _show(setup: Setup, told: ForkPlan, token: str | None) -> None:
    if setup.is_json:
        run_id, _, thread_id = (token or "").partition("@")
        made = {"run": run_id, "thread": thread_id, "token": token} if token else None
        print(to_json({"fork": made, "plan": told.as_dict()}))
        return
    if token is not None:
        print(clean(f"Forked {told.run_id} as {token.partition('@')[0]}.", one_line=True))
    for sentence in told.sentences:
        print(clean(sentence, one_line=True))
