"""`holdfast plan`"""

from __future__ import annotations

import sys
import tempfile

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import with_app
from holdfast.cli.failure import CONFLICT, NOT_FOUND, OK, USAGE, Failure, code_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.text import clean, to_json
from holdfast.errors import HoldfastError, RunFinished, UsageError
from holdfast.history.lookup import find
from holdfast.history.plans import PlanInfo, changes_in, plan_of, todo_text
from holdfast.history.words import count
from holdfast.model import RunId, Status
from holdfast.model.plans import Op
from holdfast.store.contract import Store

_HELP = (
    "\n<!-- A line without a number is a new item. Tick, untick, rewrite, move or remove lines; keep the numbers. -->\n"
)


@command("plan")
@run_argument()
@click.option("--edit", is_flag=True, help="Change it in your editor (EDITOR); what differs is sent to the run.")
@actor_options
def plan_command(setup: Setup, run: str, edit: bool, note: str, by: str | None) -> int:
    """Show the plan of a run as todo.md; or change it.

    What you change is compared with what you were shown, and only that is sent: what the run does meanwhile stays. The
    run has it with its next call of the plan.

    \b
    holdfast plan issue-7 > todo.md
    holdfast plan issue-7 --edit
    """

    if note and not edit:
        raise Failure("--note is for --edit.", USAGE)

    async def read(store: Store) -> tuple[RunId, Status, PlanInfo | None]:
        row = await find(store, run)
        return row.id, row.status, await plan_of(store, row.id)

    run_id, status, plan = with_store(setup, read)
    if plan is None:
        raise Failure(f"Run {run_id} has no plan: its agent has not called hf.plan() yet.", NOT_FOUND)
    if edit:
        if status.is_final:
            raise Failure(f"Run {run_id} is {status}; its plan is not changed any more.", CONFLICT)
        return _edit(setup, run_id, plan, note=note, by=by)
    if setup.is_json:
        print(to_json({"run": run_id, **plan.as_dict()}))
        return OK
    print(todo_text(run_id, plan.items), end="")
    _tell(plan)
    return OK


def _tell(plan: PlanInfo) -> None:
    if plan.pending:
        who = ", ".join(dict.fromkeys(plan.pending))
        print(clean(f"With changes by {who} that the run has not taken yet.", one_line=True), file=sys.stderr)
    for each in plan.missed:
        print(clean(f"Changed nothing: {each}.", one_line=True), file=sys.stderr)


def _edit(setup: Setup, run_id: RunId, plan: PlanInfo, *, note: str, by: str | None) -> int:
    shown = todo_text(run_id, plan.items) + _HELP
    edited = click.edit(shown, extension=".md")
    if edited is not None and not edited.strip():
        edited = None  # whoever empties the file gives up, as elsewhere, and does not mean to drop everything
    number, ops = 0, list[Op]()

    async def send(app: Holdfast) -> int:
        return await app._commanded.change_plan(run_id, ops, by=by, note=note)

    try:
        ops += [] if edited is None else changes_in(plan.items, edited)
        number = with_app(setup, send) if ops else 0
    except (HoldfastError, Failure) as error:  # what was written by hand is not lost with the run's end
        with tempfile.NamedTemporaryFile("w", suffix=".md", prefix="todo-", delete=False, encoding="utf-8") as file:
            file.write(edited or "")
        sent = "Nothing was sent; your" if isinstance(error, UsageError | RunFinished) else "Your"
        raise Failure(f"{error} {sent} text is in {file.name}.", code_of(error)) from error
    if setup.is_json:
        print(to_json({"run": run_id, "sent": number, "ops": list(ops)}))
    else:
        told = f"Sent {count(len(ops), 'change')} to run {run_id}." if ops else "Nothing was changed."
        print(clean(told, one_line=True))
    return OK
