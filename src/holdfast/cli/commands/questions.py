"""`holdfast questions`"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.base.characters import unseen_in
from holdfast.base.clock import as_time, now_us
from holdfast.base.hints import hint
from holdfast.cli.answers import how_to_answer
from holdfast.cli.clients import complete_question, with_app
from holdfast.cli.lists import Listed, ago, line_of, show_list, stamp
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import complete_run
from holdfast.cli.text import clean, paint, shorten, to_json, wrapped
from holdfast.codec.forms import fields_of, label_of, resolved, type_text
from holdfast.errors import RunNotFound
from holdfast.handle.decisions import Question
from holdfast.history.values import untagged
from holdfast.history.words import count, due_text, left_text

_NAMED = 5  #: characters that are not seen, of those a question has
_SHOWN_LINES = 40  #: of what a question shows, on a terminal; --json has all of it


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    return [*complete_question(ctx, parameter, incomplete), *complete_run(ctx, parameter, incomplete)]


@command("questions")
@click.argument("given", metavar="[RUN|QUESTION]", required=False, shell_complete=_complete)
@click.option("--all", "every", is_flag=True, help="Also those that were decided.")
def questions_command(setup: Setup, given: str | None, every: bool) -> int:
    """List what runs ask people; or show one question.

    QUESTION is the id of a question or a unique beginning of it: it is shown with all it shows and how to answer it.
    Piped, lines of: id, state, run, agent, asked, due, kind, prompt.
    """

    async def read(app: Holdfast) -> list[Question] | Question:
        if given is None:
            return await app.questions(only_open=not every)
        if given.startswith("q_"):
            return await app.question(given)
        return await (await app.find(given)).questions(only_open=not every)

    found = with_app(setup, read)
    if isinstance(found, Question):
        _print_one(setup, found)
        return 0
    show_list(
        setup,
        [_listed(each) for each in found],
        head=("QUESTION", "RUN", "AGENT", "ASKED", "DUE", "ASKS"),
        flexible=5,
        nothing="No open question." if not every else "No question.",
        footer=f"{count(len(found), 'question')} · holdfast questions ID shows one, holdfast answer ID answers it",
    )
    return 0


def facts_of(question: Question) -> dict[str, Any]:
    """A question for JSON."""
    return {
        "id": question.id,
        "run": question.run_id,
        "key": question.key,
        "agent": question.agent,
        "state": question.state,
        "kind": question.kind,
        "prompt": question.prompt,
        "show": untagged(question.show),
        "options": question.options,
        "schema": question.schema,
        "draft": untagged(question.draft),
        "asked_at": stamp(question.asked_at),
        "due_at": stamp(question.due_at),
        "decided_at": stamp(question.decided_at),
        "decided_by": question.decided_by,
        "note": question.note,
        "unseen": unseen_of(question),
    }


def _listed(question: Question) -> Listed:
    line = (
        question.id,
        question.state,
        question.run_id,
        question.agent,
        stamp(question.asked_at),
        stamp(question.due_at),
        question.kind,
        question.prompt,
    )
    due = "" if question.due_at is None else left_text(question.due_at)
    prompt = question.prompt if question.state == "open" else f"[{decided_text(question)}] {question.prompt}"
    cells = (question.id, question.run_id, question.agent, ago(question.asked_at), due, prompt)
    return Listed(facts_of(question), line, cells, "yellow" if question.state == "open" else "dim")


def decided_text(question: Question) -> str:
    """`answered by eva`, or that it is open."""
    by = f" by {question.decided_by}" if question.decided_by else ""
    return f"{question.state}{by}"


# one question


def _print_one(setup: Setup, question: Question) -> None:
    if setup.is_json:
        print(to_json({**facts_of(question), "answer": how_to_answer(question)}))
    elif setup.is_table:
        print("\n".join(detail(question, shutil.get_terminal_size().columns, setup.has_color(sys.stdout))))
    else:
        for name, value in {**facts_of(question), "answer": how_to_answer(question)}.items():
            print(line_of((name, value if value is None or isinstance(value, str) else to_json(value))))


def detail(question: Question, columns: int, has_color: bool) -> Iterator[str]:
    """The question as a person reads it: what is asked, what is shown, what it takes, how to answer."""
    now = as_time(now_us())
    is_open = question.state == "open"
    state = f"✋ {decided_text(question)}" if is_open else decided_text(question)
    about = clean(f"{question.agent}  run {question.run_id}")
    title = paint(clean(question.id, one_line=True), "bold", has_color)
    yield f"{title}  {paint(clean(state, one_line=True), 'yellow', has_color)}  {about}"
    due = f", until {due_text(question.due_at, now=now)}" if question.due_at is not None and is_open else ""
    yield paint(f"asked {ago(question.asked_at)} ago{due}", "dim", has_color)
    yield ""
    for line in clean(question.prompt).splitlines():
        yield from wrapped(line, columns - 2).splitlines() or [""]
    yield from _block("shown", question.show, columns, has_color)
    yield from _block("draft", question.draft, columns, has_color)
    yield from _takes(question, columns, has_color)
    yield from _unseen(question, has_color)
    yield ""
    if is_open:
        # Never cut: they are there to be copied.
        yield f"  {how_to_answer(question)}"
        yield f"  {hint('decline', question.id)}"
    elif question.note:
        yield f"note: {clean(question.note, one_line=True)}"


def unseen_of(question: Question) -> list[str]:
    """The characters in it that a person does not see: what is read may not be what is decided."""
    shown = [question.prompt, question.show, question.draft, question.options, question.schema]
    return unseen_in("\n".join(_texts(shown)))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from _texts(each)
        case dict():
            for name, each in value.items():
                yield name
                yield from _texts(each)


def _unseen(question: Question, has_color: bool) -> Iterator[str]:
    names = unseen_of(question)
    if names:
        told = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        yield ""
        yield paint(f"⚠ It has characters that are not seen; they are shown escaped: {told}", "yellow", has_color)


def _block(label: str, value: Any, columns: int, has_color: bool) -> Iterator[str]:
    if value is None:
        return
    text = value if isinstance(value, str) else to_json(value, indent=2)
    lines = clean(text).splitlines()
    yield ""
    yield paint(f"{label}:", "dim", has_color)
    for line in lines[:_SHOWN_LINES]:
        yield f"  {shorten(line.expandtabs(4), max(20, columns - 3))}"
    if len(lines) > _SHOWN_LINES:
        yield f"  … {len(lines) - _SHOWN_LINES} more lines; --json has all"


def _takes(question: Question, columns: int, has_color: bool) -> Iterator[str]:
    lines: list[str] = []
    if question.kind == "options":
        lines = [f"{number}  {label_of(each)}" for number, each in enumerate(question.options or (), start=1)]
    elif question.kind in ("form", "draft") and question.schema:
        fields = fields_of(question.schema)
        if fields is None:
            lines = [type_text(resolved(question.schema, question.schema))]
        else:
            longest = max((len(field.name) for field in fields), default=0)
            lines = [f"{clean(f.name):<{longest}}  {clean(f.told, one_line=True)}" for f in fields]
    if lines:
        yield ""
        yield paint("takes:", "dim", has_color)
        for line in lines:
            yield f"  {shorten(clean(line), max(20, columns - 3))}"


async def question_of(app: Holdfast, given: str) -> Question:
    """The question that an id names, or the only open one of a run."""
    if given.startswith("q_"):
        return await app.question(given)
    try:
        run = await app.find(given)
    except RunNotFound:
        return await app.question(given)
    found = await run.questions()
    if not found and (decided := await run.questions(only_open=False)):
        return max(decided, key=lambda question: question.decided_at or question.asked_at)  # whoever acts on it is told
    if len(found) != 1:
        which = "".join(f"\n  {each.id}  {each.prompt}" for each in found)
        name = f"; name the one you mean:{which}" if found else "."
        raise RunNotFound(f"Run {run.id} asks {count(len(found), 'question')}{name}")
    return found[0]
