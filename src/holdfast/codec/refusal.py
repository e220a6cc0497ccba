"""Saying what cannot be stored and where it is: `result.items[3].client`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, get_args

from holdfast.errors import Unserialisable


def class_name(kind: type) -> str:
    """The qualified name of a class, without its module: `__main__` is another one under a worker."""
    return str(type.__dict__["__qualname__"].__get__(kind))  # also where a metaclass hides it


def type_name(value: object) -> str:
    """The name of a value's class."""
    return class_name(type(value))


def describe(annotation: object) -> str:
    """An annotation the way its author wrote it, more or less."""
    if isinstance(annotation, type) and not get_args(annotation):
        return "None" if annotation is type(None) else annotation.__qualname__
    return repr(annotation).replace("typing.", "")


def part(key: Any) -> str:
    """What a key or an index adds to a path."""
    if type(key) is str and key.isidentifier():
        return f".{key}"
    return f"[{key!r}]" if type(key) in (str, int, float, bool, type(None)) else f"[{type_name(key)}]"


def _not_awaited(call: Coroutine[Any, Any, Any]) -> str:
    name = getattr(call, "__name__", "")
    return "It is a call that was not awaited" + (f": write `await {name}(…)`." if name else ".")


class Refused(Exception):
    """A value cannot be written; the path grows while the error climbs out of the containers."""

    def __init__(self, found: object, why: str) -> None:
        super().__init__(why)
        self.found = type_name(found)
        self.why = f"{why} {_not_awaited(found)}" if isinstance(found, Coroutine) else why
        self.path: list[str] = []

    def within(self, outer: str) -> Refused:
        self.path.append(outer)
        return self

    def error(self, what: str) -> Unserialisable:
        path = self.where(what)
        return Unserialisable(f"{path} cannot be stored: {self.why}", path=path, type_name=self.found)

    def where(self, what: str) -> str:
        parts = self.path[::-1]
        if len(parts) > 40:
            parts[20:-10] = ["…"]
        return what + "".join(parts)
