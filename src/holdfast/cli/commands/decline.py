"""`holdfast decline`"""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import complete_question, with_app
from holdfast.cli.commands.answer import check_open
from holdfast.cli.commands.questions import question_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.takers import advice_for, tell
from holdfast.cli.text import clean, to_json
from holdfast.handle.decisions import Question


@command("decline")
@click.argument("given", metavar="QUESTION", shell_complete=complete_question)
@actor_options
def decline_command(setup: Setup, given: str, note: str, by: str | None) -> int:
    """Decline to answer a question; the agent is told so.

    The agent gets the error Declined, with the note. Exit code 5: it was decided already, or shows something else now.
    """

    async def work(app: Holdfast) -> tuple[Question, str, str]:
        question = await question_of(app, given)
        check_open(question)
        await question.decline(by=by, note=note)
        return question, await app._commanded.actor(by), await advice_for(app, question.run_id)

    question, who, advice = with_app(setup, work)
    if setup.is_json:
        print(to_json({"question": question.id, "run": question.run_id, "by": who, "note": note}))
    else:
        print(clean(f"Declined {question.id}; run {question.run_id} is told so.", one_line=True))
    tell(advice)
    return 0
