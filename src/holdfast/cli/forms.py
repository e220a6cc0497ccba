"""Forms on a command line: what was typed as `field=value`, and refusals that end the command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.cli.failure import USAGE, Failure
from holdfast.codec import forms
from holdfast.codec.forms import Schema, fields_of, resolved, told_fields
from holdfast.errors import UsageError


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise Failure(str(error), USAGE) from error


def read_yes(text: str) -> bool:
    """yes or no, in the usual words."""
    with _refusing():
        return forms.read_yes(text)


def read_choice(text: str, choices: Sequence[Any]) -> Any:
    """One of the choices: as it is written, then in any case, then by its number."""
    with _refusing():
        return forms.read_choice(text, choices)


def read_value(text: str, schema: Schema, name: str) -> Any:
    """The value of a field; what cannot be one is refused, the rest is left to whoever asked."""
    with _refusing():
        return forms.read_value(text, schema, name)


def read_form(words: Sequence[str], schema: Schema | None) -> Any:
    """A whole form: `field=value` pairs, one JSON object, or the value itself if it is no object."""
    fields = fields_of(schema)
    root = schema or {}
    if fields is None:
        return read_value(" ".join(words), resolved(root, root), "It")
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return read_value(words[0], {"type": "object"}, "It")
    known = {field.name: field for field in fields}
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in known:
            raise Failure(f"{word!r} is no field=value of it. {told_fields(fields)}", USAGE)
        found[name] = read_value(text, known[name].schema, name)
    missing = [field.name for field in fields if field.is_required and field.name not in found]
    if missing:
        raise Failure(f"Missing: {', '.join(missing)}. {told_fields(fields)}", USAGE)
    return found
