"""Classes of data: a dataclass with slots, which nobody changes once it is made.

The standard decorator compiles six methods for each frozen class: with some seventy of them that was a third of the
time that importing Holdfast takes. Here only `__init__` is compiled, when the first object is made (or somebody looks
at it), and the rest is shared. Frozen objects also take ten times as long to build, so those that are built with every
append are `brisk`: only the type checker keeps them from being changed. What is changed on purpose is `mutable`.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, replace
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
    made = mutable(cls)
    if "__hash__" not in vars(cls):
        made.__hash__ = _hash  # type: ignore[method-assign]
    return made


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]:
    """The same for what changes: so it has no hash."""
    own = dict(vars(cls))
    given = {name: own.pop(name, MISSING) for name in cls.__annotations__}
    if any("_given" in vars(base) for base in cls.__bases__):
        raise TypeError(f"{cls.__name__} derives from a class of data")
    if any(type(value).__hash__ is None for value in given.values()):
        raise ValueError(f"{cls.__name__} has a default that its objects would share; use default_factory")
    fitted = [(name, value if isinstance(value, Field) else None) for name, value in given.items()]
    kind: Any = type(cls)
    made: Any = kind(
        cls.__name__,
        cls.__bases__,
        {
            "__repr__": _repr,
            "__eq__": _is_equal,
            "__hash__": None,
            "__replace__": replace,
            **{name: value for name, value in own.items() if name not in ("__dict__", "__weakref__")},
            "__slots__": tuple(given),
            "__match_args__": tuple(name for name, how in fitted if not how or (how.init and how.kw_only is not True)),
            "__dataclass_fields__": _Standard(),
            "__dataclass_params__": _Standard(),
            "_given": given,
            "_compared": attrgetter(*(name for name, how in fitted if not how or how.compare), "__class__"),
            "_shown": tuple(name for name, how in fitted if not how or how.repr),
        },
    )
    made.__qualname__ = cls.__qualname__
    if "__init__" not in own:
        made.__init__ = _Init(made)
    return made  # type: ignore[no-any-return]


class _Standard:
    """What the standard library knows of a class, found out by itself when somebody asks."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        cls: Any = self._owner
        given = {name: value for name, value in cls._given.items() if value is not MISSING}
        model = type(cls.__name__, (), {**given, "__doc__": "", "__annotations__": cls.__annotations__})
        model.__module__ = cls.__module__
        found = getattr(dataclass(init=False, repr=False, eq=False)(model), self._name)
        setattr(cls, self._name, found)
        return found


class _Init:
    """`__init__` of a class until somebody asks for it: then it is compiled, and takes this one's place."""

    __slots__ = ("_cls",)

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        init = self._cls.__init__ = _compiled_init(self._cls)
        return init.__get__(instance, owner)


def _compiled_init(cls: Any) -> Any:
    names: dict[str, Any] = {"__made": MISSING}
    positional: list[str] = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    types: dict[str, Any] = {}
    for name, given in cls._given.items():
        how = given if isinstance(given, Field) else field(default=given)
        default, value = "", name
        if how.default_factory is not MISSING:
            names[f"__make_{name}"] = how.default_factory
            default, value = "=__made", f"__make_{name}()"
            if how.init:
                value += f" if {name} is __made else {name}"
        elif how.default is not MISSING:
            names[f"__default_{name}"] = how.default
            default, value = f"=__default_{name}", name if how.init else f"__default_{name}"
        elif not how.init:
            continue
        if how.init:
            types[name] = cls.__annotations__[name]
            (by_name if how.kw_only is True else positional).append(name + default)
        body.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names)  # noqa: S102 - of names of fields
    init = names["__init__"]
    init.__annotations__ = {**types, "return": None}
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


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
