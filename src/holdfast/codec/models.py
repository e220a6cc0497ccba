"""The coder for what pydantic knows: models, dataclasses, enums, constrained types.

pydantic may drop or convert: a subclass loses its fields, a validator changes the value. So each value is read back and
compared with the original, types included, before its text is given out; but for those that `proofs` is sure of. What
pydantic does not store by design stays unstored: private attributes and `model_fields_set`.

Loaded with the first annotation that needs it, and the only place that imports pydantic: that takes long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set
from contextlib import suppress
from enum import Enum
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from holdfast.base.secrets import SECRETS
from holdfast.codec.coders import MISSING, Coder, unrevealed
from holdfast.codec.comparison import check_same, is_same
from holdfast.codec.fastjson import Json
from holdfast.codec.foreign import BASES, is_secret, refuse
from holdfast.codec.proofs import proof_of
from holdfast.codec.refusal import Refused, describe, part, type_name
from holdfast.codec.tags import OtherTypes, pack
from holdfast.codec.text import LARGE, from_text, guard_size, has_dollars, has_long_digits, has_tags, to_text
from holdfast.errors import Undecodable

T = TypeVar("T")


class ModelCoder(Coder[T]):
    """For what pydantic knows; each value is read back and compared before its text is given out."""

    def __init__(self, annotation: object) -> None:
        super().__init__(annotation)
        adapter = TypeAdapter[Any](annotation)  # type: ignore[arg-type]
        self._to_json = adapter.serializer.to_json
        self._to_python = adapter.serializer.to_python
        self._from_json = adapter.validator.validate_json
        self._from_python = adapter.validator.validate_python
        kinds = set(_schema_kinds(adapter.core_schema))
        self._is_json = kinds <= _JSON_SCHEMAS
        self.tags = _tags_of(kinds)
        self._proof = proof_of(adapter.core_schema) if self._is_json else None
        self._may_explode = not kinds.isdisjoint({"any", "definition-ref"}) or not self._is_json

    def dumps(self, value: T, *, what: str = "value") -> str:
        text = self._proven(value)
        if text is None:
            text = self._checked(value, what)[0]
        return unrevealed(text, what) if SECRETS.is_any else text

    def roundtrip(self, value: T, *, what: str = "value") -> tuple[str, T]:
        text = self._proven(value)
        found = self._checked(value, what) if text is None else (text, self._copied(value, text, what))
        if SECRETS.is_any:
            unrevealed(found[0], what)
        return found

    def _proven(self, value: T) -> str | None:
        """The text of a value that is known to come back as it is."""
        if self._proof is None:
            return None
        try:
            text = self._written(value) if self._proof(value) else None
        except Exception:  # a lone surrogate; the other way says what is wrong
            return None
        if text is None or has_long_digits(text):
            return None
        # The other way would write DEL in other characters.
        return None if has_dollars(text) and (has_tags(text) or "\x7f" in text) else text

    def _copied(self, value: T, text: str, what: str) -> T:
        """What a proven value reads back as. To make a large one of its parts takes less than to read its text."""
        if len(text) > LARGE:
            with suppress(Exception):
                parts = self._to_python(value, mode="python", by_alias=False, round_trip=True, warnings=False)
                return self._from_python(parts, by_alias=True, by_name=True)  # type: ignore[no-any-return]
        return self.loads(text, what=what)

    def _written(self, value: T) -> str:
        data = self._to_json(value, by_alias=False, round_trip=True, warnings=False)
        try:
            return data.decode("ascii")
        except UnicodeDecodeError:  # only now: looking for other letters while writing takes as long again
            data = self._to_json(value, ensure_ascii=True, by_alias=False, round_trip=True, warnings=False)
            return data.decode("ascii")

    def _checked(self, value: T, what: str) -> tuple[str, T]:
        try:
            if self._may_explode:
                guard_size(value)
            if self._is_json:
                fast = self._roundtrip_json(value)
                if fast is not None:
                    return fast
            return self._roundtrip_tagged(value)
        except Refused as refused:
            raise refused.error(what) from None
        except RecursionError:
            raise Refused(value, "it is nested too deep, or contains itself.").error(what) from None

    def _roundtrip_json(self, value: T) -> tuple[str, T] | None:
        try:
            text = self._written(value)
            if has_dollars(text):
                return None
            back = self._from_json(text, by_alias=True, by_name=True)
        except Exception:  # validators and serialisers are foreign code; the other way says what is wrong
            return None
        return (text, back) if is_same(value, back) else None

    def _roundtrip_tagged(self, value: T) -> tuple[str, T]:
        expected = describe(self.annotation)
        try:
            tree = self._to_python(value, mode="python", by_alias=False, round_trip=True, warnings=False)
        except Exception as error:  # serialisers are foreign code
            raise Refused(value, f"writing it as {expected} failed: {type(error).__name__}: {error}") from error
        text = to_text(tree, _pack_base)
        try:
            back = self._read(text)
        except ValidationError as error:
            raise _misfit(value, error, expected) from error
        except Exception as error:  # validators are foreign code
            raise Refused(value, f"reading it back as {expected} failed: {type(error).__name__}: {error}") from error
        check_same(value, back, expected)
        return text, back

    def loads(self, text: str, *, what: str = "value") -> T:
        if self._proof is not None and has_dollars(text) and not has_tags(text):
            with suppress(Exception):  # the other way says what is wrong
                return self._from_json(text, by_alias=True, by_name=True)  # type: ignore[no-any-return]
        try:
            return self._read(text)
        except ValidationError as error:
            why = _first_error(error)
        except Exception as error:  # validators are foreign code
            why = f"{type(error).__name__}: {error}"
        raise Undecodable(f"{what} does not fit {describe(self.annotation)}, which the code asks for now: {why}")

    def _read(self, text: str) -> T:
        if self._is_json and not has_dollars(text):
            return self._from_json(text, by_alias=True, by_name=True)  # type: ignore[no-any-return]
        return self._from_python(from_text(text), by_alias=True, by_name=True)  # type: ignore[no-any-return]


class _PackBase(OtherTypes):
    """Writes subclasses as their base: what pydantic reads back is compared with the original anyway."""

    def __call__(self, value: Any, depth: int) -> Json:
        if isinstance(value, Enum):
            return pack(value.value, depth, self)
        if is_secret(type(value)) or isinstance(value, memoryview):
            refuse(value, depth)
        for base in BASES:
            if isinstance(value, base):
                return pack(base(value), depth, self)
        try:
            leaf = to_jsonable_python(value)  # URLs, addresses, patterns
        except Exception:  # runs foreign code
            refuse(value, depth)
        return pack(leaf, depth, refuse)


_pack_base: Final = _PackBase()


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = "".join(map(part, first["loc"])).removeprefix(".")
    return f"{where}: {first['msg']}" if where else first["msg"]


def _misfit(value: Any, error: ValidationError, expected: str) -> Refused:
    """What is wrong with a value, at the place that pydantic complains about as far as the value has it."""
    path: list[str] = []
    for key in error.errors(include_url=False, include_input=False)[0]["loc"]:
        inner = _held(value, key)
        if inner is not MISSING:  # the names of union members are in `loc` too
            value = inner
            path.append(part(key))
    refused = Refused(value, f"expected {expected}, found {type_name(value)} ({_first_error(error)}).")
    refused.path = path[::-1]
    return refused


def _held(value: Any, key: Any) -> Any:
    try:
        if isinstance(value, dict) or (isinstance(value, list | tuple | deque) and isinstance(key, int)):
            return value[key]
        return getattr(value, key, MISSING) if isinstance(key, str) else MISSING
    except Exception:  # properties are foreign code
        return MISSING


#: Kinds of pydantic schemas whose JSON is our format already.
_JSON_SCHEMAS: Final = frozenset(
    "any bool int float str none literal enum list nullable union tagged-union model model-fields model-field "
    "dataclass dataclass-args dataclass-field typed-dict typed-dict-field default definitions definition-ref dict "
    "function-after function-before function-wrap".split()
)
#: Kinds whose values have a tag.
_TAGGED_SCHEMAS: Final = {
    name: f"${name}" for name in "tuple set frozenset bytes datetime date time timedelta decimal uuid complex".split()
} | {"keys that are not str": "$dict"}
_SCHEMA_PARTS: Final = (
    "schema items_schema keys_schema values_schema fields choices definitions extras_schema extras_keys_schema".split()
)


def _tags_of(kinds: Set[str]) -> frozenset[str] | None:
    """The tags that a schema of these kinds asks for; None: it may ask for any."""
    if "any" in kinds or not kinds <= _JSON_SCHEMAS | _TAGGED_SCHEMAS.keys():
        return None
    return frozenset(tag for kind, tag in _TAGGED_SCHEMAS.items() if kind in kinds)


def _schema_kinds(schema: Any) -> Iterable[str]:
    """The kinds of a pydantic schema and its parts; `custom` where a class has its own way to be written."""
    stack = [schema]
    while stack:
        found = stack.pop()
        if isinstance(found, list | tuple):
            stack += found
        elif isinstance(found, dict):
            kind = found.get("type")
            if not isinstance(kind, str):  # parts by their names, one of which may be "type"
                stack += found.values()
                continue
            yield kind
            if "serialization" in found:
                yield "custom"
            if kind == "dict" and found.get("keys_schema", {"type": "any"})["type"] not in ("str", "any"):
                yield "keys that are not str"
            stack += [found[name] for name in _SCHEMA_PARTS if name in found]
