"""States of loops: which values can be one, and what shape a type has, so that a change of it is noticed.

A shape is told by the code's own words (fields and annotations), not by a schema: that would change with the library
that makes it.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Final

from holdfast.codec.fastjson import digest
from holdfast.codec.refusal import class_name, describe

#: What can be changed in place, and is written by itself.
_PLAIN: Final = (dict, list, set)
#: How much of a shape is told to people.
_SHOWN: Final = 300


def state_problem(value: object) -> str | None:
    """Why a value cannot be the state of a loop; None if it can."""
    kind = type(value)
    if isinstance(value, _PLAIN):
        return None
    if dataclasses.is_dataclass(kind):
        frozen = getattr(kind, "__dataclass_params__").frozen  # noqa: B009 - not known to type checkers
    elif hasattr(kind, "model_fields"):
        frozen = bool(getattr(kind, "model_config", {}).get("frozen"))
    else:
        return f"{class_name(kind)} cannot be changed in place"
    return f"{class_name(kind)} is frozen" if frozen else None


def state_type(value: object) -> object:
    """The type that a state is stored as, if nobody says so: anything, for a plain dict, list or set."""
    return Any if type(value) in _PLAIN else type(value)


def shape_of(annotation: object) -> str:
    """What a type is made of: its fields and their types, those of the classes in it as well. Empty: anything."""
    if annotation is Any:
        return ""
    told: dict[str, str] = {}
    _tell(annotation, told)
    if not told:
        return describe(annotation)
    return "; ".join(f"{name}: {fields}" for name, fields in told.items())


def shape_digest(annotation: object) -> str:
    """The same shape has the same digest, in each process."""
    shape = shape_of(annotation)
    return digest(shape) if shape else ""


def shape_of_stored(plain: object) -> str:
    """What a stored state is made of, for people."""
    if not isinstance(plain, dict):
        return type(plain).__name__
    told = ", ".join(f"{name}: {type(value).__name__}" for name, value in plain.items())
    return told if len(told) <= _SHOWN else told[:_SHOWN] + " …"


def _tell(annotation: object, told: dict[str, str]) -> None:
    for inner in typing.get_args(annotation):
        _tell(inner, told)
    if not isinstance(annotation, type) or class_name(annotation) in told:
        return
    fields = _fields(annotation)
    if fields is None:
        return
    told[class_name(annotation)] = ", ".join(f"{name} {describe(kind)}" for name, kind in fields.items())
    for kind in fields.values():
        _tell(kind, told)


def _fields(kind: type) -> dict[str, object] | None:
    models = getattr(kind, "model_fields", None)
    if isinstance(models, dict):
        return {name: field.annotation for name, field in models.items()}
    if not dataclasses.is_dataclass(kind):
        return None
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):  # told by their words, then
        hints = {}
    return {field.name: hints.get(field.name, field.type) for field in dataclasses.fields(kind)}


def unknown_fields(stored: object, read: object, path: str = "") -> list[str]:
    """The paths of what a stored state has, as plain JSON, and what was read of it has not."""
    if isinstance(stored, dict) and isinstance(read, dict):
        missing = [f"{path}{name}" for name in stored if name not in read]
        inner = (unknown_fields(stored[name], read[name], f"{path}{name}.") for name in stored if name in read)
        return missing + [each for found in inner for each in found]
    if isinstance(stored, list) and isinstance(read, list):
        found = {each for a, b in zip(stored, read, strict=False) for each in unknown_fields(a, b, f"{path}[].")}
        return sorted(found)
    return []
