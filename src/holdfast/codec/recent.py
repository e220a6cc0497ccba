"""Long lists that are given again and again, each time with a little more: only what is new is put in order.

The messages of a conversation go to each model call, and most of them went to the call before. All of them are looked
at and written again: nothing else tells whether one has changed. But to put a long list in order, write it once more
and take the digest of that takes three times as long. So it is done in blocks of some kilobytes. As far as the list has
the text that it had, it is the same in order; and its digest goes on from there.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from holdfast.base.data import mutable
from holdfast.base.system import blake2b
from holdfast.codec.fastjson import Json, encode_sorted
from holdfast.codec.order import in_order
from holdfast.codec.swift import encode_swiftly
from holdfast.codec.text import DEEP, Tree

#: Characters; a shorter list is put in order at once.
_LONG: Final = 16_000
#: So is a longer one, so that not too much is kept.
_MOST: Final = 8_000_000
#: About so many characters are a block.
_BLOCK: Final = 12_000
#: So many lists of a run are kept.
_KEPT: Final = 8
#: One that begins in another way so many times is put in order at once from then on.
_TRIES: Final = 3


@mutable
class _Block:
    """Some items of a list, one after the other."""

    count: int
    text: str  #: without brackets
    ordered: bytes  #: the same with all objects in the order of their keys
    state: Any = None  #: of the digest behind them

    @property
    def usual_count(self) -> int:
        """So many items like these are a block."""
        return max(1, self.count * _BLOCK // max(len(self.text), 1))


class Listed:
    """A list as text, in blocks."""

    __slots__ = ("_before", "_blocks", "_known", "size")

    def __init__(self, blocks: list[_Block], known: int = 0, before: str = "") -> None:
        self._blocks = blocks
        self._known = known  # blocks whose states are those of the last call, if what was before them is the same
        self._before = before
        self.size = sum(len(block.text) for block in blocks)  #: about so many characters

    @classmethod
    def of(cls, text: str, items: list[Json], *, depth: int, last: Listed | None) -> Listed:
        """The items of a list with this text; what is known of the last one is taken over."""
        blocks: list[_Block] = []
        place, begin = 1, 0
        for block in last._blocks if last is not None else ():
            # Where one item ends in both, the next one begins in both.
            end = place + len(block.text)
            if not text.startswith(block.text, place) or text[end] not in ",]":
                break
            blocks.append(block)
            place, begin = end + 1, begin + block.count
        if begin < len(items) and blocks and len(blocks[-1].text) < _BLOCK // 2:  # it grows until it is like others
            block = blocks.pop()
            place, begin = place - len(block.text) - 1, begin - block.count
        known = len(blocks)
        new: Any = in_order(items[begin:], depth)
        begin = 0
        while begin < len(new):
            count = blocks[-1].usual_count if blocks else 16
            block = _block(text, place, new[begin : begin + count])
            blocks.append(block)
            place, begin = place + len(block.text) + 1, begin + block.count
        return cls(blocks) if last is None else cls(blocks, min(known, last._known), last._before)

    @property
    def goes_on(self) -> bool:
        """Whether it begins like the last one."""
        return self._known > 0

    @property
    def ordered(self) -> str:
        """The text with all objects in the order of their keys."""
        return f"[{b','.join([block.ordered for block in self._blocks]).decode('ascii')}]"

    def digest(self, before: str, after: str) -> str:
        """The digest of that between these texts."""
        blocks, known = self._blocks, self._known if before == self._before else 0
        state: Any = blocks[known - 1].state if known else None
        for place in range(known, len(blocks)):
            state = blake2b(before.encode(), digest_size=8) if state is None else state.copy()
            if place:
                state.update(b",")
            state.update(blocks[place].ordered)
            blocks[place].state = state
        self._known, self._before = len(blocks), before
        end = state.copy()
        end.update(after.encode())
        return str(end.hexdigest())


class Recent:
    """The long lists that calls of a run were given last, by the name of the call and of the argument."""

    def __init__(self) -> None:
        self._lists: OrderedDict[tuple[str, str], Listed] = OrderedDict()
        self._misses: dict[tuple[str, str], int] = {}  # lists in a row that began unlike the one before

    def listed(self, text: str, tree: Tree, *, call: str, name: str) -> Listed | None:
        """A list with this text, if it is long."""
        place = (call, name)
        last = self._lists.pop(place, None)
        if not _LONG <= len(text) <= _MOST or tree.depth > DEEP or ("$" in text and '"$dict"' in text):
            return None
        if self._misses.get(place, 0) >= _TRIES:
            return None
        found = self._lists[place] = Listed.of(text, tree.value, depth=tree.depth, last=last)
        if last is not None:
            self._misses[place] = 0 if found.goes_on else self._misses.get(place, 0) + 1
        if len(self._lists) > _KEPT:
            self._lists.popitem(last=False)
        return found


def _block(text: str, place: int, ordered: list[Json]) -> _Block:
    """The block of these items, which begin at this place of the text."""
    found = encode_swiftly(ordered) or encode_sorted(ordered).encode("ascii")
    size = len(found) - 2  # the same characters, maybe in another order
    return _Block(len(ordered), text[place : place + size], found[1:-1])
