"""The kinds of definitions that extensions have: `ext` lists the extensions, `ext:memory` the spaces of one."""

from __future__ import annotations

from typing import Final

SEPARATOR: Final = ":"
#: More than there can be.
ALL: Final = 2**31 - 1


def kind_of(*path: str) -> str:
    """`kind_of("memory", "ada")` is the kind of the documents in that space."""
    return SEPARATOR.join(("ext", *path))
