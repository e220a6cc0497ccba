"""JSON schemas of types, and whether a value fits one: what is sent to a run is checked at the door.

Whoever sends a signal or answers a question may not have the agent's code. So the agent's process stores the schema of
the type, and everybody else checks against that, without pydantic and without the type.

The value may be plain JSON, or the text of a coder: a tag is read as what pydantic writes for that type, so
`{"$datetime": "2026-01-01T00:00:00"}` fits where a string in the format `date-time` does, `{"$tuple": [1]}` where a
list does, and `{"$decimal": "1E+5"}` where a number does.

Three things differ from the letter of JSON Schema, because the codec and pydantic do:
- 1.0 is not an integer;
- `oneOf` is `anyOf`: pydantic writes it for unions that a tag decides, where another member may fit as well;
- `x-other-names`, an own keyword of a property, has the names that it may come under instead: aliases, and the
  attribute's own name, which is what coders write.

The check is a courtesy that says early and readably what is wrong. What it cannot decide it lets pass: the type itself
has the last word when the run reads the value. It never raises, and takes time in proportion to the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from holdfast.codec.fastjson import Json, decode, encode
from holdfast.codec.formats import FORMATS, OTHER_NAMES
from holdfast.codec.outside import unmarked
from holdfast.codec.patterns import matches
from holdfast.codec.plain import key_text, plain_of
from holdfast.codec.refusal import part, type_name
from holdfast.codec.tags import MAX_DEPTH
from holdfast.errors import UsageError

#: Problems that are listed before the rest is only counted.
_MOST: Final = 20
#: Characters of a value, a key or a list of options that are shown.
_WIDTH: Final = 60

#: What the parts of a schema that make no sense raise: they are ignored, as are unknown keywords.
_SENSELESS: Final = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


def schema_of(annotation: object) -> dict[str, Any] | None:
    """The JSON schema of a type; None if it has none, and nothing can be checked.

    Example:
        schema_of(list[int])   # {"type": "array", "items": {"type": "integer"}}
    """
    # Not at the top, for the reason that `annotations` gives.
    from holdfast.codec.model_schema import json_schema

    try:
        schema = json_schema(annotation)
        encode(schema)
    except Exception:  # pydantic runs hooks of foreign classes here
        return None
    return schema


def problems(schema: Mapping[str, Any] | None, value: Json) -> list[str]:
    """What is wrong with a value, a line for each problem, with its path; empty if it fits the schema.

    Example:
        problems({"type": "object", "properties": {"amount": {"type": "integer"}}}, {"amount": "many"})
        # ["amount: expected an integer, got 'many'"]
    """
    if schema is None:
        return []
    try:
        plain = plain_of(value)
    except RecursionError:
        return [f"nested deeper than {MAX_DEPTH} levels"]
    found = _Check(schema).of(schema, plain)
    lines = list(dict.fromkeys(map(str, found[:_MOST])))
    return lines if len(found) <= _MOST else [*lines, f"and {len(found) - _MOST} more"]


def problems_outside(schema: Mapping[str, Any] | None, text: str) -> list[str]:
    """The same of the text that a coder wrote for a value from outside. What looks like a tag is one if the type asks
    for it, as `read_outside` has it.
    """
    found = problems(schema, decode(text)) if schema is not None else []
    if not found or '"$dict"' not in text:
        return found
    try:
        return found if problems(schema, unmarked(text)) else []
    except RecursionError:
        return found


def refuse_misfit(schema: Mapping[str, Any] | None, value: str, what: str) -> None:
    """Refuse a value of the wrong shape to its sender."""
    found = problems_outside(schema, value)
    if found:
        raise UsageError(f"The value does not fit {what}: {'; '.join(found[:5])}.")


# values


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _identity(value: Json) -> object:
    """Something that is equal and hashable where JSON values are equal: 1 is 1.0, but not true."""
    if isinstance(value, list):
        return tuple(map(_identity, value))
    if isinstance(value, dict):
        return frozenset((key, _identity(item)) for key, item in value.items())
    return (isinstance(value, bool), value)


def _shown(value: Json) -> str:
    if value is None or isinstance(value, bool):
        return encode(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= _WIDTH else f"{value[:_WIDTH]!r}…"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int):
        return str(value) if value.bit_length() < 200 else "a very long integer"
    return str(value) if isinstance(value, float | Decimal) else type_name(value)


# the check


class _Problem(NamedTuple):
    text: str
    #: What was expected in place of the whole value, where that is the problem.
    expected: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "".join(self.path).removeprefix(".")
        return f"{where}: {self.text}" if where else self.text

    def within(self, key: str | int) -> _Problem:
        shown = part(key if isinstance(key, int) or len(key) <= _WIDTH else f"{key[:_WIDTH]}…")
        return self._replace(path=(shown, *self.path))


_Problems = list[_Problem]


def _misfit(expected: str, value: Json) -> _Problems:
    return [_Problem(f"expected {expected}, got {_shown(value)}", expected)]


def _options(values: Iterable[Json]) -> str:
    """Values as a choice: 'a' or 'b'; at least one is shown, and not many."""
    shown: list[str] = []
    for value in values:
        if sum(map(len, shown)) > 3 * _WIDTH:
            return f"{', '.join(shown)} or others"
        shown.append(encode(value) if isinstance(value, list) else _shown(value))
    return " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


class _Check:
    """One value against one schema. A part is checked once against each definition, however many ways lead to it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        #: by definition and id of the value, which is held so that its id stays its own
        self._known: dict[tuple[str, int], tuple[Json, _Problems]] = {}

    def of(self, schema: Any, value: Json) -> _Problems:
        if schema is False:
            return [_Problem("must not be there")]
        if not isinstance(schema, dict) or (value is None and schema.get("nullable") is True):
            return []
        found: _Problems = []
        for keyword, rule in _RULES.items():
            if keyword in schema:
                try:
                    found += rule(self, schema[keyword], schema, value)
                except _SENSELESS:
                    continue
                if found and keyword == "type":
                    break
        return found

    def ref(self, ref: str, schema: Json, value: Json) -> _Problems:
        if (ref, id(value)) not in self._known:
            # Until it is known, a definition that leads back to itself with the same value has nothing to add.
            self._known[ref, id(value)] = (value, [])
            self._known[ref, id(value)] = (value, self.of(self._defined(ref), value))
        return self._known[ref, id(value)][1]

    def _defined(self, ref: str) -> Any:
        if not ref.startswith("#"):
            raise LookupError
        found: Any = self._root
        for step in filter(None, ref[1:].split("/")):
            found = found[unquote(step).replace("~1", "/").replace("~0", "~")]
        return found

    def any_of(self, options: Json, schema: Json, value: Json) -> _Problems:
        failed: list[_Problems] = []
        for option in options:
            found = self.of(option, value)
            if not found:
                return []
            failed.append(found)
        inside = [found for found in failed if len(found) > 1 or not found[0].expected or found[0].path]
        if inside:  # the value is of the right kind for these, and one of them has most to say about it
            return min(inside, key=lambda found: (len(found), -max(len(each.path) for each in found)))
        expected = list(dict.fromkeys(found[0].expected for found in failed))
        return _misfit(" or ".join(expected), value) if expected else []

    def one_of(self, options: Json, schema: Json, value: Json) -> _Problems:
        rule = schema.get("discriminator")
        if not isinstance(value, dict) or not isinstance(rule, dict) or "mapping" not in rule:
            return self.any_of(options, schema, value)
        name, mapping = rule["propertyName"], rule["mapping"]
        if name not in value:  # it may be there under another name
            found = self.any_of(options, schema, value)
            return [_Problem("missing").within(name)] if found else []
        tag = value[name]
        key = tag if isinstance(tag, str) else key_text(tag)
        if key not in mapping:
            return [each.within(name) for each in _misfit(_options(mapping), tag)]
        return self.ref(mapping[key], schema, value)

    def all_of(self, parts: Json, schema: Json, value: Json) -> _Problems:
        return [problem for each in parts for problem in self.of(each, value)]

    def fields(self, properties: Json, schema: Json, value: Json) -> _Problems:
        found: _Problems = []
        if isinstance(value, dict):
            for name, inner in properties.items():
                for given in _names(name, inner):
                    if given in value:
                        found += [problem.within(given) for problem in self.of(inner, value[given])]
                        break
        return found

    def required(self, names: Json, schema: Json, value: Json) -> _Problems:
        if not isinstance(value, dict):
            return []
        properties = schema.get("properties", {})
        missing = [name for name in names if not any(n in value for n in _names(name, properties.get(name)))]
        return [_Problem("missing").within(name) for name in missing]

    def others(self, inner: Json, schema: Json, value: Json) -> _Problems:
        if not isinstance(value, dict) or inner is True:
            return []
        properties = schema.get("properties", {})
        named = {each for name, own in properties.items() for each in _names(name, own)}
        others = [name for name in value if name not in named and not self._has_pattern(schema, name)]
        if inner is False:
            known = f"; known are {', '.join(map(_shown, properties))}" if 0 < len(properties) <= 10 else ""
            return [_Problem(f"unknown{known}").within(name) for name in others]
        return [problem.within(name) for name in others for problem in self.of(inner, value[name])]

    def _has_pattern(self, schema: Json, name: str) -> bool:
        return any(matches(pattern, name) is not False for pattern in schema.get("patternProperties", ()))

    def patterned(self, patterns: Json, schema: Json, value: Json) -> _Problems:
        if not isinstance(value, dict):
            return []
        return [
            problem.within(name)
            for pattern, inner in patterns.items()
            for name in value
            if matches(pattern, name)
            for problem in self.of(inner, value[name])
        ]

    def names(self, inner: Json, schema: Json, value: Json) -> _Problems:
        found: _Problems = []
        for name in value if isinstance(value, dict) else ():
            wrong: _Problems = []
            # The schema is of the key's type, which may be a number: its text is what JSON has for it.
            for key in (name, *_key_values(name)):
                wrong = self.of(inner, key)
                if not wrong:
                    break
            found += [_Problem(f"is a wrong name: {problem.text}").within(name) for problem in wrong]
        return found

    def first_items(self, schemas: Json, schema: Json, value: Json) -> _Problems:
        return self._each(0, value if isinstance(value, list) else [], schemas)

    def items(self, inner: Json, schema: Json, value: Json) -> _Problems:
        if not isinstance(value, list):
            return []
        first = len(schema.get("prefixItems", ()))
        rest = value[first:]
        return self._each(first, rest, [inner] * len(rest))

    def _each(self, first: int, values: list[Json], schemas: Iterable[Any]) -> _Problems:
        found: _Problems = []
        for index, (item, inner) in enumerate(zip(values, schemas, strict=False), first):
            found += [problem.within(index) for problem in self.of(inner, item)]
        return found


def _names(name: str, schema: Any) -> list[str]:
    others = schema.get(OTHER_NAMES, ()) if isinstance(schema, dict) else ()
    return [name, *others]


def _key_values(name: str) -> list[Json]:
    """What a key may stand for, its text aside."""
    constants: dict[str, Json] = {"true": True, "false": False, "null": None, "None": None}
    if name in constants:
        return [constants[name]]
    if "," in name:
        return [name.split(","), [key for each in name.split(",") for key in _key_values(each) or [each]]]
    try:
        return [int(name)] if re.fullmatch(r"-?\d{1,300}", name) else [float(name)]
    except ValueError:
        return []


# rules for values without parts

_TYPES: Final[Mapping[str, tuple[str, Callable[[Json], bool]]]] = {
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "number": ("a number", _is_number),
    "string": ("a string", lambda value: isinstance(value, str)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "null": ("null", lambda value: value is None),
}


def _type(names: Json, schema: Json, value: Json) -> _Problems:
    types = [_TYPES[name] for name in ([names] if isinstance(names, str) else names)]
    if any(fits(value) for _, fits in types):
        return []
    return _misfit(" or ".join(expected for expected, _ in types), value)


def _enum(options: Json, schema: Json, value: Json) -> _Problems:
    given = _identity(value)
    if not options or any(_identity(option) == given for option in options):
        return []
    return _misfit(_options(options), value)


def _const(option: Json, schema: Json, value: Json) -> _Problems:
    return _enum([option], schema, value)


def _bound(words: str, holds: Callable[[Any, Any], bool]) -> Callable[[Json, Json, Json], _Problems]:
    def rule(bound: Json, schema: Json, value: Json) -> _Problems:
        if isinstance(value, str) and schema.get("format") in ("decimal", "decimal-or-infinite"):
            value = Decimal(value)
        if not _is_number(value) or not _is_number(bound) or holds(value, bound):
            return []
        return _misfit(f"{words} {bound}", value)

    return rule


def _is_multiple(value: int | float | Decimal, of: int | float) -> bool:
    # By their texts: 0.3 is three times 0.1. Floats may be as far off as pydantic lets them.
    ratio = Fraction(value if isinstance(value, int) else str(value)) / Fraction(of if isinstance(of, int) else str(of))
    return abs(ratio - round(ratio)) <= (abs(ratio) / 10**9 if isinstance(value, float) else 0)


def _size(
    words: str, unit: str, *, kind: type[str | list[Json] | dict[str, Json]], holds: Callable[[int, int], bool]
) -> Callable[[Json, Json, Json], _Problems]:
    def rule(bound: Json, schema: Json, value: Json) -> _Problems:
        if not isinstance(value, kind):
            return []
        # Bytes are as long as they are, not as the text is that stands for them.
        size = len(value.encode()) if isinstance(value, str) and schema.get("format") == "binary" else len(value)
        return [] if holds(size, bound) else _misfit(f"{words} {bound} {unit}{'s' * (bound != 1)}", value)

    return rule


def _at_least(size: Any, bound: Any) -> bool:
    return bool(size >= bound)


def _at_most(size: Any, bound: Any) -> bool:
    return bool(size <= bound)


def _unique(wanted: Json, schema: Json, value: Json) -> _Problems:
    if wanted is not True or not isinstance(value, list):
        return []
    first: dict[object, int] = {}
    found: _Problems = []
    for index, item in enumerate(value):
        at = first.setdefault(_identity(item), index)
        if at != index:
            found.append(_Problem(f"is the same as [{at}]").within(index))
    return found


def _pattern(pattern: Json, schema: Json, value: Json) -> _Problems:
    if not isinstance(value, str) or matches(pattern, value) is not False:
        return []
    return _misfit(f"text that matches {_shown(pattern)}", value)


def _format(name: Json, schema: Json, value: Json) -> _Problems:
    if not isinstance(value, str) or name not in FORMATS:
        return []
    expected, fits = FORMATS[name]
    try:
        wrong = not fits(value)
    except ValueError:
        wrong = True
    return _misfit(expected, value) if wrong else []


_Rule = Callable[[_Check, Json, Json, Json], _Problems]


def _leaf(rule: Callable[[Json, Json, Json], _Problems]) -> _Rule:
    return lambda check, bound, schema, value: rule(bound, schema, value)


#: By keyword; `type` is first, and what is not of the type is not looked at further.
_RULES: Final[Mapping[str, _Rule]] = {
    "type": _leaf(_type),
    "enum": _leaf(_enum),
    "const": _leaf(_const),
    "format": _leaf(_format),
    "pattern": _leaf(_pattern),
    "minLength": _leaf(_size("at least", "character", kind=str, holds=_at_least)),
    "maxLength": _leaf(_size("at most", "character", kind=str, holds=_at_most)),
    "minimum": _leaf(_bound("at least", _at_least)),
    "maximum": _leaf(_bound("at most", _at_most)),
    "exclusiveMinimum": _leaf(_bound("more than", lambda value, bound: value > bound)),
    "exclusiveMaximum": _leaf(_bound("less than", lambda value, bound: value < bound)),
    "multipleOf": _leaf(_bound("a multiple of", _is_multiple)),
    "minItems": _leaf(_size("at least", "item", kind=list, holds=_at_least)),
    "maxItems": _leaf(_size("at most", "item", kind=list, holds=_at_most)),
    "uniqueItems": _leaf(_unique),
    "minProperties": _leaf(_size("at least", "field", kind=dict, holds=_at_least)),
    "maxProperties": _leaf(_size("at most", "field", kind=dict, holds=_at_most)),
    "$ref": _Check.ref,
    "allOf": _Check.all_of,
    "anyOf": _Check.any_of,
    "oneOf": _Check.one_of,
    "required": _Check.required,
    "properties": _Check.fields,
    "patternProperties": _Check.patterned,
    "additionalProperties": _Check.others,
    "propertyNames": _Check.names,
    "prefixItems": _Check.first_items,
    "items": _Check.items,
}
