"""What a type takes, said to those who do not have the type: values that fit pass, others are told what is wrong."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import fractions
import json
import math
import os
import pathlib
import subprocess
import sys
import time
import types
import typing
import uuid
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, TypeAdapter

from holdfast.codec import MISSING, coder_for
from holdfast.codec.patterns import matches
from holdfast.codec.schema import problems, schema_of


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Size(enum.IntEnum):
    SMALL = 1
    BIG = 3


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Money(BaseModel):
    amount: Annotated[Decimal, Field(gt=0, multiple_of=Decimal("0.01"))]
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "EUR"


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: uuid.UUID
    lines: list[Money]
    at: dt.datetime | None = None
    tags: dict[str, int] = {}
    parent: Order | None = None


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: int = Field(alias="userId")
    city: str = Field(validation_alias=AliasChoices("town", "place", AliasPath("address", 0)))
    street: str = Field("", validation_alias=AliasPath("address", 1))


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog", "wolf"]
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class AliasedCat(BaseModel):
    kind: Literal["cat"] = Field(alias="petKind")


class AliasedDog(BaseModel):
    kind: Literal["dog"] = Field(alias="petKind")


class Coordinates(NamedTuple):
    x: int
    label: str = ""


class Settled(typing_extensions.TypedDict, total=False):
    a: typing_extensions.Required[int]
    b: str


class Standard(typing.TypedDict):
    a: int
    b: typing.NotRequired[list[str]]


class Tree(BaseModel):
    left: Tree | None = None
    right: Tree | None = None
    children: list[Tree] = []


NOW = dt.datetime(2026, 1, 31, 12, 30, 15, 5)
FIRST = uuid.UUID(int=7)

#: (annotation, values that are of it, JSON that is not)
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (bool, [True, False], [0, "yes", None, []]),
    (int, [0, -5, 10**30, 1 << 5000], [True, 1.5, 1.0, "1", None, {"$float": "nan"}]),
    (str, ["", "a\n\ud800", "$x"], [1, None, ["a"], {"$tuple": []}]),
    (float, [0.5, 1, -1e300, math.inf, math.nan], ["1.0", True, None]),
    (None, [None], [0, "", False]),
    (Literal["a", 1, None], ["a", 1, None], ["b", True, 1.5, 2, [1]]),
    (Literal[True], [True], [1, "true", False]),
    (Colour, [Colour.RED, Colour.PAIR], ["RED", [1, 3], 1, None]),
    (Size, [Size.SMALL, Size.BIG], [2, True, "1"]),
    (list[int], [[], [1, 2]], [{}, ["1"], [1, None], "12", {"$tuple": [1.5]}]),
    (list[Any], [[], [1, None, {"a": []}, {"$x": 1}]], [{}, None, {"$timedelta": [1, 2, 3]}]),
    (dict, [{}, {"a": [1]}, {1: 2}, {"$tuple": [1]}], [[], "a", None]),
    (dict[str, int], [{}, {"a": 1}], [{"a": "1"}, [["a", 1]]]),
    (dict[int, str], [{}, {1: "a", -2: "b"}], [{"1": 2}, {"$dict": [[1, 2]]}]),
    (dict[uuid.UUID, int], [{FIRST: 1}], [{"me": 1}]),
    (dict[Size, int], [{Size.BIG: 1}], [{"2": 1}, {"BIG": 1}]),
    (dict[bool, int], [{True: 1}], [{"true": "x"}]),
    (dict[Colour, int], [{Colour.RED: 1, Colour.PAIR: 2}], [{"blue": 1}]),
    (dict[Literal["a", "b"], int], [{"a": 1}], [{"c": 1}]),
    (dict[dt.date, int], [{NOW.date(): 1}], [{"soon": 1}]),
    (Annotated[dict[str, int], Field(min_length=1, max_length=2)], [{"a": 1}], [{}, {"a": 1, "b": 2, "c": 3}]),
    (dict[Annotated[str, Field(pattern="^x")], int], [{"xy": 1}], [{"xy": "1"}]),
    (Point, [Point(1), Point(-1, 2.5)], [{"x": "1"}, {}, [1, 2], {"x": 1, "y": None}]),
    (list[Point], [[Point(1)]], [[{"y": 1}], {"x": 1}]),
    (Money, [Money(amount=Decimal("1.50"))], [{"amount": 0}, {"amount": "-1"}, {"amount": 1, "currency": "eur"}]),
    (Money, [Money(amount=Decimal("1E+5"))], [{"amount": 0.015}, {"amount": "0.015"}, {"amount": "many"}, {}]),
    (
        Order,
        [Order(id=FIRST, lines=[], parent=Order(id=FIRST, lines=[Money(amount=Decimal(1))], at=NOW))],
        [{"id": "7", "lines": []}, {"id": str(FIRST)}, {"id": str(FIRST), "lines": [], "colour": 1}],
    ),
    (Aliased, [Aliased.model_validate({"userId": 1, "town": "Bonn"})], [{"userId": "1", "town": "Bonn"}, {"town": 1}]),
    (int | None, [1, None], ["1", [], 0.5]),
    (typing.Optional[Point], [None, Point(1)], [{}, 1]),  # noqa: UP045
    (int | str | list[Point], [1, "a", [Point(1)]], [None, 1.5, [{"x": None}]]),
    (Cat | Dog, [Cat(kind="cat", lives=9), Dog(kind="wolf", name="a")], [{"kind": "cat"}, {"kind": "bird"}]),
    (Pet, [Cat(kind="cat", lives=9), Dog(kind="wolf", name="a")], [{"kind": "cat", "name": "a"}, {"kind": 1}, {}]),
    (
        Annotated[AliasedCat | AliasedDog, Field(discriminator="kind")],
        [AliasedCat(petKind="cat"), AliasedDog(petKind="dog")],
        [{"kind": "cow"}, {"petKind": "cow"}, {}],
    ),
    (Settled, [{"a": 1}, {"a": 1, "b": "x"}], [{}, {"a": "x"}, {"a": 1, "b": 2}]),
    (Standard, [{"a": 1}, {"a": 1, "b": ["x"]}], [{}, {"a": "x"}, {"a": 1, "b": [2]}]),
    (list[Standard | None], [[{"a": 1}, None]], [[{}], [1]]),
    (Coordinates, [Coordinates(1), Coordinates(1, "a")], [[], ["1"], [1, "a", 2], {"$tuple": ["a"]}]),
    (dt.datetime, [NOW, NOW.replace(tzinfo=dt.UTC), NOW.replace(fold=1)], ["today", "2026-13-01T00:00:00", 5, None]),
    (dt.datetime, [NOW.replace(tzinfo=ZoneInfo("Europe/Berlin"))], [{"$datetime": "soon"}, {"$datetime": 5}]),
    (dt.date, [NOW.date()], ["2026-02-30", "2026-01-31T12:00:00", 5, "31.1.2026"]),
    (dt.time, [NOW.time(), dt.time(12, tzinfo=dt.UTC)], ["25:00", "12", 12, "12:00:00+25:00"]),
    (dt.timedelta, [dt.timedelta(days=-1, seconds=5)], [5, None]),
    (Decimal, [Decimal("1.50"), Decimal("-1E+5"), Decimal(0)], ["many", "", None, "NaN", "INF", "-Infinity", True]),
    (uuid.UUID, [FIRST], ["7", 7, "g" * 32, None]),
    (bytes, [b"", b"\xff\x00a"], [1, None, []]),
    (Annotated[bytes, Field(min_length=2, max_length=3)], [b"\xff\xfe", b"abc"], ["a", "abcd", {"$bytes": "AA=="}]),
    (set[int], [set(), {1, 2}], [[1, 1], ["a"], {"$set": ["a"]}]),
    (frozenset[str], [frozenset({"a"})], [["a", "a"], "a"]),
    (tuple[int, str], [(1, "a")], [[1], [1, "a", 2], ["a", 1], {"$tuple": [1]}]),
    (tuple[int, ...], [(), (1, 2)], [["a"], 1]),
    (tuple[()], [()], [[1]]),
    (deque[int], [deque([1], maxlen=2)], [{"$deque": [2, ["a"]]}, ["a"]]),
    (complex, [1 + 2j], [1, None]),
    (fractions.Fraction, [fractions.Fraction(1, 3)], [None, []]),
    (pathlib.Path, [pathlib.Path("a/b")], [1, None]),
    (Annotated[int, Field(ge=1, lt=10, multiple_of=3)], [3, 9], [0, 10, 4, -3]),
    (Annotated[int, Field(gt=1, le=10)], [2, 10], [1, 11]),
    (Annotated[float, Field(multiple_of=0.1)], [0.3, 1.0, 2], [0.25]),
    (Annotated[str, Field(min_length=2, max_length=3)], ["ab", "äöü"], ["a", "abcd"]),
    (Annotated[str, Field(pattern=r"^\d{3}-\d{4}$")], ["555-1234"], ["5551234", "555-12345"]),
    (Annotated[list[int], Field(min_length=1, max_length=2)], [[1]], [[], [1, 2, 3]]),
    (Tree, [Tree(left=Tree(), children=[Tree(right=Tree())])], [{"left": {"children": [{"right": 1}]}}]),
]
IDS = [f"{number}-{getattr(case[0], '__name__', case[0])}"[:40] for number, case in enumerate(CASES)]


@pytest.mark.parametrize(("annotation", "values", "others"), CASES, ids=IDS)
def test_what_the_coder_writes_fits_and_other_shapes_do_not(
    annotation: Any, values: list[Any], others: list[Any]
) -> None:
    schema = schema_of(annotation)
    assert schema is not None
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    for value in values:
        assert problems(schema, json.loads(coder_for(annotation).dumps(value))) == [], value
    for other in others:
        found = problems(schema, other)
        assert found, other
        assert all(line and "\n" not in line for line in found)


@pytest.mark.parametrize(("annotation", "values", "others"), CASES, ids=IDS)
def test_what_pydantic_writes_fits(annotation: Any, values: list[Any], others: list[Any]) -> None:
    if sys.version_info < (3, 12) and (annotation is Standard or annotation == list[Standard | None]):
        pytest.skip("pydantic does not know it before Python 3.12")
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    for value in values:
        if value == [1, None, {"a": []}, {"$x": 1}] or (isinstance(value, str | bytes) and not _is_utf8(value)):
            continue
        text = adapter.dump_json(value, by_alias=True)
        if b"null" in text and isinstance(value, float):  # not a number, for JSON
            continue
        plain = json.loads(text)
        if plain == {"$tuple": [1]}:  # what looks like a tag is one
            continue
        assert problems(schema_of(annotation), plain) == [], text


def _is_utf8(value: str | bytes) -> bool:
    try:
        return bool(value.encode() if isinstance(value, str) else value.decode()) or True
    except UnicodeError:
        return False


def test_whatever_has_no_schema_is_not_checked() -> None:
    class Thing:
        pass

    for annotation in (range, bytearray, Thing, Callable[[], int], list[Thing], int | Callable[[], int], "nonsense"):
        assert schema_of(annotation) is None
    assert problems(None, {"a": 1}) == []


def test_anything_fits_what_takes_anything() -> None:
    for annotation in (Any, object, MISSING):
        assert schema_of(annotation) == {}
        assert problems(schema_of(annotation), {"a": [None, {"$set": [1, 1]}]}) == []


def test_a_default_that_is_not_json_warns_nobody() -> None:
    class Odd(BaseModel):
        a: Any = object()
        b: float = math.inf

    schema = schema_of(Odd)
    assert schema is None or problems(schema, {"a": 1, "b": 2}) == []


def lines(annotation: Any, value: Any) -> list[str]:
    return problems(schema_of(annotation), value)


def test_a_problem_says_where_it_is_and_what_was_expected() -> None:
    class Bill(BaseModel):
        amount: int
        items: list[Point] = []
        note: str | None = None
        by_name: dict[str, Literal["a", "b"]] = {}

    assert lines(Bill, {"amount": "many"}) == ["amount: expected an integer, got 'many'"]
    assert lines(Bill, {}) == ["amount: missing"]
    assert lines(Bill, []) == ["expected an object, got a list of 0"]
    assert lines(Bill, {"amount": 1, "items": [{"x": 1}, {"x": None}]}) == ["items[1].x: expected an integer, got null"]
    assert lines(Bill, {"amount": True, "note": 5}) == [
        "amount: expected an integer, got true",
        "note: expected a string or null, got 5",
    ]
    assert lines(Bill, {"amount": 1, "by_name": {"a b": "c"}}) == ["by_name['a b']: expected 'a' or 'b', got 'c'"]
    assert lines(Order, {"id": str(FIRST), "lines": [], "parnet": None}) == [
        "parnet: unknown; known are 'id', 'lines', 'at', 'tags', 'parent'"
    ]
    assert lines(Pet, {"kind": "cow"}) == ["kind: expected 'cat', 'dog' or 'wolf', got 'cow'"]
    assert lines(Pet, {"lives": 3}) == ["kind: missing"]
    assert lines(Pet, {"kind": "cat"}) == ["lives: missing"]
    assert lines(Point | None, {"x": "a"}) == ["x: expected an integer, got 'a'"]
    assert lines(Annotated[int, Field(ge=3)] | None, 2) == ["expected at least 3 or null, got 2"]
    assert lines(list[int], ["x" * 200]) == [f"[0]: expected an integer, got '{'x' * 60}'…"]
    assert lines(list[str], [1 << 10_000]) == ["[0]: expected a string, got a very long integer"]
    assert lines(dict[Size, int], {"7": 1}) == ["['7']: is a wrong name: expected 1 or 3, got 7"]
    assert lines(set[int], [1, 2, 1]) == ["[2]: is the same as [0]"]
    assert lines(str, dt.datetime(2026, 1, 1)) == ["expected a string, got datetime"]


def test_many_problems_are_counted() -> None:
    found = lines(list[int], ["a"] * 1000)
    assert len(found) == 21
    assert found[-1] == "and 980 more"


def test_a_field_may_come_under_each_of_its_names() -> None:
    assert lines(Aliased, {"userId": 1, "town": "Bonn"}) == []
    assert lines(Aliased, {"user_id": 1, "place": "Bonn"}) == []
    assert lines(Aliased, {"user_id": 1, "address": ["Bonn", "A street"]}) == []
    assert lines(Aliased, {"user_id": 1, "city": 5}) == ["city: expected a string, got 5"]
    assert lines(Aliased, {"city": "Bonn"}) == ["userId: missing"]
    (found,) = lines(Aliased, {"user_id": 1, "city": "Bonn", "zip": 1})
    assert found.startswith("zip: unknown; known are 'userId', 'town'")


def test_a_dict_that_looks_like_a_tag_is_what_the_coder_says() -> None:
    assert lines(dict[str, list[int]], json.loads(coder_for(dict[str, list[int]]).dumps({"$tuple": [1]}))) == []
    assert lines(dict[str, list[int]], {"$tuple": [1]}) == ["expected an object, got a list of 1"]
    assert lines(dict[str, int], {"$ref": 1}) == []
    assert lines(dict[str, int], {"$tuple": 1}) == []


def test_keywords_of_hand_written_schemas_are_understood() -> None:
    schema: dict[str, Any] = {
        "type": ["object", "null"],
        "properties": {"a/b": {"$ref": "#/properties/c~1d"}, "c/d": {"type": "integer", "nullable": True}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": False,
        "allOf": [{"required": ["a/b"]}, {"maxProperties": 3}],
    }
    assert problems(schema, None) == []
    assert problems(schema, {"a/b": 1, "x-y": "z", "c/d": None}) == []
    assert problems(schema, {"a/b": "1"}) == ["['a/b']: expected an integer, got '1'"]
    assert problems(schema, {"x-y": 1, "z": 1}) == [
        "['a/b']: missing",
        "['x-y']: expected a string, got 1",
        "z: unknown; known are 'a/b', 'c/d'",
    ]
    assert problems({"items": False}, [1]) == ["[0]: must not be there"]
    assert problems({"prefixItems": [True], "items": False}, [1]) == []
    assert problems({"const": {"a": [1, True]}}, {"a": [1.0, True]}) == []
    assert problems({"const": {"a": [1, True]}}, {"a": [1, 1]}) == ["expected an object, got an object"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5},
        {"type": "thing"},
        {"$ref": "#/$defs/none"},
        {"$ref": "elsewhere.json"},
        {"$ref": 5},
        {"$ref": "#"},
        {"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"},
        {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"},
        {"minimum": "x", "multipleOf": 0, "maximum": None},
        {"minLength": None, "pattern": "(", "format": 5},
        {"pattern": "[[:alpha:]]"},
        {"enum": 5},
        {"enum": []},
        {"anyOf": []},
        {"anyOf": 5},
        {"oneOf": [True], "discriminator": {}},
        {"oneOf": [True], "discriminator": {"mapping": {}}},
        {"properties": 5, "required": 5, "additionalProperties": 5},
        {"properties": {"a": 5}, "required": [[]]},
        {"propertyNames": 5, "patternProperties": [5]},
        {"items": 5, "prefixItems": 5, "uniqueItems": "yes"},
        {"unheard": {"of": 1}},
        True,
        5,
    ],
    ids=str,
)
@pytest.mark.parametrize("value", [None, 1, math.inf, "text", [1, []], {"a": {"b": 1}}, {"$decimal": "sNaN"}], ids=str)
def test_what_makes_no_sense_in_a_schema_is_ignored(schema: Any, value: Any) -> None:
    assert problems(schema, value) == []


def test_values_nested_too_deep_are_a_problem_and_not_a_crash() -> None:
    deep: Any = None
    for _ in range(5000):
        deep = {"left": deep}
    assert lines(Tree, deep) == ["nested deeper than 200 levels"]
    deep = [None]
    for _ in range(190):
        deep = [deep]
    assert lines(list[Any], deep) == []
    tree: Any = {"left": 5}
    for _ in range(60):
        tree = {"left": tree}
    assert lines(Tree, tree) == [".".join(["left"] * 61) + ": expected an object or null, got 5"]
    for _ in range(130):
        tree = {"left": tree}
    lines(Tree, tree)  # as deep as the stack allows, and no deeper


def test_many_ways_to_the_same_definition_take_no_time() -> None:
    schema = {
        "$defs": {"A": {"anyOf": [{"items": {"$ref": "#/$defs/A"}, "type": "array"}] * 8 + [{"type": "string"}]}},
        "$ref": "#/$defs/A",
    }
    value: Any = 5
    for _ in range(50):
        value = [value, value]
        value[1] = json.loads(json.dumps(value[0])) if len(json.dumps(value)) < 10_000 else "text"
    began = time.perf_counter()
    assert problems(schema, value)
    assert time.perf_counter() - began < 60


def test_no_pattern_takes_for_ever() -> None:
    began = time.perf_counter()
    for pattern in (
        "(a+)+$",
        "^(a|a)*$",
        "^(a?){30}a{30}$",
        "a*a*a*a*a*a*b",
        "^a?" * 25 + "$",
        "^(a{1,8}){1,8}$",
        r"(.*)\1\1x",
        r"^(?:(?=a+)a)*$",
        r"\s+$",
    ):
        for length in (19, 20, 21, 60, 200, 9999, 10_001):
            matches(pattern, "a" * length + "!")
            matches(pattern, " " * length + "!")
    assert time.perf_counter() - began < 60
    assert matches("^[a-z]+$", "a" * 9_000) is True
    assert matches("^[a-z]+$", "a" * 8_999 + "!") is False
    assert matches("^[a-z]+$", "a" * 10_001) is None
    assert matches(r"\p{L}", "a") is None


def test_clients_need_neither_pydantic_nor_the_type() -> None:
    code = (
        "import sys\n"
        "from holdfast.codec.schema import problems\n"
        "print(problems({'type': 'integer'}, 'x'))\n"
        "print(sorted({'pydantic', 'pydantic_core'} & set(sys.modules)))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["[\"expected an integer, got 'x'\"]", "[]"]


# random types and values

SIMPLE: list[Any] = [bool, int, str, float, None, Literal["a", "b"], Literal[1, "1"], Size]
SIMPLE += [dt.datetime, dt.date, dt.time, uuid.UUID, Decimal]
SIMPLE += [
    Annotated[int, Field(ge=-2, lt=5)],
    Annotated[int, Field(multiple_of=3)],
    Annotated[float, Field(gt=-1.5, le=2)],
    Annotated[str, Field(min_length=1, max_length=3)],
    Annotated[str, Field(pattern="^[ab]+")],
    Annotated[Decimal, Field(ge=0)],
]

_names = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=3, unique=True)
_counter = iter(range(10**9))


def _model(kind: str, fields: dict[str, tuple[Any, bool]]) -> Any:
    name = f"Made{next(_counter)}"
    options: dict[str, Any] = {}
    if kind == "model":
        options = {field: (inner, ... if needed else None) for field, (inner, needed) in fields.items()}
    elif kind == "strict":
        options = {field: (inner, Field(alias=f"{field}Alias")) for field, (inner, _) in fields.items()}
        options["__config__"] = ConfigDict(extra="forbid")
    if kind in ("model", "strict"):
        return pydantic.create_model(name, **options)
    if kind == "dataclass":
        ordered = sorted(fields.items(), key=lambda item: not item[1][1])
        return dataclasses.make_dataclass(
            name,
            [(f, t) if needed else (f, t, dataclasses.field(default=None)) for f, (t, needed) in ordered],
        )
    marked = {
        field: typing_extensions.Required[inner] if needed else typing_extensions.NotRequired[inner]
        for field, (inner, needed) in fields.items()
    }
    return typing_extensions.TypedDict(name, marked)  # type: ignore[operator]


def _bigger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = _names.flatmap(lambda names: st.fixed_dictionaries({n: st.tuples(inner, st.booleans()) for n in names}))
    return st.one_of(
        inner.map(lambda each: types.GenericAlias(list, each)),
        inner.map(lambda each: types.GenericAlias(dict, (str, each))),
        inner.map(lambda each: typing.Union.__getitem__((each, None))),
        st.lists(inner, min_size=2, max_size=3).map(lambda each: typing.Union.__getitem__(tuple(each))),
        st.lists(inner, min_size=1, max_size=3).map(lambda each: types.GenericAlias(tuple, tuple(each))),
        st.tuples(st.sampled_from(["model", "strict", "dataclass", "typed dict"]), fields).map(
            lambda made: _model(*made)
        ),
    )


kinds = st.recursive(st.sampled_from(SIMPLE), _bigger, max_leaves=5)

_texts = st.one_of(
    st.sampled_from(["", "a", "b", "ab", "1", "abc", "1.5", "-1", "1e5", "NaN", "2026-01-31", "2026-02-30", "12:00"]),
    st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31 12:00", "2026-01-31T00:00:00+01:00", str(FIRST), FIRST.hex]),
    st.datetimes().map(lambda at: at.isoformat()),
    st.integers(-(10**16), 10**16).map(str),
    st.integers(-800_000, 800_000).map(lambda days: str(days * 86_400)),
    st.from_regex(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?", fullmatch=True),
    st.from_regex(r"\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?", fullmatch=True),
    st.text(max_size=4),
)
_atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-6, 6),
    st.integers(),
    st.floats(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    _texts,
)
_keys = st.sampled_from(["a", "b", "c", "d", "aAlias", "bAlias", "x"])
values = st.recursive(
    _atoms, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4), max_leaves=8
)


def accepts(adapter: TypeAdapter[Any], value: Any, *, strict: bool) -> bool:
    try:
        adapter.validate_json(json.dumps(value), strict=strict, by_alias=True, by_name=True)
    except pydantic.ValidationError:
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(annotation=kinds, value=values)
def test_what_pydantic_takes_strictly_has_no_problems(annotation: Any, value: Any) -> None:
    adapter = TypeAdapter(annotation)
    if accepts(adapter, value, strict=True) and not is_taken_for_a_number(adapter, value):
        assert lines(annotation, value) == []


def is_taken_for_a_number(adapter: TypeAdapter[Any], value: Any) -> bool:
    """To pydantic, True is the literal 1 and the member of an enum that is 1; here it is not.

    Where it is a bool that is asked for, it does not take a number instead.
    """
    numbered = with_numbers(value)
    return json.dumps(numbered) != json.dumps(value) and accepts(adapter, numbered, strict=True)


def with_numbers(value: Any) -> Any:
    """With a number in the place of each bool."""
    match value:
        case bool():
            return int(value)
        case list():
            return [with_numbers(each) for each in value]
        case dict():
            return {key: with_numbers(each) for key, each in value.items()}
        case _:
            return value


@settings(max_examples=400, deadline=None)
@given(annotation=kinds, data=st.data())
def test_values_of_a_type_have_no_problems(annotation: Any, data: st.DataObject) -> None:
    fitting = data.draw(_fitting(schema_of(annotation)))
    event = accepts(TypeAdapter(annotation), fitting, strict=True)
    if event:
        assert lines(annotation, fitting) == []
    elif not lines(annotation, fitting):
        assert accepts(TypeAdapter(annotation), fitting, strict=False)


def _fitting(schema: Any, root: Any = None) -> st.SearchStrategy[Any]:
    """JSON values that come close to a schema, and mostly fit it: random ones hardly ever do."""
    root = root or schema
    if "$ref" in schema:
        return _fitting(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return st.one_of([_fitting(each, root) for each in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return st.tuples(*[_fitting(each, root) for each in schema["prefixItems"]]).map(list)
        return st.lists(_fitting(schema["items"], root), max_size=3)
    if kind == "object":
        needed = set(schema.get("required", ()))
        parts = {name: _fitting(each, root) for name, each in schema.get("properties", {}).items()}
        if not parts and isinstance(schema.get("additionalProperties"), dict):
            return st.dictionaries(_keys, _fitting(schema["additionalProperties"], root), max_size=3)
        return st.fixed_dictionaries(
            {name: each for name, each in parts.items() if name in needed},
            optional={name: each for name, each in parts.items() if name not in needed},
        )
    strategies: dict[Any, st.SearchStrategy[Any]] = {
        "integer": st.integers(-6, 6),
        "number": st.floats(-3, 3) | st.integers(-3, 3),
        "boolean": st.booleans(),
        "null": st.none(),
        "string": _texts,
    }
    return strategies[kind]


@settings(max_examples=600, deadline=None)
@given(annotation=st.sampled_from(SIMPLE), value=_atoms)
def test_what_has_no_problems_is_taken_by_pydantic(annotation: Any, value: Any) -> None:
    if isinstance(value, str) and not _is_utf8(value):
        return
    if not lines(annotation, value):
        assert accepts(TypeAdapter(annotation), value, strict=False)


@settings(max_examples=300, deadline=None)
@given(schema=values, value=values)
def test_nothing_raises(schema: Any, value: Any) -> None:
    assert isinstance(problems(schema, value), list)


KEYWORDS = "type enum const anyOf oneOf allOf items prefixItems properties required additionalProperties $ref pattern"
KEYWORDS += " minimum maxLength format multipleOf uniqueItems discriminator propertyNames patternProperties nullable"


@settings(max_examples=300, deadline=None)
@given(
    schema=st.recursive(
        _atoms | st.sampled_from(["object", "array", "string", "#", "^a", "#/items", "date-time"]),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS.split()), inner, max_size=4)
        ),
        max_leaves=12,
    ),
    value=values,
)
def test_no_schema_makes_it_raise(schema: Any, value: Any) -> None:
    assert all(isinstance(line, str) for line in problems(schema, value))
