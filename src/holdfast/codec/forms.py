"""Forms: the fields of a JSON schema, and values of them made of text that a person typed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.base.data import data
from holdfast.errors import UsageError

YES = frozenset({"yes", "y", "true", "ok", "approve", "approved", "1"})
NO = frozenset({"no", "n", "false", "reject", "rejected", "0"})

Schema = Mapping[str, Any]


@data
class Field:
    """One field of a form."""

    name: str
    schema: Schema
    is_required: bool
    default: Any
    about: str

    @property
    def told(self) -> str:
        """Its type, whether it must be given, and what it is for."""
        default = f"default {json.dumps(self.default, ensure_ascii=False)}" if self.default is not None else "optional"
        parts = [type_text(self.schema), "" if self.is_required else default, self.about]
        return ", ".join(part for part in parts if part)


def resolved(schema: Schema, root: Schema, seen: frozenset[str] = frozenset()) -> Schema:
    """The schema that a reference leads to, with what stands beside the reference; one `seen` leads nowhere."""
    while "$ref" in schema:
        reference = str(schema["$ref"])
        found: Any = root if reference not in seen else {}
        seen |= {reference}
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        found = found if isinstance(found, Mapping) else {}
        schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    plain = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
    options = [_alternative(each, root, seen) for each in _listed(schema.get("anyOf", schema.get("oneOf")))]
    return {**plain, "anyOf": options} if options else plain


def _listed(value: Any) -> list[Any]:
    """A part of a schema that is a list; of one that is not what it should be, nothing."""
    return value if isinstance(value, list) else []


def _alternative(schema: Any, root: Schema, seen: frozenset[str] = frozenset()) -> Schema:
    return resolved(schema, root, seen) if isinstance(schema, Mapping) else {}


def fields_of(schema: Schema | None) -> list[Field] | None:
    """The fields of an object; None if it is something else."""
    root = schema or {}
    whole = resolved(root, root)
    properties = whole.get("properties")
    if not isinstance(properties, Mapping):
        return None
    required = _listed(whole.get("required"))
    fields = {str(name): _alternative(each, root) for name, each in properties.items()}
    # Those that must be given come first, in the order of the type: a list keeps it, wherever the schema was stored.
    names = [name for name in required if name in fields] + [name for name in fields if name not in required]
    return [
        Field(
            name,
            fields[name],
            name in required,
            fields[name].get("default"),
            str(fields[name].get("description", "")),
        )
        for name in names
    ]


def choices_of(schema: Schema) -> list[Any] | None:
    """The values that are allowed, if they are listed."""
    if "const" in schema:
        return [schema["const"]]
    if isinstance(schema.get("enum"), Sequence):
        return list(schema["enum"])
    given = [choices_of(each) for each in schema.get("anyOf", [])]
    return [value for each in given if each for value in each] if given and all(given) else None


def label_of(value: Any) -> str:
    """A value as it is typed: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def type_text(schema: Schema) -> str:
    """A schema's type, in plain words."""
    choices = choices_of(schema)
    if choices is not None:
        return "one of " + ", ".join(label_of(each) for each in choices)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_text(each) for each in schema["anyOf"]))
    match schema.get("type"):
        case "string":
            return str(schema.get("format", "text"))
        case "integer":
            return "whole number"
        case "number":
            return "number"
        case "boolean":
            return "yes or no"
        case "null":
            return "null"
        case "array":
            items = schema.get("items")
            return f"list of {type_text(items)}" if isinstance(items, Mapping) and "type" in items else "JSON list"
        case "object":
            return "JSON object"
        case _:
            return "JSON"


def told_fields(fields: Sequence[Field]) -> str:
    return "It takes " + "; ".join(f"{field.name} ({field.told})" for field in fields) + "."


# what was typed


def read_json(text: str) -> Any:
    """What it says; ValueError if it is no JSON, or too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_yes(text: str) -> bool:
    """yes or no, in the usual words."""
    word = text.strip().lower()
    if word in YES:
        return True
    if word in NO:
        return False
    raise UsageError(f"It takes yes or no; got {text!r}.")


def read_choice(text: str, choices: Sequence[Any]) -> Any:
    """One of the choices: as it is written, then in any case, then by its number."""
    labels = [label_of(each) for each in choices]
    typed = text.strip()
    for fits in (
        [n for n, label in enumerate(labels) if label == typed],
        [n for n, label in enumerate(labels) if label.lower() == typed.lower()],
    ):
        if len(fits) == 1:
            return choices[fits[0]]
    if typed.isdecimal() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1]
    listed = ", ".join(f"{number} {label}" for number, label in enumerate(labels, start=1))
    raise UsageError(f"{text!r} is none of the options: {listed}.")


def read_value(text: str, schema: Schema, name: str) -> Any:
    """The value of a field; what cannot be one is refused, the rest is left to whoever asked."""
    choices = choices_of(schema)
    if choices is not None:
        return read_choice(text, choices)
    if "anyOf" in schema:
        return _read_any(text, schema["anyOf"], name)
    match schema.get("type"):
        case "string":
            return text
        case "boolean":
            return read_yes(text)
        case "integer" | "number" | "null":
            return _read_plain(text, schema, name)
        case "array" if not text.lstrip().startswith("["):
            items = schema.get("items")
            kind = items if isinstance(items, Mapping) else {}
            return [read_value(part.strip(), kind, name) for part in text.split(",")] if text.strip() else []
        case None:
            try:
                return read_json(text)
            except ValueError:
                return text
        case _:
            return _read_json(text, schema, name)


def _read_any(text: str, schemas: Sequence[Schema], name: str) -> Any:
    """The first alternative that takes it; text last, since it takes everything."""
    for schema in sorted(schemas, key=lambda each: each.get("type") == "string"):
        try:
            return read_value(text, schema, name)
        except UsageError:
            continue
    wanted = type_text({"anyOf": schemas})
    raise UsageError(f"{name} takes {wanted}; got {text!r}.")


def _read_plain(text: str, schema: Schema, name: str) -> Any:
    value = _read_json(text, schema, name)
    fits: dict[str, bool] = {
        "integer": isinstance(value, int),
        "number": isinstance(value, int | float),
        "null": value is None,
    }
    if isinstance(value, bool) or not fits[schema["type"]]:
        raise UsageError(f"{name} takes a {type_text(schema)}; got {text!r}.")
    return value


def _read_json(text: str, schema: Schema, name: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise UsageError(f"{name} takes {type_text(schema)}; got {text!r}.") from error
