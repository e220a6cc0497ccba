"""Reading what people and other programs send: plain JSON, as they would write it.

A tag means something only where the annotation asks for its type. Elsewhere `{"$set": [1]}` is an object with one
member: whoever sends it must not decide which objects are made, since some take long to make.

What comes from outside is a value of plain JSON (`plain_json`) before it is stored. A coder writes it, and marks what
looks like a tag as data (`{"$dict": [["$set", [1]]]}`). So tags in stored text are our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.codec.annotations import coder_for
from holdfast.codec.coders import Coder
from holdfast.codec.fastjson import Json, decode, encode
from holdfast.codec.refusal import describe
from holdfast.codec.tags import MAX_DEPTH
from holdfast.errors import Undecodable

_DICT: Final = "$dict"
#: Tags of what JSON has but cannot write.
_NUMBERS: Final = frozenset({"$int", "$float"})


def plain_json(text: str) -> Json:
    """The value of a JSON text from outside, where nothing is a tag; ValueError if it is none, or nested too deep.

    Example: `plain_json('{"$set": [1]}')` is an object with one member.
    """
    try:
        value = decode(text)
        _check_depth(value, 0)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    return value


def read_outside(annotation: Any, text: str, *, what: str = "value") -> tuple[str, Any]:
    """The text to store and the value; `Undecodable` if it is neither what the codec writes nor plain JSON that fits.

    Example: `read_outside(date, '"2026-11-16"')` reads the date that the codec itself would write with a tag.
    """
    coder = coder_for(annotation)
    try:
        text, plain = _as_asked(text, coder)
    except ValueError as error:
        raise Undecodable(f"{what} cannot be read: {error}.") from None
    try:
        return text, coder.loads(text, what=what)
    except Undecodable as unread:
        try:
            return _read_plain(coder, plain, what)
        except Undecodable:
            raise
        except Exception:  # pydantic runs validators and hooks of foreign classes here
            raise unread from None


def _read_plain(coder: Coder[Any], plain: str, what: str) -> tuple[str, Any]:
    """Read JSON as somebody would write it who does not know the codec."""
    from pydantic import TypeAdapter, ValidationError  # seldom needed, and slow to load

    if '"$' in plain:
        try:
            return coder.roundtrip(coder.loads(plain, what=what), what=what)  # only tags that are asked for are in it
        except Undecodable:
            pass
    annotation: Any = coder.annotation
    try:
        return coder.roundtrip(TypeAdapter(annotation).validate_json(plain), what=what)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or what}: {each['msg']}" for each in error.errors()[:5]
        )
        raise Undecodable(f"{what} does not fit {describe(annotation)}: {problems}") from None


def _as_asked(text: str, coder: Coder[Any]) -> tuple[str, str]:
    """The text without tags that the annotation does not ask for; and the same where what only looked like a tag that
    it does ask for is one.
    """
    if '"$' not in text or coder.tags is None:
        return text, text
    asked = coder.tags | _NUMBERS
    try:
        tree = decode(text)
        return encode(_marked(tree, asked, 0)), encode(_marked(_unmarked(tree, 0), asked, 0))
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None


def unmarked(text: str) -> Json:
    """What was sent, of a text that a coder wrote for it: nothing is marked as data. RecursionError if it is deep."""
    return _unmarked(decode(text), 0)


def _check_depth(value: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise RecursionError
    parts: Iterable[Json] = value if type(value) is list else value.values() if type(value) is dict else ()
    for part in parts:
        _check_depth(part, depth + 1)


def _marked(tree: Json, asked: frozenset[str], depth: int) -> Json:
    """The tree with all tags but those asked for marked as data."""
    if depth > 2 * MAX_DEPTH:  # pairs are lists in lists
        raise RecursionError
    if type(tree) is list:
        return [_marked(part, asked, depth + 1) for part in tree]
    if type(tree) is not dict:
        return tree
    marked = {key: _marked(part, asked, depth + 1) for key, part in tree.items()}
    tag = next(iter(tree)) if len(tree) == 1 else ""
    if tag[:1] != "$" or tag in asked or (tag == _DICT and _is_text_keyed(tree[tag])):
        return marked
    return {_DICT: [[tag, marked[tag]]]}


def _unmarked(tree: Json, depth: int) -> Json:
    """The tree with objects in place of what was marked as data."""
    if depth > 2 * MAX_DEPTH:
        raise RecursionError
    if type(tree) is list:
        return [_unmarked(part, depth + 1) for part in tree]
    if type(tree) is not dict:
        return tree
    if len(tree) == 1 and _DICT in tree and _is_text_keyed(tree[_DICT]):
        return {key: _unmarked(part, depth + 1) for key, part in tree[_DICT]}
    return {key: _unmarked(part, depth + 1) for key, part in tree.items()}


def _is_text_keyed(body: Json) -> bool:
    return type(body) is list and all(type(pair) is list and len(pair) == 2 and type(pair[0]) is str for pair in body)
