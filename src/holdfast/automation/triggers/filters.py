"""What a trigger looks for in a value, and the queue key it takes from it. Pure.

A filter maps dotted paths to what must be there: `{"customer.tier": "gold", "total": {"gt": 100}}`. All of it must
hold. A path goes through mappings, dataclasses and, by number, lists; `.` is the value itself. A path that leads
nowhere fits nothing, except `{"exists": False}`.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from holdfast.codec import MISSING as ANY
from holdfast.codec import coder_for
from holdfast.errors import UsageError

#: The value itself.
WHOLE: Final = "."


class _Nothing(Enum):
    NOTHING = "the path leads nowhere"


NOTHING: Final = _Nothing.NOTHING

_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "gt": lambda found, given: bool(found > given),
    "gte": lambda found, given: bool(found >= given),
    "lt": lambda found, given: bool(found < given),
    "lte": lambda found, given: bool(found <= given),
}
OPERATORS: Final = frozenset({*_ORDER, "in", "ne", "exists", "prefix"})


def checked_where(where: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The filter as it is stored; UsageError if it makes no sense."""
    if where is None:
        return None
    if not isinstance(where, Mapping):
        raise UsageError(f"where= takes a dict of paths and values, such as {{'total': {{'gt': 100}}}}; got {where!r}.")
    for path, wanted in where.items():
        _check_path(path, "where=")
        if isinstance(wanted, Mapping):
            _check_conditions(path, wanted)
        coder_for(ANY).dumps(wanted, what=f"where[{path!r}]")
    return {path: dict(wanted) if isinstance(wanted, Mapping) else wanted for path, wanted in where.items()} or None


def matches(where: Mapping[str, Any] | None, value: object) -> bool:
    """Does the value have what the filter asks for?

    Example: `matches({"total": {"gt": 100}}, {"total": 250})`
    """
    return all(_fits(at(value, path), wanted) for path, wanted in (where or {}).items())


def at(value: object, path: str) -> object:
    """What is at a dotted path of a value; NOTHING if the path leads nowhere."""
    if path == WHOLE:
        return value
    found: object = value
    for part in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(part, NOTHING)
        elif isinstance(found, list | tuple):
            found = found[int(part)] if part.isdecimal() and int(part) < len(found) else NOTHING
        elif dataclasses.is_dataclass(found) and part in {field.name for field in dataclasses.fields(found)}:
            found = getattr(found, part)
        else:
            return NOTHING
    return found


def checked_template(template: str) -> str:
    """The template of a queue key; UsageError if it makes no sense."""
    if not isinstance(template, str):
        raise UsageError(f"queue_key= takes text such as '{{customer.id}}'; got {template!r}.")
    for _, path, spec, conversion in _parsed(template):
        if path is not None:
            if spec or conversion:
                raise UsageError(f"queue_key={template!r}: only paths go between braces, such as '{{customer.id}}'.")
            _check_path(path, f"queue_key={template!r}")
    return template


def filled(template: str, value: object) -> str:
    """The template with what the value has at its paths; nothing where a path leads nowhere.

    Example: `filled("{customer.id}", {"customer": {"id": 7}})`
    """
    return "".join(text + ("" if path is None else _shown(at(value, path))) for text, path, _, _ in _parsed(template))


def _parsed(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"queue_key={template!r}: {error}. Write '{{{{' for a brace.") from None


def _shown(found: object) -> str:
    if found is NOTHING or found is None:
        return ""
    if isinstance(found, str):
        return found
    return coder_for(type(found) if dataclasses.is_dataclass(found) else ANY).dumps(found, what="queue_key")


def _check_path(path: object, what: str) -> None:
    if not isinstance(path, str) or (path != WHOLE and not all(path.split("."))):
        raise UsageError(f"{what}: {path!r} is no path; write names with dots between them, such as 'customer.id'.")


def _check_conditions(path: str, conditions: Mapping[Any, Any]) -> None:
    unknown = [name for name in conditions if name not in OPERATORS]
    if unknown or not conditions:
        raise UsageError(
            f"where[{path!r}]: {dict(conditions)!r} is no condition; use {', '.join(sorted(OPERATORS))}. "
            f"To look inside an object, write its path: '{path}.{unknown[0] if unknown else 'name'}'."
        )
    for name, given in conditions.items():
        if name == "in" and (not isinstance(given, list | tuple) or not given):
            raise UsageError(f"where[{path!r}]: 'in' takes a list of values; got {given!r}.")
        if name == "exists" and not isinstance(given, bool):
            raise UsageError(f"where[{path!r}]: 'exists' takes True or False; got {given!r}.")
        if name == "prefix" and not isinstance(given, str):
            raise UsageError(f"where[{path!r}]: 'prefix' takes text; got {given!r}.")
        if name in _ORDER and (given is None or isinstance(given, bool | list | tuple | Mapping)):
            raise UsageError(f"where[{path!r}]: {name!r} takes a number or text; got {given!r}.")
    if conditions.get("exists") is False and len(conditions) > 1:
        raise UsageError(f"where[{path!r}]: what does not exist fits no other condition; leave the others out.")


def _fits(found: object, wanted: object) -> bool:
    if not isinstance(wanted, Mapping):
        return found is not NOTHING and _is_same(found, wanted)
    return all(_holds(name, found, given) for name, given in wanted.items())


def _holds(name: str, found: Any, given: Any) -> bool:
    if name == "exists":
        return (found is not NOTHING) is given
    if found is NOTHING:
        return False
    match name:
        case "in":
            return any(_is_same(found, each) for each in given)
        case "ne":
            return not _is_same(found, given)
        case "prefix":
            return isinstance(found, str) and found.startswith(given)
        case _:
            if isinstance(found, bool):
                return False
            try:
                return _ORDER[name](found, given)
            except (TypeError, ArithmeticError):  # text and numbers have no order
                return False


def _is_same(found: object, wanted: object) -> bool:
    """Equal; but True is not 1."""
    try:
        return isinstance(found, bool) is isinstance(wanted, bool) and bool(found == wanted)
    except ArithmeticError:  # a decimal that signals when it is compared
        return False
