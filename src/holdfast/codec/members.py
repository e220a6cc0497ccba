"""The members of many lists and dicts at once, which takes the garbage collector a fifth of the time of iterators.

Of a list it visits the members. Of a dict it visits the values, and the keys as well unless all that it ever had are
of the type `str`: so the number of what it visits tells whether they are. This is how CPython does it, and no promise
of the language. It is tried out once; where it is otherwise, iterators do it.
"""

from __future__ import annotations

import gc
from functools import lru_cache
from itertools import chain
from typing import Any, Final

_STR: Final = frozenset({str})


def members_of(containers: list[Any]) -> list[Any] | None:
    """The items of lists and the values of dicts, in any order; None if a key of a dict is not of the type `str`."""
    if collector_tells():
        found = gc.get_referents(*containers)
        if len(found) == sum(map(len, containers)):
            return found
    return iterated(containers)


def iterated(containers: list[Any]) -> list[Any] | None:
    """The same, in any Python."""
    dicts = [each for each in containers if type(each) is dict]
    if not _STR.issuperset(map(type, chain.from_iterable(dicts))):
        return None
    lists = (each for each in containers if type(each) is list)
    return list(chain(chain.from_iterable(lists), chain.from_iterable(map(dict.values, dicts))))


def kinds_of(values: list[Any]) -> set[type]:
    """Their types. Most often there is one, and to count it takes half of what looking each of them up does."""
    kinds = list(map(type, values))
    if kinds and kinds[0] is kinds[-1] and kinds.count(kinds[0]) == len(kinds):
        return {kinds[0]}
    return set(kinds)


class _Text(str):
    __slots__ = ()


@lru_cache(1)
def collector_tells() -> bool:
    """Whether the garbage collector visits what is said above."""
    one, two = object(), object()
    shrunk = {"a": one, "b": 0, "c": two}
    del shrunk["b"]
    usual = [gc.get_referents(each) for each in ([one, two], {"a": one, "b": two}, shrunk)]
    odd: list[dict[Any, Any]] = [{0: one, 1: two}, {"a": one, 1: two}, {"a": one, _Text("b"): two}, {_Text("a"): one}]
    return all(len(each) == 2 and {*each} == {one, two} for each in usual) and all(
        len(gc.get_referents(each)) == 2 * len(each) for each in odd
    )
