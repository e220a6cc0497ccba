"""Functions: what they say they return, and what they are called with.

Arguments are written in two ways. Those of steps and effects serve people and the recognition of a call, so anything
may be among them: `encode_call`. Those of agents are read again when the run is resumed: `encode_input`.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final

from holdfast.codec.annotations import coder_for
from holdfast.codec.coders import MISSING, Coder
from holdfast.codec.fastjson import Json, decode, digest, encode, encode_sorted, make_decode, quote
from holdfast.codec.foreign import pack_named
from holdfast.codec.refusal import type_name
from holdfast.codec.text import to_text
from holdfast.errors import Undecodable, UsageError

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def result_annotation(fn: Callable[..., Any]) -> object:
    """What a function says it returns, `MISSING` if it does not say or names something that does not exist."""
    return _hints(fn).get("return", MISSING)


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
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


class _Plan:
    """What is known of a function before it is called."""

    __slots__ = ("_coders", "fn", "heads", "hides_first", "is_simple", "needed", "positional", "signature")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.signature: inspect.Signature | None = None
        with suppress(TypeError, ValueError):  # some functions written in C
            self.signature = inspect.signature(fn)
        parameters = list(self.signature.parameters.values()) if self.signature is not None else []
        #: Whether all arguments can be given by name.
        self.is_simple = self.signature is not None and all(parameter.kind in _NAMED for parameter in parameters)
        self.positional = sum(parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        self.heads = [(parameter.name, quote(parameter.name) + ":") for parameter in parameters]
        required = [each for each in parameters if each.default is inspect.Parameter.empty]
        #: Can it be called with as many arguments in order, and nothing else? None: something must be given by name.
        self.needed = None if any(each.kind is each.KEYWORD_ONLY for each in required) else len(required)
        self.hides_first = bool(parameters) and parameters[0].name in ("self", "cls")
        self._coders: dict[str, Coder[Any]] | None = None

    @property
    def name(self) -> str:
        return str(getattr(self.fn, "__name__", type_name(self.fn)))

    @property
    def coders(self) -> Mapping[str, Coder[Any]]:
        """A coder for each parameter, made when asked: steps need none, and pydantic runs foreign code to make one."""
        if self._coders is None:
            hints = _hints(self.fn)
            self._coders = {name: coder_for(hints.get(name, MISSING)) for name, _ in self.heads}
        return self._coders


@lru_cache(2048)
def _cached_plan(fn: Callable[..., Any]) -> _Plan:
    return _Plan(fn)


def _plan(fn: Callable[..., Any]) -> _Plan:
    try:
        return _cached_plan(fn)
    except TypeError:  # a callable that is not hashable
        return _Plan(fn)


def encode_call(signature_owner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """The arguments of a step or effect as text for people, and a digest to recognise the call by.

    Never raises. What cannot be stored is named by its type alone, so that both are the same in every process; the
    digest does not depend on the order of dicts and sets either. The text is not meant to be decoded.
    """
    plan = _plan(signature_owner)
    parts: list[str] = []
    try:
        if not plan.is_simple or len(args) > plan.positional:
            parts = _bound_parts(plan, args, kwargs)
        else:
            for (_, head), value in zip(plan.heads, args, strict=False):
                parts.append(head + (quote(value) if type(value) is str else _call_text(value)))
            if kwargs:
                parts += [head + _call_text(kwargs[name]) for name, head in plan.heads[len(args) :] if name in kwargs]
                if len(parts) != len(args) + len(kwargs):
                    parts = _bound_parts(plan, args, kwargs)
            if plan.hides_first and args:
                parts[0] = f'{plan.heads[0][1]}{{"$opaque":{quote(type_name(args[0]))}}}'
        text = "{" + ",".join(parts) + "}"
        return text, digest(text if text.count("{") == 1 else _canonical(text))
    except Exception:  # arguments are foreign objects that may do anything when looked at
        text = '{"$opaque":"arguments"}'
        return text, digest(text)


def _bound_parts(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    try:
        if plan.signature is None:
            raise TypeError("no signature")
        bound = plan.signature.bind(*args, **kwargs)
    except TypeError:
        return [f'"*":{_call_text(args)}', f'"**":{_call_text(kwargs)}']
    return [f"{quote(name)}:{_call_text(value)}" for name, value in bound.arguments.items()]


def _call_text(value: Any) -> str:
    try:
        return to_text(value, pack_named)
    except Exception:  # too deep, cyclic, or an object that raises when looked at
        return encode({"$opaque": type_name(value)})


def _canonical(text: str) -> str:
    """The text with all dicts in the order of their keys."""
    return encode_sorted(_decode_in_order(text) if '"$dict"' in text else decode(text))


def _sort_pairs(found: dict[str, Any]) -> dict[str, Any]:
    pairs = found.get("$dict")
    return {"$dict": sorted(pairs, key=encode_sorted)} if len(found) == 1 and type(pairs) is list else found


_decode_in_order = make_decode(_sort_pairs)


def encode_input(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """The input of an agent as text, each argument by its annotation, and a digest that ignores the order of dicts.

    Defaults are not written, so that a new default reaches runs that did not give the argument.
    """
    plan = _plan(fn)
    if plan.signature is None:
        raise UsageError(f"{plan.name} has no signature that could be read; an agent must be a plain async function.")
    try:
        bound = plan.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"{plan.name}{plan.signature} cannot be called like this: {error}.") from None
    parts: list[str] = []
    for name, value in bound.arguments.items():
        coder = plan.coders[name]
        kind = plan.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            items = [coder.dumps(item, what=f"{name}[{index}]") for index, item in enumerate(value)]
            stored = f"[{','.join(items)}]"
        elif kind is inspect.Parameter.VAR_KEYWORD:
            pairs = [f"{quote(key)}:{coder.dumps(item, what=key)}" for key, item in value.items()]
            stored = "{" + ",".join(pairs) + "}"
        else:
            stored = coder.dumps(value, what=name)
        parts.append(f"{quote(name)}:{stored}")
    text = "{" + ",".join(parts) + "}"
    return text, digest(_canonical(text))


def first_parameter(fn: Callable[..., Any]) -> str | None:
    """The name of the argument that a trigger gives an agent."""
    plan = _plan(fn)
    return next(iter(plan.signature.parameters), None) if plan.signature is not None else None


def input_of(name: str, text: str) -> tuple[str, str]:
    """An input of one argument, given as JSON text, and its digest: for whoever does not have the agent's code."""
    whole = "{" + f"{quote(name)}:{text}" + "}"
    return whole, digest(_canonical(whole))


def decode_input(fn: Callable[..., Any], text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments to call an agent with, each read by the annotation that it has now."""
    plan = _plan(fn)
    try:
        found = decode(text)
        if type(found) is not dict or plan.signature is None:
            raise ValueError("not an object")
    except (ValueError, TypeError, RecursionError) as error:
        raise Undecodable(f"The stored input of {plan.name} is damaged or foreign ({error}).") from None
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for position, (name, parameter) in enumerate(plan.signature.parameters.items()):
        if name not in found:
            continue
        stored = found.pop(name)
        if plan.is_simple and len(args) == position and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            args.append(_read_argument(plan.coders[name], name, stored))
            continue
        read = partial(_read_argument, plan.coders[name], name)
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args += [read(item) for item in _expect(list, stored, name)]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            kwargs |= {key: read(item) for key, item in _expect(dict, stored, name).items()}
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or len(args) < position:
            kwargs[name] = read(stored)
        else:
            args.append(read(stored))
    if found:
        unknown = ", ".join(sorted(found))
        raise Undecodable(
            f"The stored input of {plan.name} has arguments that {plan.name}{plan.signature} does not take: {unknown}."
        )
    if plan.is_simple and plan.needed is not None and len(args) >= plan.needed and not kwargs:
        return tuple(args), kwargs
    try:
        plan.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise Undecodable(f"The stored input does not fit {plan.name}{plan.signature}: {error}.") from None
    return tuple(args), kwargs


def _read_argument(coder: Coder[Any], what: str, stored: Json) -> Any:
    try:
        text = encode(stored)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"{what} cannot be read: {error}.") from None
    return coder.loads(text, what=what)


def _expect(kind: type, stored: Json, what: str) -> Any:
    if type(stored) is not kind:
        raise Undecodable(f"{what} cannot be read: expected {kind.__name__}, found {type_name(stored)}.")
    return stored
