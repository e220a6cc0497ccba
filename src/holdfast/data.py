"""Classes of data: a dataclass with slots, which nobody changes once it is made.

The standard decorator compiles six methods for each frozen class: with some seventy of them that was a third of the
time that importing Holdfast takes. Here `__init__` is compiled, and the rest is shared. Frozen objects also take ten
times as long to build, so those that are built with every append are `brisk`: only the type checker keeps them from
being changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def data(cls: type[T]) -> type[T]:
    """A frozen dataclass with slots: equal if its fields are, hashable if they are.

    Example:
        @data
        class Place:
            queue: str
            priority: int = 0
    """
    made = brisk(cls)
    made.__setattr__ = _set_once  # type: ignore[method-assign]
    made.__delattr__ = _keep  # type: ignore[method-assign]
    return made


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def brisk(cls: type[T]) -> type[T]:
    """The same for what is built all the time; nothing but the type checker keeps it from being changed."""
    own = vars(cls)
    made: Any = dataclass(slots=True, repr=False, eq=False)(cls)
    made._compared = attrgetter(*(each.name for each in fields(made) if each.compare), "__class__")
    made._shown = tuple(each.name for each in fields(made) if each.repr)
    shared: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("__repr__", _repr),
        ("__eq__", _is_equal),
        ("__hash__", _hash),
    )
    for name, method in shared:
        if name not in own:
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


@recursive_repr()
def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._shown)})"


def _is_equal(self: Any, other: Any) -> Any:
    return self._compared(self) == other._compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _set_once(self: object, name: str, value: object) -> None:
    if hasattr(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _keep(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
