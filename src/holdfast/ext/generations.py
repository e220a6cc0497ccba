"""Generations: documents that are left behind as a whole, while others may still read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.app.extensions import Extension

_AGAIN: Final = 3


async def remove_before(documents: Extension, generation: int, *spaces: Callable[[int], str]) -> None:
    """Remove what the generations before one have left: the last few, since a remover may have been killed.

    Example: `await remove_before(documents, 3, lambda generation: f"{generation}:ada")`
    """
    for number in range(max(0, generation - _AGAIN), generation):
        for space in spaces:
            await documents.remove(space(number))
