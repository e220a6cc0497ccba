"""What functions say of their arguments and results."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.codec.coders import MISSING


def result_annotation(fn: Callable[..., Any]) -> object:
    """What a function says it returns, `MISSING` if it does not say or names something that does not exist."""
    return hints_of(fn).get("return", MISSING)


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function that can be resolved now."""
    while isinstance(fn, partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if not inspect.isroutine(fn) and not isinstance(fn, type):
        fn = type(fn).__call__
    # Evaluates annotations, which may raise anything; one name that does not exist must not cost the others.
    with suppress(Exception):
        return typing.get_type_hints(fn, include_extras=True)
    resolved: dict[str, Any] = {}
    try:
        local_names: Mapping[str, Any] = inspect.getclosurevars(fn).nonlocals
    except (TypeError, ValueError):
        local_names = {}
    for name, hint in getattr(fn, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: hint})
        with suppress(Exception):
            resolved |= typing.get_type_hints(holder, getattr(fn, "__globals__", {}), dict(local_names), True)
    return resolved
