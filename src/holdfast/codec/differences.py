"""Differences between texts: a large value that changes a little is stored as what changed.

A difference says how to put the new text together: from stretches of the old one, and from text that is new. It is
found and applied on JSON *text*, never on values: `==` sees neither 1 -> True -> 1.0 nor the order of keys, and no code
of the user takes part. So it is exact to the character, whatever the texts are. That they are JSON matters only for
what is looked for: a field that changed, members that came or went, text that grew, a list that was cut at the front.

It is found in time linear in the texts, most of it inside `memcmp` and `str.find`: what is equal at both ends is left
out; from each place where the rest differs, short pieces of one text are looked for in the other, near by first, and
what is found is extended both ways. Work is bounded: if it runs out, or too little is found, the text is to be stored
whole (None).

As text, a difference begins with `~`, which JSON never does (nor does it begin with the `@` of a blob):

    ~1 3990 6004 0+3988,2014,3988+2\n<2014 characters>

That is the version of the format, how long both texts are, and the parts in order: `start+length` of the old text, or
so many of the characters behind the newline. It is ASCII if the texts are.

To use it: keep the last text of each kind (the state of the checkpoint before; arguments and results by the name of the
call) with its `DifferenceChain`. `chain.following(old, new)` gives what to store, a difference or the new text itself,
and the chain to go on with; the first text of a kind has None before it. Store the `blob_digest` of the whole new text
beside it: a difference that was damaged, or meets another text, may well make a text. To read a value, take what was
stored, back to the last whole text, and give it to `restore` with that digest. So what lies between the two must be
kept as long as the value. A chain ends by itself: what is read is at most the value and twice as much of differences,
what is written at most 1.5 times what is new, and for each difference at most `_ROW` characters of a whole text to
come.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from holdfast.base.data import brisk
from holdfast.codec.fastjson import blob_digest
from holdfast.errors import Undecodable
from holdfast.model import LARGEST_BLOB

_MARK: Final = "~1 "
_HEAD: Final = r"~1 ([0-9]{1,12}) ([0-9]{1,12}) ([0-9+,]*)\n"
#: `start, length`: a stretch of the old text. Text: new.
Part = tuple[int, int] | str

#: A stretch shorter than this is not worth the numbers that name it.
_SHORT: Final = 24
#: What is compared at once.
_CHUNK: Final = 1 << 16
#: How far to look for what both texts have, step by step, and at which distances the pieces begin that are looked for.
_REACHES: Final = (
    (256, _SHORT, (0, 4, 16, 48, 120)),
    (4096, _SHORT, (0, 16, 64, 256, 1024, 3000)),
    (65536, 2 * _SHORT, (0, 64, 512, 4096, 16384, 50000)),
    (1 << 40, 2 * _SHORT, (0, 64, 1024, 16384, 131072, 1 << 20, 1 << 23)),
)
#: Text of the end that does not follow in the old one may be anywhere in it; too little of it is not looked for.
_MOVED: Final = 1024
#: So many characters are looked through at most for each one that there is.
_WORK: Final = 8
#: One part for so many characters on average, else it is not worth the time.
_SPARSE: Final = 512
#: So many parts are always worth it.
_FEW: Final = 64
#: How many characters of a value to read cost as much as a row of the store, give or take.
_ROW: Final = 512
#: More pieces than this are put together before the next difference.
_PIECES: Final = 64


@brisk
class Difference:
    """How to make a text of another."""

    old: int  #: how long the old text is
    new: int
    parts: tuple[Part, ...]

    def dumps(self) -> str:
        """The difference as text."""
        marks = ",".join([str(len(part)) if isinstance(part, str) else f"{part[0]}+{part[1]}" for part in self.parts])
        added = "".join([part for part in self.parts if isinstance(part, str)])
        return f"{_MARK}{self.old} {self.new} {marks}\n{added}"

    @classmethod
    def loads(cls, text: str, *, limit: int = LARGEST_BLOB) -> Difference:
        """The difference that a text says; raises `Undecodable` if it is none, or makes more than `limit` characters.

        What it returns is consistent in itself: it fits every text of its length, and makes what it says.
        """
        head = re.match(_HEAD, text)
        if head is None:
            raise _damaged("its beginning is not that of a difference which this version reads")
        old, new = int(head[1]), int(head[2])
        if max(old, new) > limit:
            raise _damaged(f"it is of texts of more than {limit:,} characters, as none of ours has")
        parts = tuple(_parts(text, head[3], head.end(), old))
        if sum(len(part) if isinstance(part, str) else part[1] for part in parts) != new:
            raise _damaged(f"its parts do not make the {new:,} characters that it promises")
        return cls(old, new, parts)


def _parts(text: str, marks: str, place: int, old: int) -> Iterator[Part]:
    for mark in marks.split(",") if marks else ():
        start, plus, length = mark.rpartition("+")
        if not 0 < len(length) < 13 or (plus and not 0 < len(start) < 13) or "+" in start or length[0] == "0":
            raise _damaged("one of its parts is unreadable")
        size = int(length)
        if plus:
            if int(start) + size > old:
                raise _damaged("one of its parts is outside the old text")
            yield int(start), size
        else:
            if place + size > len(text):
                raise _damaged("its end is missing")
            yield text[place : place + size]
            place += size
    if place != len(text):
        raise _damaged("it has more text than parts")


def is_difference(stored: str) -> bool:
    """Whether a stored text is a difference, and not a value itself."""
    return stored.startswith("~")


def difference(old: str, new: str, *, alike: int = 0) -> Difference | None:
    """How to make the new text of the old one; None if storing it whole is better, or nearly as good.

    `alike`: both are known to begin with the same characters, so many at least.
    """
    search = _Search(old, new)
    search.run(alike)
    # A whole one for each two thirds that are new: 1.5 times what is new.
    return None if search.size * 3 > len(new) * 2 else Difference(len(old), len(new), tuple(search.found))


def apply(old: str, change: Difference | str, *, digest: str | None = None, limit: int = LARGEST_BLOB) -> str:
    """The new text; raises `Undecodable` if the difference is damaged, or not one from the old text.

    `digest`: the `blob_digest` of the new text, which tells each other one.
    """
    return restore(old, [change], digest=digest, limit=limit)


def restore(
    whole: str, changes: Iterable[Difference | str], *, digest: str | None = None, limit: int = LARGEST_BLOB
) -> str:
    """The last of a row of texts, of which the first one is whole and each other a difference to the one before.

    Takes as long as reading all of it once, however many they are: what is put together are stretches, not texts.
    """
    pieces = [(whole, 0, len(whole))] if whole else []
    length = len(whole)
    for change in changes:
        if isinstance(change, str):
            change = Difference.loads(change, limit=limit)
        if change.old != length:
            raise _damaged(f"it is one from a text of {change.old:,} characters, and the stored one has {length:,}")
        if len(pieces) > _PIECES:
            text = _joined(pieces)
            pieces = [(text, 0, len(text))]
        pieces = _changed(pieces, change)
        length = change.new
    text = _joined(pieces)
    if digest is not None and blob_digest(text.encode("utf-8", "surrogatepass")) != digest:
        raise _damaged("what it makes is not the text that was stored")
    return text


Piece = tuple[str, int, int]


def _changed(pieces: list[Piece], change: Difference) -> list[Piece]:
    ends = list(accumulate([stop - start for _, start, stop in pieces]))
    made: list[Piece] = []
    for part in change.parts:
        if isinstance(part, str):
            made.append((part, 0, len(part)))
            continue
        begin, size = part
        first, last = bisect_right(ends, begin), bisect_left(ends, begin + size)
        text, _, stop = pieces[first]
        cut = stop - (ends[first] - begin)
        if first == last:
            made.append((text, cut, cut + size))
            continue
        made.append((text, cut, stop))
        made += pieces[first + 1 : last]
        text, start, stop = pieces[last]
        made.append((text, start, stop - (ends[last] - begin - size)))
    return made


def _joined(pieces: Sequence[Piece]) -> str:
    return "".join([text[start:stop] for text, start, stop in pieces])


@brisk
class DifferenceChain:
    """What was stored of the values of one kind since the last whole one, to decide when the next one is whole."""

    size: int = 0  #: of the differences
    count: int = 0

    def following(self, old: str | None, new: str, *, alike: int = 0) -> tuple[str, DifferenceChain]:
        """What to store for the value that follows on `old`, and the chain then. None: there is none.

        `alike` as for `difference`.
        """
        if old is not None and self.count < _FEW + len(new) // _ROW and self.size <= 2 * len(new):
            found = difference(old, new, alike=alike)
            stored = None if found is None else found.dumps()
            if stored is not None and self.size + len(stored) <= 2 * len(new):
                return stored, DifferenceChain(self.size + len(stored), self.count + 1)
        return new, DifferenceChain()


def _damaged(why: str) -> Undecodable:
    return Undecodable(f"A stored difference cannot be read: {why}.")


class _Search:
    """Looks for what two texts have in common, from left to right."""

    __slots__ = ("found", "new", "new_end", "old", "old_end", "place", "size", "work")

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new
        self.old_end, self.new_end = len(old), len(new)
        self.found: list[Part] = []
        self.size = 40  #: of the difference so far, about
        self.place = 0  #: so much of the new text is made
        self.work = _WORK * (len(old) + len(new))

    def run(self, alike: int) -> None:
        start = alike + self._forward(alike, alike)
        self._copy(0, 0, start)
        end = self._backward(len(self.old), len(self.new), start, start)
        self.old_end -= end
        self.new_end -= end
        self._find_common(start)
        self._find_moved(self.new_end)
        self._copy(self.old_end, self.new_end, end)
        self._add(len(self.new))

    def _find_common(self, start: int) -> None:
        """What follows in the same order in both."""
        i = j = start
        most = _FEW + len(self.new) // _SPARSE
        while i < self.old_end and j < self.new_end and len(self.found) < most:
            met = self._meet(i, j)
            if met is None or (len(self.found) > _FEW and self.size > self.place // 2):
                return  # there is nothing, or so little between the changes that there is no use in looking on
            i, j, size = met
            self._find_moved(j)
            self._copy(i, j, size)
            i, j = i + size, j + size

    def _meet(self, i: int, j: int) -> tuple[int, int, int] | None:
        """Where both texts go on alike, and for how long, after these places where they do not."""
        old, new = self.old, self.new
        for reach, length, distances in _REACHES:
            old_stop, new_stop = min(i + reach, self.old_end), min(j + reach, self.new_end)
            for distance in distances:
                met = None
                place = j + distance
                if place + length <= self.new_end:
                    begin = old.find(new[place : place + length], i, old_stop)
                    self.work -= (old_stop if begin < 0 else begin) - i
                    if begin >= 0:
                        met = self._extended(begin, place, i, j)
                begin = i + distance
                if begin + length <= self.old_end and (met is None or met[2] < reach):
                    place = new.find(old[begin : begin + length], j, new_stop)
                    self.work -= (new_stop if place < 0 else place) - j
                    if place >= 0:
                        other = self._extended(begin, place, i, j)
                        met = other if met is None or other[2] > met[2] else met
                # The farther away it is, the longer it must be: a phrase may be anywhere.
                if met is not None and met[2] >= _SHORT + (met[0] - i + met[1] - j) // 16:
                    return met
                if self.work < 0:
                    return None
            if old_stop == self.old_end and new_stop == self.new_end:
                return None
        return None

    def _find_moved(self, stop: int) -> None:
        """What is anywhere in the old text, if much is new up to here."""
        old, new = self.old, self.new
        least = max(_MOVED, len(new) // 16)
        while stop - self.place >= least and self.work > 0:
            for distance in _REACHES[-1][2]:
                place = self.place + distance
                if place + 2 * _SHORT > stop:
                    return
                begin = old.find(new[place : place + 2 * _SHORT])
                self.work -= len(old) if begin < 0 else begin
                if begin >= 0:
                    begin, place, size = self._extended(begin, place, 0, self.place)
                    if size >= _MOVED // 4:
                        self._copy(begin, place, min(size, stop - place))
                        break
            else:
                return

    def _extended(self, begin: int, place: int, i: int, j: int) -> tuple[int, int, int]:
        """What is equal around these places, not before `i` and `j`."""
        back = self._backward(begin, place, i, j)
        return begin - back, place - back, back + self._forward(begin, place)

    def _forward(self, i: int, j: int) -> int:
        """So many characters are equal from these places on."""
        return self._equal(i, j, most=min(self.old_end - i, self.new_end - j), is_ahead=True)

    def _backward(self, i: int, j: int, low_i: int, low_j: int) -> int:
        """So many characters are equal before these places, and not before the lowest ones."""
        return self._equal(i, j, most=min(i - low_i, j - low_j), is_ahead=False)

    def _equal(self, i: int, j: int, *, most: int, is_ahead: bool) -> int:
        old, new = self.old, self.new
        done, size = 0, 64
        while done < most:
            size = min(size, most - done)
            way = done if is_ahead else -done - size
            a, b = i + way, j + way
            if old[a : a + size] == new[b : b + size]:
                done += size
                size = min(size * 4, _CHUNK)
            elif size == 1:
                break
            else:
                most = done + size - 1
                size = size // 2
        return done

    def _copy(self, begin: int, place: int, size: int) -> None:
        """The new text from `place` on is that of the old one from `begin` on; what is before it is new."""
        if size < _SHORT:
            return  # it is part of the new text that follows
        self._add(place)
        self.found.append((begin, size))
        self.size += 12
        self.place = place + size

    def _add(self, place: int) -> None:
        if place > self.place:
            self.found.append(self.new[self.place : place])
            self.size += place - self.place + 6
            self.place = place
