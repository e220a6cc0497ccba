"""Values of types that the format does not have: refused, or written by name for people.

Classes of pydantic and attrs are told by their attributes: neither library is imported for that.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NoReturn

from holdfast.codec.fastjson import Json
from holdfast.codec.refusal import Refused, class_name, type_name
from holdfast.codec.tags import CONTAINERS, OtherTypes, pack, pack_many

#: Builtins that people derive from.
BASES: Final[tuple[Any, ...]] = (str, int, float, bytes, bytearray, *CONTAINERS)


def is_model(kind: type) -> bool:
    """Whether a class is a pydantic model."""
    return hasattr(kind, "__pydantic_extra__")


def is_secret(kind: type) -> bool:
    """Whether a class hides its content from logs, as `pydantic.SecretStr` does."""
    return hasattr(kind, "get_secret_value")


def is_attrs(kind: type) -> bool:
    """Whether a class was made by attrs."""
    return hasattr(kind, "__attrs_attrs__")


class _Refuse(OtherTypes):
    """Raises `Refused`, with what to do instead."""

    def __call__(self, value: Any, depth: int) -> NoReturn:
        name, kind = type_name(value), type(value)
        if is_secret(kind):
            why = f"{name} is a secret, and secrets are not stored; fetch it where it is used."
        elif isinstance(value, memoryview):
            why = "a memoryview is a window into another object; store bytes(view)."
        elif is_attrs(kind):
            why = f"{name} is an attrs class; use a dataclass or a pydantic model, or attrs.asdict()."
        elif isinstance(value, Enum) or is_model(kind) or dataclasses.is_dataclass(value) or hasattr(kind, "_fields"):
            why = f"found {name}, and nothing says which class to read it back as; annotate it (`-> {name}`)."
        elif isinstance(value, (*BASES, complex)):
            why = f"found {name}, a subclass of a builtin; annotate it or convert it to the builtin."
        else:
            why = f"found {name}; return data (builtins, dataclasses, pydantic models) and not objects that do things."
        raise Refused(value, why)


class _PackNamed(OtherTypes):
    """Writes what has no place in the format by the name of its type, with its content where it is data."""

    def __call__(self, value: Any, depth: int) -> Json:
        name, kind = type_name(value), type(value)
        if is_secret(kind):
            return {"$opaque": name}
        if isinstance(value, Enum):
            return {"$enum": [name, str(value._name_)]}
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
            return {"$opaque": str(getattr(value, "__qualname__", name))}
        content: Any
        if is_model(kind):
            content = {field: value.__dict__.get(field) for field in kind.__pydantic_fields__}
            content |= value.__pydantic_extra__ or {}
        elif dataclasses.is_dataclass(value):
            content = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        elif is_attrs(kind):
            content = {field.name: getattr(value, field.name, None) for field in kind.__attrs_attrs__}
        else:
            base = next((base for base in BASES if isinstance(value, base)), None)
            if base is None:
                return {"$opaque": name}
            content = base(value)
        return {"$object": [name, pack(content, depth + 1, self)]}

    def many(self, kind: Any, values: Sequence[Any], depth: int) -> list[Json] | None:
        if is_secret(kind) or issubclass(kind, Enum):
            return None
        if is_model(kind) and not any(each.__pydantic_extra__ for each in values):
            fields = tuple(kind.__pydantic_fields__)
        elif kind.__dictoffset__ and dataclasses.is_dataclass(kind):
            fields = tuple(field.name for field in dataclasses.fields(kind))
        else:
            return None
        contents = [each.__dict__ for each in values]
        if set(map(tuple, contents)) != {fields}:
            return None
        packed = pack_many(contents, depth + 1, self)
        name = class_name(kind)
        return None if packed is None else [{"$object": [name, each]} for each in packed]


refuse: Final = _Refuse()
pack_named: Final = _PackNamed()
