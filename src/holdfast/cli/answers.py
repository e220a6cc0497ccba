"""What a question takes, how to say it, and asking the person at the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from holdfast.base.hints import hint
from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.forms import read_choice, read_form, read_value, read_yes
from holdfast.cli.text import clean
from holdfast.codec.forms import Field, choices_of, fields_of, label_of, resolved, type_text
from holdfast.handle.decisions import Question

_YES_OR_NO = ("yesno", "approval")


def how_to_answer(question: Question) -> str:
    """The command that answers it, with what it takes."""
    match question.kind:
        case "yesno" | "approval":
            return hint("answer", question.id, "yes|no")  # one word: copied as it is, it is no answer
        case "options":
            return hint("answer", question.id, "|".join(label_of(each) for each in question.options or ()))
        case "draft":
            accepted = hint("answer", question.id, options=("--yes",))
            return f"{accepted}   or   {hint('answer', question.id, _placeholder(question.schema))}"
        case _:
            fields = fields_of(question.schema)
            if fields is None:
                return hint("answer", question.id, _placeholder(question.schema))
            shown = [field for field in fields if field.is_required] or fields
            return hint("answer", question.id, *(f"{field.name}=…" for field in shown))


def _placeholder(schema: Any) -> str:
    root = schema or {}
    told = type_text(resolved(root, root))
    return {"text": "TEXT", "whole number": "N", "number": "N"}.get(told, told)


def understood(question: Question, words: Sequence[str], *, yes: bool, no: bool) -> Any:
    """The value that was meant by what was typed."""
    if yes or no:
        if question.kind == "draft" and yes:
            return question.draft
        if question.kind not in _YES_OR_NO:
            raise Failure(f"Question {question.id} is not answered with yes or no: {how_to_answer(question)}", USAGE)
        return yes
    text = " ".join(words)
    match question.kind:
        case "yesno" | "approval":
            return read_yes(text)
        case "options":
            return read_choice(text, list(question.options or ()))
        case "draft" if isinstance(question.draft, str) and not question.schema:
            return text
        case _:
            return read_form(words, question.schema)


# at the terminal


def asked(question: Question) -> Any:
    """The value, from the person at the terminal."""
    match question.kind:
        case "yesno" | "approval":
            return _prompt("yes or no", read_yes)
        case "options":
            return _ask_choice(list(question.options or ()))
        case "draft":
            return _ask_draft(question)
        case _:
            return _ask_form(question.schema)


def _prompt(label: str, read: Callable[[str], Any], *, default: str | None = None) -> Any:
    def take(text: str) -> Any:
        try:
            return read(text)
        except Failure as error:
            raise click.UsageError(clean(error.message)) from error  # click says it and asks again

    shown = f"{label} [{default}]" if default else label  # click would show the default as it is
    return click.prompt(clean(shown, one_line=True), default=default, show_default=False, value_proc=take, err=True)


def _ask_choice(choices: list[Any]) -> Any:
    for number, each in enumerate(choices, start=1):
        print(f"  {number}  {clean(label_of(each), one_line=True)}", file=sys.stderr)
    return _prompt("number or option", lambda text: read_choice(text, choices))


def _ask_draft(question: Question) -> Any:
    is_text = isinstance(question.draft, str)
    draft = question.draft if isinstance(question.draft, str) else json.dumps(question.draft, indent=2)
    what = click.prompt("a accepts the draft, e edits it", type=click.Choice(["a", "e"]), default="a", err=True)
    if what == "a":
        return question.draft
    edited = click.edit(draft, extension=".txt" if is_text else ".json")
    if edited is None:
        raise Failure("The draft was not saved; nothing was answered.")
    if is_text:
        return edited.removesuffix("\n") if not draft.endswith("\n") else edited
    try:
        return json.loads(edited)
    except ValueError as error:
        raise Failure(f"What you wrote is not JSON: {error}; nothing was answered.", USAGE) from error


def _ask_form(schema: Any) -> Any:
    fields = fields_of(schema)
    root = schema or {}
    if fields is None:
        whole = resolved(root, root)
        return _prompt(type_text(whole), lambda text: read_value(text, whole, "It"))
    found: dict[str, Any] = {}
    for field in fields:
        value = _ask_field(field)
        if value is not _LEFT_OUT:
            found[field.name] = value
    return found


_LEFT_OUT = object()


def _ask_field(field: Field) -> Any:
    choices = choices_of(field.schema)
    if choices is not None:
        for number, each in enumerate(choices, start=1):
            print(f"  {number}  {clean(label_of(each), one_line=True)}", file=sys.stderr)
    about = ", ".join(part for part in (type_text(field.schema) if choices is None else "", field.about) if part)
    label = f"{field.name} ({about})" if about else field.name
    if field.is_required:
        return _prompt(label, lambda text: read_value(text, field.schema, field.name))
    shown = "" if field.default is None else label_of(field.default)

    def read(text: str) -> Any:
        return _LEFT_OUT if text == shown else read_value(text, field.schema, field.name)

    return _prompt(label if shown else f"{label}, Enter for none", read, default=shown)
