"""Types of other modules that the format knows, and does not load the modules for.

A value of such a type, or an annotation with it, exists only where its module is loaded already: what is not there
needs no look. Only reading a stored value loads one.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final


class Later:
    """A type by its name."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def is_type(self, other: object) -> bool:
        """Whether something is this very type."""
        module = sys.modules.get(self._module)
        return module is not None and getattr(module, self._name, None) is other

    def load(self) -> Any:
        """The type itself."""
        return getattr(import_module(self._module), self._name)


def typing_extensions() -> Any:
    """The module, which has more of `typing` than old Pythons have."""
    return import_module("typing_extensions")


DECIMAL: Final = Later("decimal", "Decimal")
FRACTION: Final = Later("fractions", "Fraction")
UUID: Final = Later("uuid", "UUID")
PATH: Final = Later("pathlib", "Path")
#: What the values of `PATH` are.
REAL_PATH: Final = Later("pathlib", "WindowsPath" if os.name == "nt" else "PosixPath")
ZONE_INFO: Final = Later("zoneinfo", "ZoneInfo")
TYPE_ALIAS: Final = Later("typing_extensions", "TypeAliasType")
