"""A set of numbers that mostly follow each other, kept as ranges: what it takes is told by its gaps, not its size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class Numbers:
    """Numbers in ascending order.

    Example: `Numbers([4, 2, 3, 9]).plain() == [[2, 4], 9]`
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for number in numbers:
            self.add(number)

    @classmethod
    def of(cls, plain: Iterable[int | list[int]]) -> Numbers:
        """From what `plain` gave; ValueError if it is nothing of the kind."""
        found = cls()
        for each in plain:
            first, last = (each, each) if isinstance(each, int) else each
            if last < first or (found._lasts and first <= found._lasts[-1]):
                raise ValueError("numbers that are out of order")
            found._firsts.append(first)
            found._lasts.append(last)
        return found

    def plain(self) -> list[int | list[int]]:
        """As JSON: a number, or the first and the last of those that follow each other."""
        return [first if first == last else [first, last] for first, last in self._ranges()]

    def add(self, number: int) -> None:
        at = bisect_right(self._firsts, number)
        if at and number <= self._lasts[at - 1]:
            return
        follows = at > 0 and self._lasts[at - 1] == number - 1
        precedes = at < len(self._firsts) and self._firsts[at] == number + 1
        if follows and precedes:
            self._lasts[at - 1] = self._lasts.pop(at)
            self._firsts.pop(at)
        elif follows:
            self._lasts[at - 1] = number
        elif precedes:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)

    def discard(self, number: int) -> None:
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number > self._lasts[at]:
            return
        first, last = self._firsts[at], self._lasts[at]
        if first == last:
            self._firsts.pop(at)
            self._lasts.pop(at)
        elif number == first:
            self._firsts[at] = number + 1
        elif number == last:
            self._lasts[at] = number - 1
        else:
            self._lasts[at] = number - 1
            self._firsts.insert(at + 1, number + 1)
            self._lasts.insert(at + 1, last)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[int]:
        for first, last in self._ranges():
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._ranges())

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def _ranges(self) -> Iterable[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)
