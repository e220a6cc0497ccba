"""JSON trees with all objects in the order of their keys, the form that digests are of.

All parts of a level are looked at at once, and what is in order stays the same object: for what is large, that and
writing it takes less than writing it in order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from typing import Any

from holdfast.codec.fastjson import Json


def in_order(tree: Json, depth: int) -> Json:
    """The tree with all objects in the order of their keys; the same object if they are.

    `depth`: so many levels may have lists and objects.
    """
    return _parts([tree], depth)[0]


def _parts(parts: list[Json], depth: int) -> list[Json]:
    kinds = set(map(type, parts)) if depth > 0 else set[type]()
    for kind, order in ((dict, _objects), (list, _lists)):
        if kind in kinds:
            parts = order(parts, depth) if len(kinds) == 1 else _mixed(kind, parts, order, depth)
    return parts


def _mixed(kind: type, parts: list[Json], order: Callable[[list[Any], int], list[Any]], depth: int) -> list[Json]:
    found = [part for part in parts if type(part) is kind]
    ordered = order(found, depth)
    if ordered is found:
        return parts
    rest = iter(ordered)
    return [next(rest) if type(part) is kind else part for part in parts]


def _lists(lists: list[list[Json]], depth: int) -> list[list[Json]]:
    if depth == 1:
        return lists
    parts = list(chain.from_iterable(lists))
    ordered = _parts(parts, depth - 1)
    if ordered is parts:
        return lists
    rest = iter(ordered)
    return [list(islice(rest, len(each))) for each in lists]


def _objects(objects: list[dict[str, Json]], depth: int) -> list[dict[str, Json]]:
    if depth > 1:
        parts = list(chain.from_iterable(map(dict.values, objects)))
        ordered = _parts(parts, depth - 1)
        if ordered is not parts:
            rest = iter(ordered)
            objects = [dict(zip(each, rest, strict=False)) for each in objects]
    first = list(objects[0])
    if first != sorted(first) and set(map(len, objects)) == {len(first)} and len(set().union(*objects)) == len(first):
        # They have the same keys, and `|` leaves the ones that it finds on its left where they are.
        return list(map(dict.fromkeys(sorted(first)).__or__, objects))
    keys = {each: sorted(each) for each in set(map(tuple, objects))}
    if all(each == tuple(names) for each, names in keys.items()):
        return objects
    empty = {each: dict.fromkeys(names) for each, names in keys.items()}
    return [empty[tuple(each)] | each for each in objects]
