"""`holdfast answer`"""

from __future__ import annotations

import shutil
import sys
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.answers import asked, how_to_answer, understood
from holdfast.cli.clients import complete_question, with_app
from holdfast.cli.commands.questions import decided_text, detail, question_of
from holdfast.cli.failure import CONFLICT, USAGE, Failure
from holdfast.cli.inputs import parse_json, text_of
from holdfast.cli.prompts import can_ask
from holdfast.cli.setup import Setup, command
from holdfast.cli.takers import advice_for, tell
from holdfast.cli.text import clean, to_json
from holdfast.handle.decisions import Question


@command("answer")
@click.argument("given", metavar="QUESTION", shell_complete=complete_question)
@click.argument("words", metavar="[VALUE|-]...", nargs=-1)
@click.option("--yes", is_flag=True, help="Answer yes; for a draft, take it as it is.")
@click.option("--no", is_flag=True, help="Answer no.")
@click.option("--json-value", metavar="JSON|@FILE|-", help="The answer as JSON, from a file or stdin.")
@actor_options
def answer_command(
    setup: Setup,
    given: str,
    words: tuple[str, ...],
    yes: bool,
    no: bool,
    json_value: str | None,
    note: str,
    by: str | None,
) -> int:
    """Answer a question that a run asks.

    QUESTION is its id, a unique beginning of it, or a run that asks one question. VALUE is understood as the question
    says: yes or no; an option or its number; a form as field=value pairs or a JSON object. On a terminal, without
    VALUE, you are asked. Exit code 5: it was decided already, or shows something else now.

    \b
    holdfast answer q_7c4 yes --note "read it twice"
    holdfast answer q_7c4 title="Tides" pages=3
    """
    if bool(words) + yes + no + (json_value is not None) > 1:
        raise Failure("Say the answer once: VALUE, --yes, --no or --json-value.", USAGE)

    async def work(app: Holdfast) -> tuple[Question, Any, str, str]:
        question = await question_of(app, given)
        check_open(question)
        value = _value(setup, question, words, yes, no, json_value)
        await question.answer(value, by=by, note=note)
        return question, value, await app._commanded.actor(by), await advice_for(app, question.run_id)

    question, value, who, advice = with_app(setup, work)
    if setup.is_json:
        print(
            to_json(
                {
                    "question": question.id,
                    "run": question.run_id,
                    "value": value,
                    "by": who,
                    "note": note,
                }
            )
        )
    else:
        print(clean(f"Answered {question.id}; run {question.run_id} goes on with it.", one_line=True))
    tell(advice)
    return 0


def check_open(question: Question) -> None:
    """Say who decided it, before anybody is asked to."""
    if question.state != "open":
        when = f" at {question.decided_at.astimezone():%Y-%m-%d %H:%M:%S}" if question.decided_at is not None else ""
        told = f": {question.note}" if question.note else ""
        raise Failure(
            f"Question {question.id} of run {question.run_id} was {decided_text(question)}{when}{told}. "
            "Nothing was changed.",
            CONFLICT,
        )


def _value(
    setup: Setup, question: Question, words: tuple[str, ...], yes: bool, no: bool, json_value: str | None
) -> Any:
    if json_value is not None:
        return parse_json(text_of(json_value, "--json-value"), "--json-value")
    if words == ("-",):
        return understood(question, (text_of("-", "the value").removesuffix("\n"),), yes=False, no=False)
    if words or yes or no:
        return understood(question, words, yes=yes, no=no)
    if not can_ask():
        raise Failure(f"Nobody can be asked here; pass the answer: {how_to_answer(question)}", USAGE)
    columns = shutil.get_terminal_size().columns
    print("\n".join(detail(question, columns, setup.has_color(sys.stderr))), file=sys.stderr)
    return asked(question)
