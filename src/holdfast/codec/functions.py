"""Functions: what they say they return, and what they are called with.

Arguments are written in two ways. Those of steps and effects serve people and the recognition of a call, so anything
may be among them: `encode_call`. Those of agents are read again when the run is resumed: `encode_input`.

Both write down the defaults of what was not given, because a default is part of what the call means: after a deploy it
may be another. The digest by which a call is recognised is of what was given, so that code which gets one more optional
argument, or another default, still finds its calls.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import ref

from holdfast.base.data import brisk
from holdfast.base.secrets import SECRETS
from holdfast.codec.annotations import coder_for
from holdfast.codec.coders import MISSING, Coder
from holdfast.codec.fastjson import Json, decode, digest, encode, quote
from holdfast.codec.foreign import pack_named
from holdfast.codec.hints import hints_of
from holdfast.codec.marks import Trees, canonical, large_mark
from holdfast.codec.outside import read_outside
from holdfast.codec.recent import Recent
from holdfast.codec.refusal import type_name
from holdfast.codec.text import LARGE, Tree, to_text_and_tree
from holdfast.errors import Undecodable, Unserialisable, UsageError

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
#: What stands for values that are not stored.
_BY_NAME: Final = frozenset({"$opaque", "$object", "$enum"})
_NOTHING: Final = object()
#: Defaults that stay as they are: their text is made once.
_CONSTANT: Final = frozenset({str, int, float, bool, type(None)})


@brisk
class _Default:
    """An argument that need not be given."""

    name: str
    head: str  #: its name as the beginning of a member of an object
    value: Any
    place: int  #: given by so many arguments in order and one more; past the last one: only by name
    by_name: bool


class _Plan:
    """What is known of a function before it is called."""

    __slots__ = (
        "_coders",
        "_input_defaults",
        "defaults",
        "find",
        "heads",
        "hides_first",
        "is_simple",
        "needed",
        "positional",
        "signature",
        "tails",
    )

    def __init__(self, fn: Callable[..., Any], find: Callable[[], Callable[..., Any] | None]) -> None:
        self.find = find
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
        self.defaults = [
            _Default(
                each.name,
                f"{quote(each.name)}:",
                each.default,
                len(parameters) if each.kind is each.KEYWORD_ONLY else place,
                each.kind is not each.POSITIONAL_ONLY,
            )
            for place, each in enumerate(parameters)
            if each.default is not each.empty
        ]
        #: What follows on so many arguments in order, if none is given by name and the defaults never change.
        self.tails: dict[int, str] = {}
        self._coders: dict[str, Coder[Any]] | None = None
        self._input_defaults: dict[str, str | None] = {}

    @property
    def name(self) -> str:
        return str(getattr(self.find(), "__name__", type_name(self.find())))

    @property
    def coders(self) -> Mapping[str, Coder[Any]]:
        """A coder for each parameter, made when asked: steps need none, and pydantic runs foreign code to make one."""
        if self._coders is None:
            fn = self.find()  # whoever asks calls it
            hints = hints_of(fn) if fn is not None else {}
            self._coders = {name: coder_for(hints.get(name, MISSING)) for name, _ in self.heads}
        return self._coders

    def call_tail(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The defaults of what was not given, as text for people that goes behind what was."""
        count = len(args)
        known = self.tails.get(count) if not kwargs else None
        if known is not None:
            return known
        left = [each for each in self.defaults if each.place >= count and not (each.by_name and each.name in kwargs)]
        tail = "".join(f",{each.head}{_call_text(each.value)}" for each in left)
        if not kwargs and count <= self.positional and all(type(each.value) in _CONSTANT for each in left):
            self.tails[count] = tail
        return tail

    def input_default(self, default: _Default) -> str | None:
        """A default as it is stored with the input of an agent; None if it cannot be stored."""
        name = default.name
        if name in self._input_defaults:
            return self._input_defaults[name]
        text: str | None = None
        with suppress(Exception):  # a client, a sentinel: a foreign object, which may do anything when looked at
            text = self.coders[name].dumps(default.value, what=name)
        if type(default.value) in _CONSTANT:
            self._input_defaults[name] = text
        return text


#: By the id of the function, which nothing here holds: one that nobody else has is gone, with its plan.
_PLANS: Final[dict[int, _Plan]] = {}


def _plan(fn: Callable[..., Any]) -> _Plan:
    number = id(fn)
    plan = _PLANS.get(number)
    if plan is not None and plan.find() is fn:
        return plan
    if isinstance(fn, types.MethodType):  # made anew whenever it is looked up
        return _Plan(fn, lambda: fn)
    try:
        find = ref(fn, lambda _: _PLANS.pop(number, None))
    except TypeError:  # nothing can point to it weakly
        return _Plan(fn, lambda: fn)
    plan = _PLANS[number] = _Plan(fn, find)
    return plan


def encode_call(
    signature_owner: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    recent: Recent | None = None,
) -> tuple[str, str]:
    """The arguments of a step or effect as text for people, and a digest of those given to recognise the call by.

    Never raises. What cannot be stored is named by its type alone, so that both are the same in every process; the
    digest does not depend on the order of dicts and sets either. The text is not meant to be decoded. `recent` has what
    calls were given before: it makes no difference, but for the time that it takes.
    """
    plan = _plan(signature_owner)
    try:
        text, mark = _encoded(plan, args, kwargs, recent=recent)
        if SECRETS.is_any and SECRETS.without(text) != text:
            return _encoded_without_secrets(plan, args, kwargs)
        return text, mark
    except Exception:  # arguments are foreign objects that may do anything when looked at; a hook may leave no JSON
        text = '{"$opaque":"arguments"}'
        return text, digest(text)


def _encoded(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any], *, recent: Recent | None) -> tuple[str, str]:
    trees: Trees = {}
    parts = _given_parts(plan, args, kwargs, trees=trees)
    tail = plan.call_tail(args, kwargs) if plan.defaults else ""
    if trees and recent is not None:
        _recognise(plan.name, parts, trees, recent=recent)
    mark = large_mark(parts, trees) if trees else None
    if mark is None:
        text = "".join(parts)
        mark = _mark(text)
        if not tail:
            return text, mark
    if tail:
        parts[-1:] = tail if len(parts) > 2 else tail[1:], "}"
    return "".join(parts), mark


def _encoded_without_secrets(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """With marks in their places. The digest is of what is left: with another key it is the same call."""
    given = SECRETS.without("".join(_given_parts(plan, args, kwargs, trees={})))
    tail = SECRETS.without(plan.call_tail(args, kwargs)) if plan.defaults else ""
    text = f"{given[:-1]}{tail if given != '{}' else tail[1:]}}}" if tail else given
    decode(text)
    return text, _mark(given)


def _mark(text: str) -> str:
    return digest(text if text.find("{", 1) < 0 else canonical(text))


def _given_parts(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any], *, trees: Trees) -> list[str]:
    """The text of what was given, to be put together at once: for what is large, room takes longer than filling it."""
    if not plan.is_simple or len(args) > plan.positional:
        return _bound_parts(plan, args, kwargs)
    parts: list[str] = []
    before = "{"
    for (name, head), value in zip(plan.heads, args, strict=False):
        is_short = type(value) is str and len(value) <= LARGE
        parts += before, head, quote(value) if is_short else _given_text(name, value, trees)
        before = ","
    if kwargs:
        for name, head in plan.heads[len(args) :]:
            if name in kwargs:
                parts += before, head, _given_text(name, kwargs[name], trees)
                before = ","
        if len(parts) != 3 * (len(args) + len(kwargs)):
            trees.clear()
            return _bound_parts(plan, args, kwargs)
    if not parts:
        return ["{", "}"]
    if plan.hides_first and args:
        if trees:
            trees[plan.heads[0][0]] = Tree({"$opaque": type_name(args[0])}, 1)
        parts[2] = f'{{"$opaque":{quote(type_name(args[0]))}}}'
    parts.append("}")
    return parts


def _recognise(call: str, parts: list[str], trees: Trees, *, recent: Recent) -> None:
    """Look which parts of long lists are those that the last call of this name was given."""
    for head, text in zip(parts[1::3], parts[2::3], strict=False):
        name = decode(head[:-1])
        tree = trees.get(name)
        if isinstance(tree, Tree) and type(tree.value) is list:
            listed = recent.listed(text, tree, call=call, name=name)
            if listed is not None:
                trees[name] = listed


def _bound_parts(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    try:
        if plan.signature is None:
            raise TypeError("no signature")
        bound = plan.signature.bind(*args, **kwargs)
    except TypeError:
        return ["{", f'"*":{_call_text(args)},"**":{_call_text(kwargs)}', "}"]
    members = [f"{quote(name)}:{_call_text(value)}" for name, value in bound.arguments.items()]
    return ["{", ",".join(members), "}"] if members else ["{", "}"]


def _call_text(value: Any) -> str:
    return _given_text("", value, {})


def _given_text(name: str, value: Any, trees: Trees) -> str:
    """The text of an argument. The tree of a large one is noted under its name."""
    try:
        text, tree = to_text_and_tree(value, pack_named)
    except Exception:  # too deep, cyclic, or an object that raises when looked at
        return encode({"$opaque": type_name(value)})
    if tree is not None:
        trees[name] = tree
    return text


@brisk
class Input:
    """The input of an agent: each argument by its annotation, and what the others are by default."""

    text: str
    digest: str  #: of all of it; it ignores the order of dicts
    given: str  #: digest of what was given
    defaults: tuple[str, ...] = ()  #: the arguments that were not given

    @classmethod
    def read(cls, text: str, defaults: tuple[str, ...]) -> Input:
        """An input that is stored as text."""
        mark = digest(canonical(text))
        if not defaults:
            return cls(text, mark, mark)
        found = decode(text)
        given = {name: value for name, value in found.items() if name not in defaults}
        return cls(text, mark, digest(canonical(encode(given))), defaults)


def bind_input(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Input:
    """The input of an agent, defaults included. A default that cannot be stored is left out: it is that of the code."""
    plan = _plan(fn)
    try:
        parts, left = _input_parts(plan, args, kwargs)
    except Unserialisable as error:
        said = f"{plan.name}(…): argument {error}"
        raise Unserialisable(said, path=error.path, type_name=error.type_name) from None
    given = "{" + ",".join(parts) + "}"
    mark = digest(canonical(given))
    if not left:
        return Input(given, mark, mark)
    text = "{" + ",".join([*parts, *left.values()]) + "}"
    return Input(text, digest(canonical(text)), mark, tuple(left))


def encode_input(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """The arguments of a call that are read again later, defaults included, and a digest of those given."""
    parts, left = _input_parts(_plan(fn), args, kwargs)
    mark = digest(canonical("{" + ",".join(parts) + "}"))
    return "{" + ",".join([*parts, *left.values()]) + "}", mark


def _input_parts(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """What was given, as members of an object; and the defaults that can be stored of what was not, by name."""
    if plan.signature is None:
        raise UsageError(f"{plan.name} has no signature that could be read; an agent must be a plain async function.")
    if not (kwargs or plan.defaults) and plan.is_simple and len(args) == plan.needed:
        given = zip(plan.heads, args, strict=True)  # the usual case, without binding
        return [head + plan.coders[name].dumps(value, what=name) for (name, head), value in given], {}
    try:
        bound = plan.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"{plan.name}{plan.signature} cannot be called like this: {error}.") from None
    parts: list[str] = []
    for name, value in bound.arguments.items():
        coder, kind = plan.coders[name], plan.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            items = [coder.dumps(item, what=f"{name}[{index}]") for index, item in enumerate(value)]
            stored = f"[{','.join(items)}]"
        elif kind is inspect.Parameter.VAR_KEYWORD:
            pairs = [f"{quote(key)}:{coder.dumps(item, what=key)}" for key, item in value.items()]
            stored = "{" + ",".join(pairs) + "}"
        else:
            stored = coder.dumps(value, what=name)
        parts.append(f"{quote(name)}:{stored}")
    left: dict[str, str] = {}
    for each in plan.defaults:
        if each.name not in bound.arguments and (text := plan.input_default(each)) is not None:
            left[each.name] = each.head + text
    return parts, left


def defaults_of(fn: Callable[..., Any]) -> dict[str, str]:
    """The defaults of an agent that can be stored, each as JSON text: for whoever starts a run without its code."""
    plan = _plan(fn)
    found = {each.name: plan.input_default(each) for each in plan.defaults}
    return {name: text for name, text in found.items() if text is not None}


def with_defaults_of(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as they are given, and what was not given as a recorded call had it by default.

    What is recorded by the name of its type alone is left to the code. Raises `Undecodable` if something else cannot be
    read.
    """
    plan, found = _plan(fn), decode(text)
    if plan.signature is None or type(found) is not dict:
        return args, kwargs
    bound = plan.signature.bind(*args, **kwargs)
    for each in plan.defaults:
        stored = found.get(each.name, _NOTHING)
        if each.name not in bound.arguments and stored is not _NOTHING and not _is_named(stored):
            bound.arguments[each.name] = _read_argument(plan.coders[each.name], each.name, stored)
    return bound.args, bound.kwargs


def _is_named(stored: Json) -> bool:
    return type(stored) is dict and len(stored) == 1 and next(iter(stored)) in _BY_NAME


def first_parameter(fn: Callable[..., Any]) -> str | None:
    """The name of the argument that a trigger gives an agent."""
    plan = _plan(fn)
    return next(iter(plan.signature.parameters), None) if plan.signature is not None else None


def first_annotation(fn: Callable[..., Any]) -> object:
    """What that argument is annotated with; `MISSING` if it is not."""
    name = first_parameter(fn)
    return MISSING if name is None else hints_of(fn).get(name, MISSING)


def input_of(name: str, text: str, defaults: Mapping[str, str]) -> Input:
    """An input of one argument, given as JSON text, and of defaults: for whoever does not have the agent's code."""
    left = {other: each for other, each in defaults.items() if other != name}
    members = [f"{quote(other)}:{each}" for other, each in {name: text, **left}.items()]
    return Input.read("{" + ",".join(members) + "}", tuple(left))


def decode_input(
    fn: Callable[..., Any], text: str, defaults: Collection[str] = (), *, outside: str | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments to call an agent with, each read by the annotation that it has now.

    `defaults`: those that nobody gave. One of them that the agent does not take any more is not missed. `outside`: the
    one that came from outside, as plain JSON.
    """
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
        if name == outside:
            read: Callable[[Json], Any] = partial(_read_outside, plan.coders[name].annotation, name)
        elif plan.is_simple and len(args) == position and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            args.append(_read_argument(plan.coders[name], name, stored))
            continue
        else:
            read = partial(_read_argument, plan.coders[name], name)
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args += [read(item) for item in _expect(list, stored, name)]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            kwargs |= {key: read(item) for key, item in _expect(dict, stored, name).items()}
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or len(args) < position:
            kwargs[name] = read(stored)
        else:
            args.append(read(stored))
    if found.keys() - set(defaults):
        unknown = ", ".join(sorted(found.keys() - set(defaults)))
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
    return coder.loads(_stored_text(what, stored), what=what)


def _read_outside(annotation: object, what: str, stored: Json) -> Any:
    return read_outside(annotation, _stored_text(what, stored), what=what)[1]


def _stored_text(what: str, stored: Json) -> str:
    try:
        return encode(stored)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"{what} cannot be read: {error}.") from None


def _expect(kind: type, stored: Json, what: str) -> Any:
    if type(stored) is not kind:
        raise Undecodable(f"{what} cannot be read: expected {kind.__name__}, found {type_name(stored)}.")
    return stored
