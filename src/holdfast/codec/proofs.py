"""Values that are known to come back as they were, without reading them back.

pydantic may drop or convert, so `models` reads back and compares what it writes. That takes several times as long as
writing. Most values do not need it: where the schema has nothing but plain fields (no validator, no constraint, no
alias, no hook, no code of the user's), and each value has exactly the type that is declared, what is read is what was
written. Here a schema is compiled to a check of that; whatever is not listed makes it None, or its answer False, which
means: not sure, read it back.

Values are looked at in columns, all values of a field at once, which takes no step of the interpreter for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, Flag
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final

from holdfast.codec.swift import are_plain
from holdfast.codec.text import plain_tree

Schema = Mapping[str, Any]
#: Whether all values of a column come back as they are; the number is how deep they are.
Check = Callable[[Sequence[Any], int], bool]

#: Deeper values, and more parts than this on one level, are read back.
_DEEPEST: Final = 100
_MOST: Final = 1_000_000

_ATOMS: Final[Mapping[str, type]] = {"str": str, "int": int, "bool": bool, "float": float, "none": type(None)}
#: What a schema may say of itself. Anything else may have a meaning that is not known here.
_KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_ATOMS, ""),
    "any": "",
    "literal": "expected",
    "enum": "cls members sub_type missing",
    "nullable": "schema",
    "default": "schema default default_factory default_factory_takes_data",
    "list": "items_schema",
    "dict": "keys_schema values_schema",
    "union": "choices",
    "tagged-union": "choices discriminator strict from_attributes",
    "model": "cls config custom_init root_model schema generic_origin frozen",
    "model-fields": "fields computed_fields model_name",
    "model-field": "schema frozen",
    "dataclass": "cls config fields frozen post_init schema slots generic_origin",
    "dataclass-args": "fields computed_fields dataclass_name collect_init_only",
    "dataclass-field": "name schema init kw_only frozen",
    "typed-dict": "cls cls_name config fields computed_fields total extra_behavior",
    "typed-dict-field": "schema required",
    "definitions": "schema definitions",
    "definition-ref": "schema_ref",
}
_CONFIG: Final = {"title"}
#: These must be as they are by default.
_OFF: Final = ("custom_init", "root_model", "post_init", "computed_fields", "collect_init_only", "missing", "strict")


class _Unsure(Exception):
    pass


def proof_of(schema: Schema) -> Callable[[Any], bool] | None:
    """A check whether a value of a schema comes back as it was; None if the schema alone says that it may not.

    False means: not sure. What a text looks like where it has tags is for the caller to see.
    """
    try:
        check = _Compiler().compile(schema)
    except (_Unsure, LookupError, TypeError, AttributeError):  # a schema that is made in another way
        return None

    def prove(value: Any) -> bool:
        try:
            return check([value], 0)
        except (_Unsure, LookupError, AttributeError):  # a field that is not set
            return False

    return prove


class _Compiler:
    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def compile(self, schema: Schema) -> Check:
        kind = schema["type"]
        if kind not in _KEYS or not schema.keys() <= {"type", "ref", "metadata", *_KEYS[kind].split()}:
            raise _Unsure
        if any(schema.get(name) for name in _OFF) or not schema.get("config", {}).keys() <= _CONFIG:
            raise _Unsure
        check = self._made(kind, schema)
        if "ref" in schema:
            self._checks[schema["ref"]] = check
        return check

    def _made(self, kind: str, schema: Schema) -> Check:
        if kind in _ATOMS:
            return _floats if kind == "float" else _exactly(_ATOMS[kind])
        match kind:
            case "any":
                return lambda column, depth: plain_tree(list(column)) is not None
            case "literal":
                return _literal(schema["expected"])
            case "enum":
                return _enum(schema["cls"], schema["members"])
            case "default" | "model-field" | "typed-dict-field" | "dataclass-field":
                if not schema.get("init", True):
                    raise _Unsure
                return self.compile(schema["schema"])
            case "nullable":
                return _nullable(self.compile(schema["schema"]))
            case "list":
                return _items(list, self.compile(schema.get("items_schema", {"type": "any"})))
            case "dict":
                if schema.get("keys_schema") != {"type": "str"}:
                    raise _Unsure
                return _pairs(self.compile(schema.get("values_schema", {"type": "any"})))
            case "union":
                return _union(schema["choices"])
            case "tagged-union":
                return self._tagged(schema["choices"], schema["discriminator"])
            case "model":
                return self._model(schema)
            case "dataclass":
                return self._dataclass(schema)
            case "typed-dict":
                return self._typed_dict(schema)
            case "definitions":
                return self._definitions(schema)
            case "definition-ref":
                return self._later(schema["schema_ref"])
        raise _Unsure

    def _definitions(self, schema: Schema) -> Check:
        for definition in schema["definitions"]:
            self.compile(definition)
        return self.compile(schema["schema"])

    def _later(self, ref: str) -> Check:
        # A definition may name itself, or one that follows. One that was not compiled raises LookupError when asked.
        checks = self._checks
        return lambda column, depth: not column or (depth < _DEEPEST and checks[ref](column, depth))

    def _fields(self, schema: Schema, kind: str) -> dict[str, Check]:
        inner = schema["schema"]
        if inner["type"] != kind:
            raise _Unsure
        if not inner.keys() <= {"type", *_KEYS[kind].split()} or any(inner.get(name) for name in _OFF):
            raise _Unsure
        fields = inner["fields"]
        if isinstance(fields, Mapping):
            return {name: self.compile(field) for name, field in fields.items()}
        return {field["name"]: self.compile(field) for field in fields}

    def _model(self, schema: Schema) -> Check:
        return _held(schema["cls"], self._fields(schema, "model-fields"))

    def _dataclass(self, schema: Schema) -> Check:
        cls, fields = schema["cls"], self._fields(schema, "dataclass-args")
        if [*fields] != [*schema["fields"]]:
            raise _Unsure
        return _slots(cls, fields) if schema.get("slots") else _held(cls, fields)

    def _typed_dict(self, schema: Schema) -> Check:
        total = schema.get("total", True)
        fields = {name: self.compile(field) for name, field in schema["fields"].items()}
        required = {name for name, field in schema["fields"].items() if field.get("required", total)}
        places = {name: place for place, name in enumerate(fields)}

        def check(column: Sequence[Any], depth: int) -> bool:
            if not {dict}.issuperset(map(type, column)):
                return False
            for keys in set(map(tuple, column)):
                order = [places[key] for key in keys]  # another one raises LookupError
                if not {str}.issuperset(map(type, keys)) or order != sorted(order) or not required.issubset(keys):
                    return False
            return all(
                inner([each[name] for each in column if name in each], depth + 1) for name, inner in fields.items()
            )

        return check

    def _tagged(self, choices: Mapping[Any, Schema], discriminator: Any) -> Check:
        if type(discriminator) is not str:
            raise _Unsure
        checks = {tag: self.compile(choice) for tag, choice in choices.items()}
        if not {str}.issuperset(map(type, checks)):
            raise _Unsure
        tag_of = attrgetter(discriminator)

        def check(column: Sequence[Any], depth: int) -> bool:
            if not all(hasattr(kind, "__pydantic_fields__") for kind in set(map(type, column))):
                return False
            tags = list(map(tag_of, column))
            return {str}.issuperset(map(type, tags)) and all(
                checks[tag]([value for value, its in zip(column, tags, strict=True) if its == tag], depth)
                for tag in set(tags)
            )

        return check


def _flat(containers: Collection[Collection[Any]]) -> list[Any]:
    if sum(map(len, containers)) > _MOST:
        raise _Unsure
    return list(chain.from_iterable(containers))


def _exactly(kind: type) -> Check:
    kinds = frozenset({kind})
    return lambda column, depth: kinds.issuperset(map(type, column))


def _floats(column: Sequence[Any], depth: int) -> bool:
    return {float}.issuperset(map(type, column)) and are_plain(column)


def _literal(expected: Sequence[Any]) -> Check:
    options, kinds = frozenset(expected), frozenset({str})
    if not kinds.issuperset(map(type, expected)):
        raise _Unsure
    return lambda column, depth: kinds.issuperset(map(type, column)) and options.issuperset(column)


def _enum(cls: type[Enum], members: Sequence[Enum]) -> Check:
    kinds = set(map(type, (member.value for member in members)))
    if issubclass(cls, Flag) or kinds not in ({str}, {int}):
        raise _Unsure
    return _exactly(cls)


def _nullable(inner: Check) -> Check:
    return lambda column, depth: inner([value for value in column if value is not None], depth)


def _union(choices: Sequence[Any]) -> Check:
    """Of atoms only: JSON tells them apart."""
    if any(type(choice) is not dict or choice.keys() != {"type"} for choice in choices):
        raise _Unsure
    kinds = frozenset(_ATOMS[choice["type"]] for choice in choices)

    def check(column: Sequence[Any], depth: int) -> bool:
        return kinds.issuperset(map(type, column)) and are_plain([each for each in column if type(each) is float])

    return check


def _items(kind: type, inner: Check) -> Check:
    kinds = frozenset({kind})

    def check(column: Sequence[Any], depth: int) -> bool:
        return kinds.issuperset(map(type, column)) and inner(_flat(column), depth + 1)

    return check


def _pairs(inner: Check) -> Check:
    def check(column: Sequence[Any], depth: int) -> bool:
        if not {dict}.issuperset(map(type, column)) or not {str}.issuperset(map(type, _flat(column))):
            return False
        return inner(_flat([each.values() for each in column]), depth + 1)

    return check


def _held(cls: type, fields: Mapping[str, Check]) -> Check:
    """Objects that have their fields, and nothing else, in a dict."""
    kinds, dict_of, sizes = frozenset({cls}), attrgetter("__dict__"), {len(fields)}
    getters = [(itemgetter(name), inner) for name, inner in fields.items()]

    def check(column: Sequence[Any], depth: int) -> bool:
        if not kinds.issuperset(map(type, column)):
            return False
        held = list(map(dict_of, column))
        return sizes.issuperset(map(len, held)) and all(
            inner(list(map(get, held)), depth + 1) for get, inner in getters
        )

    return check


def _slots(cls: type, fields: Mapping[str, Check]) -> Check:
    kinds = frozenset({cls})
    getters = [(attrgetter(name), inner) for name, inner in fields.items()]

    def check(column: Sequence[Any], depth: int) -> bool:
        return kinds.issuperset(map(type, column)) and all(
            inner(list(map(get, column)), depth + 1) for get, inner in getters
        )

    return check
