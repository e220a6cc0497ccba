"""Annotations made of builtins only, and whether a value has the shape that one says.

Types are exact, as the format keeps them; but an int may stand where a float is declared, as for type checkers.
"""

from __future__ import annotations

import collections.abc as abc
import datetime as dt
import sys
import types
import typing
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final

from holdfast.codec.later import DECIMAL, FRACTION, PATH, REAL_PATH, TYPE_ALIAS, UUID, typing_extensions
from holdfast.codec.refusal import Refused, describe, part, type_name
from holdfast.codec.tags import ATOMS, tags_of

_DICT: Final = frozenset({dict})
_STRINGS: Final = frozenset({str})
#: So many parts of a value are looked at in one go.
_MOST: Final = 1_000_000


def _together(*tags: frozenset[str] | None) -> frozenset[str] | None:
    return None if None in tags else frozenset().union(*(each or () for each in tags))


class Shape:
    """Compares values with an annotation."""

    #: If set, the shape accepts exactly the values of these types.
    kinds: frozenset[type] | None = None
    #: Whether a value that was accepted is known to be JSON already (but for NaN and long ints).
    proves_json = False
    #: The tags that a value may have; None: any.
    tags: frozenset[str] | None = frozenset()

    def __init__(self, expected: str) -> None:
        self.expected = expected

    def check(self, value: Any) -> None:
        """Raise `Refused` if the value has another shape."""
        raise NotImplementedError

    def check_at(self, key: Any, value: Any) -> None:
        try:
            self.check(value)
        except Refused as refused:
            raise refused.within(part(key)) from None

    def accepts_all(self, values: Collection[Any]) -> bool:
        """Whether a quick look at all of them is enough to know that it accepts each."""
        return False

    def refused(self, value: Any) -> Refused:
        return Refused(value, f"expected {self.expected}, found {type_name(value)}.")


class _Anything(Shape):
    tags = None

    def check(self, value: Any) -> None:
        pass

    def accepts_all(self, values: Collection[Any]) -> bool:
        return True


class _Leaf(Shape):
    """A builtin that has no parts, or a union of such."""

    def __init__(self, expected: str, kinds: Iterable[type]) -> None:
        super().__init__(expected)
        self.kinds = self._kinds = frozenset(kinds)
        self.tags = tags_of(self._kinds)

    def check(self, value: Any) -> None:
        if type(value) not in self._kinds:
            raise self.refused(value)

    def accepts_all(self, values: Collection[Any]) -> bool:
        return self._kinds.issuperset(map(type, values))


class _Literal(Shape):
    def __init__(self, expected: str, values: tuple[Any, ...]) -> None:
        super().__init__(expected)
        self._values = values
        self._strings = {option for option in values if type(option) is str}

    def check(self, value: Any) -> None:
        if not any(type(value) is type(option) and value == option for option in self._values):
            shown = repr(value) if type(value) in ATOMS else type_name(value)
            raise Refused(value, f"expected {self.expected}, found {shown}.")

    def accepts_all(self, values: Collection[Any]) -> bool:
        return _STRINGS.issuperset(map(type, values)) and self._strings.issuperset(values)


class _Items(Shape):
    """`list[X]`, `tuple[X, ...]` and the like."""

    def __init__(self, expected: str, containers: frozenset[type], item: Shape) -> None:
        super().__init__(expected)
        self._containers = containers
        self._item = item
        self.tags = _together(tags_of(containers), item.tags)
        self.proves_json = containers == {list} and item.kinds is not None and item.kinds <= ATOMS

    def check(self, value: Any) -> None:
        if type(value) not in self._containers:
            raise self.refused(value)
        if not self._item.accepts_all(value):
            for index, item in enumerate(value):
                self._item.check_at(index, item)

    def accepts_all(self, values: Collection[Any]) -> bool:
        if not self._containers.issuperset(map(type, values)):
            return False
        return _accepts_parts(self._item, values)


class _Fixed(Shape):
    """`tuple[X, Y]`."""

    def __init__(self, expected: str, items: list[Shape]) -> None:
        super().__init__(expected)
        self._items = items
        self.tags = _together(tags_of({tuple}), *(item.tags for item in items))

    def check(self, value: Any) -> None:
        if type(value) is not tuple:
            raise self.refused(value)
        if len(value) != len(self._items):
            raise Refused(value, f"expected {self.expected}, found a tuple of {len(value)}.")
        for index, shape in enumerate(self._items):
            shape.check_at(index, value[index])


class _Pairs(Shape):
    """`dict[X, Y]`."""

    def __init__(self, expected: str, key: Shape, item: Shape) -> None:
        super().__init__(expected)
        self._key = key
        self._item = item
        own = frozenset() if key.kinds == frozenset({str}) else frozenset({"$dict"})
        self.tags = _together(own, key.tags, item.tags)

    def check(self, value: Any) -> None:
        if type(value) is not dict:
            raise self.refused(value)
        if not self._key.accepts_all(value):
            for index, key in enumerate(value):
                self._key.check_at(index, key)
        if not self._item.accepts_all(value.values()):
            for key, item in value.items():
                self._item.check_at(key, item)

    def accepts_all(self, values: Collection[Any]) -> bool:
        if not _DICT.issuperset(map(type, values)):
            return False
        return _accepts_parts(self._key, values) and _accepts_parts(self._item, [each.values() for each in values])


class _Fields(Shape):
    """A TypedDict. Keys that it does not name are kept: an older version of the code may have written them."""

    def __init__(self, expected: str, fields: dict[str, Shape], required: set[str]) -> None:
        super().__init__(expected)
        self._fields = fields
        self._required = required
        self.tags = _together(*(shape.tags for shape in fields.values()))

    def check(self, value: Any) -> None:
        if type(value) is not dict:
            raise self.refused(value)
        for name, shape in self._fields.items():
            if name in value:
                shape.check_at(name, value[name])
            elif name in self._required:
                raise Refused(value, f"{self.expected} requires the key {name!r}.")

    def accepts_all(self, values: Collection[Any]) -> bool:
        if not _DICT.issuperset(map(type, values)):
            return False
        for name, shape in self._fields.items():
            held = [each[name] for each in values if name in each]
            if (name in self._required and len(held) != len(values)) or not shape.accepts_all(held):
                return False
        return True


def _accepts_parts(shape: Shape, containers: Collection[Collection[Any]]) -> bool:
    """Whether it accepts the parts of all of them, if they are not too many to be held at once."""
    if shape is _ANYTHING:
        return True
    return sum(map(len, containers)) <= _MOST and shape.accepts_all(list(chain.from_iterable(containers)))


class _Either(Shape):
    def __init__(self, expected: str, options: list[Shape]) -> None:
        super().__init__(expected)
        self._options = options
        self.tags = _together(*(option.tags for option in options))

    def check(self, value: Any) -> None:
        best: Refused | None = None
        for option in self._options:
            try:
                return option.check(value)
            except Refused as refused:
                # The option that accepted most of the value says best what is wrong with it.
                if refused.path and (best is None or len(refused.path) > len(best.path)):
                    best = refused
        raise best or self.refused(value)


_LEAVES: Final[Mapping[object, tuple[type, ...]]] = {
    None: (type(None),),
    type(None): (type(None),),
    int: (int, bool),
    float: (float, int, bool),
    complex: (complex, float, int, bool),
    dt.date: (dt.date, dt.datetime),
    typing.NoReturn: (),
    typing.Never: (),
    **{kind: (kind,) for kind in (str, bool, bytes, bytearray, dt.datetime, dt.time, dt.timedelta, range)},
}

#: The same for types whose modules may not be loaded.
_LATER_LEAVES: Final = ((DECIMAL, DECIMAL), (FRACTION, FRACTION), (UUID, UUID), (PATH, REAL_PATH))

_ANYTHING: Final = _Anything("anything")
_SEQUENCES: Final = frozenset({list, tuple, deque})
_SETS: Final = frozenset({set, frozenset})
_ITEMS: Final[Mapping[object, frozenset[type]]] = {
    list: frozenset({list}),
    set: frozenset({set}),
    frozenset: frozenset({frozenset}),
    deque: frozenset({deque}),
    abc.Sequence: _SEQUENCES,
    abc.MutableSequence: frozenset({list, deque}),
    abc.Set: _SETS,
    abc.MutableSet: frozenset({set}),
    abc.Collection: _SEQUENCES | _SETS,
    abc.Iterable: _SEQUENCES | _SETS,
}
#: `type X = …` and its stand-in for older Pythons, which is not the same class where both exist.
_ALIAS: Final = getattr(typing, "TypeAliasType", None)
_DICTS: Final = (dict, abc.Mapping, abc.MutableMapping)


def shape_of(annotation: Any, depth: int = 0) -> Shape | None:
    """The shape of an annotation made of builtins only, else None."""
    if depth > 30:
        return None
    if annotation is Any or annotation is object:
        return _ANYTHING
    if type(annotation) is typing.NewType:
        return shape_of(annotation.__supertype__, depth + 1)
    if type(annotation) is _ALIAS or TYPE_ALIAS.is_type(type(annotation)):
        try:
            return shape_of(annotation.__value__, depth + 1)
        except NameError:  # of what is not defined yet
            return None
    try:
        kinds = _LEAVES[annotation] if annotation in _LEAVES else _later_leaf(annotation)
    except TypeError:  # not hashable
        return None
    expected = describe(annotation)
    if kinds is not None:
        return _Leaf(expected, kinds)
    if _is_typed_dict(annotation):
        return _typed_dict_shape(annotation, depth)
    args = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return _Literal(expected, args) if ATOMS.issuperset(map(type, args)) else None
    shapes = _shapes_of([arg for arg in args if arg is not Ellipsis], depth + 1)
    return None if shapes is None else _container_shape(annotation, expected, shapes)


def _later_leaf(annotation: object) -> tuple[type, ...] | None:
    return next(((kind.load(),) for declared, kind in _LATER_LEAVES if declared.is_type(annotation)), None)


def _is_typed_dict(annotation: object) -> bool:
    # Where `typing_extensions` has one of its own, its classes exist only once it is loaded.
    is_typed_dict = getattr(sys.modules.get("typing_extensions"), "is_typeddict", typing.is_typeddict)
    return bool(is_typed_dict(annotation))


def _shapes_of(annotations: Iterable[Any], depth: int) -> list[Shape] | None:
    shapes: list[Shape] = []
    for annotation in annotations:
        shape = shape_of(annotation, depth)
        if shape is None:
            return None  # without a look at the others: in a recursive type, that would take for ever
        shapes.append(shape)
    return shapes


def _container_shape(annotation: Any, expected: str, shapes: list[Shape]) -> Shape | None:
    origin = typing.get_origin(annotation) or annotation
    if origin in (typing.Union, types.UnionType):
        if all(shape.kinds is not None for shape in shapes):
            return _Leaf(expected, chain.from_iterable(shape.kinds or () for shape in shapes))
        return _Either(expected, shapes)
    if origin in _ITEMS:
        return _Items(expected, _ITEMS[origin], shapes[0] if shapes else _ANYTHING)
    if origin in _DICTS:
        return _Pairs(expected, *(shapes or [_ANYTHING, _ANYTHING]))
    if origin is tuple:
        is_bare = annotation in (tuple, typing.Tuple)  # noqa: UP006
        if is_bare or Ellipsis in typing.get_args(annotation):
            return _Items(expected, frozenset({tuple}), shapes[0] if shapes else _ANYTHING)
        return _Fixed(expected, shapes)
    return None


def _typed_dict_shape(annotation: Any, depth: int) -> Shape | None:
    more = typing_extensions()
    try:
        hints = more.get_type_hints(annotation)
        marked = more.get_type_hints(annotation, include_extras=True)
    except Exception:  # evaluates annotations of foreign modules
        return None
    is_generic = hasattr(annotation, "__parameters__") and annotation.__parameters__
    shapes = None if is_generic else _shapes_of(hints.values(), depth + 1)
    if shapes is None:
        return None
    required = set(annotation.__required_keys__)
    for name, hint in marked.items():
        # `__required_keys__` does not see these marks where annotations are text.
        mark: Any = typing.get_origin(hint)
        if mark in (typing.NotRequired, more.NotRequired):
            required.discard(name)
        elif mark in (typing.Required, more.Required):
            required.add(name)
    return _Fields(describe(annotation), dict(zip(hints, shapes, strict=True)), required)
