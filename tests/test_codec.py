"""Values and arguments: what is stored comes back as it was, or is refused before it is stored."""

from __future__ import annotations

import ast
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import io
import json
import math
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import typing
import uuid
from collections import deque
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import holdfast
from holdfast.codec import (
    MISSING,
    Input,
    bind_input,
    coder_for,
    decode_input,
    defaults_of,
    encode_call,
    encode_input,
    result_annotation,
)
from holdfast.errors import Undecodable, Unserialisable, UsageError


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Size(enum.IntEnum):
    BIG = 3


class Page(BaseModel):
    title: str
    links: list[str] = []
    score: float = 0.0


class LongPage(Page):
    body: str = ""


class Everything(BaseModel):
    at: dt.datetime
    raw: bytes
    price: decimal.Decimal
    spans: tuple[int, ...]
    seen: set[str]
    grid: dict[tuple[int, int], str]
    score: float
    colour: Colour
    link: pydantic.HttpUrl
    page: Page | None = None


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    name: str
    number: int


class Options(typing.TypedDict):
    depth: int
    note: typing.NotRequired[str]


class Node(BaseModel):
    children: list[Node] = []
    data: Any = None


class Fork(typing_extensions.TypedDict):
    left: Fork | None
    right: Fork | None


Tree = typing_extensions.TypeAliasType("Tree", "list[Tree] | dict[str, Tree] | int")


class Plain:
    pass


def shape(value: object) -> object:
    """A value with all its types spelled out, so that 1, 1.0 and True differ, and nan equals nan."""
    if isinstance(value, dict):
        return type(value), [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(repr, map(shape, value)))
    if isinstance(value, list | tuple | deque):
        return type(value), getattr(value, "maxlen", None), [shape(item) for item in value]
    if isinstance(value, dt.datetime | dt.time):
        return type(value), repr(value), value.fold, repr(value.tzinfo)
    return type(value), hex(value) if type(value) is int else repr(value)


def assert_survives(annotation: object, value: object) -> str:
    coder = coder_for(annotation)
    text, back = coder.roundtrip(value)
    assert text.isascii()
    assert shape(back) == shape(value)
    assert shape(coder.loads(text)) == shape(value)
    assert coder.dumps(value) == text
    return text


PARIS = ZoneInfo("Europe/Paris")
BUILTINS: list[object] = [
    None,
    True,
    0,
    -1,
    2**63,
    -(2**200),
    10**1000,
    10**5000,
    0.1,
    -0.0,
    1e308,
    5e-324,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "a\x00b",
    "\ud800 alone",
    "😀 \u202ertl\u202c",
    "$tuple",
    b"",
    b"\xff\x00",
    bytearray(b"\x80"),
    (),
    (1, (2.0, True)),
    [],
    {},
    {1, "a", (2, None)},
    frozenset({b"x", 1.5}),
    deque([1, 2], maxlen=3),
    deque(),
    {1: "int", "1": "str", None: 0, (1, 2): [3], 2.5: "f"},
    {"$tuple": [1]},
    {"$type": "os.system", "args": ["true"]},
    {"$type": "os.system"},
    {"$dict": {"$dict": []}},
    {"": {"$": 1}},
    dt.datetime(2024, 1, 1),
    dt.datetime(2024, 1, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, seconds=7, microseconds=1))),
    dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=PARIS),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=1),
    dt.datetime(2024, 10, 27, 2, 30, fold=1),
    dt.date(2024, 2, 29),
    dt.time(1, 2, 3, 4, fold=1),
    dt.time(1, tzinfo=PARIS),
    dt.timedelta(days=-1, microseconds=1),
    decimal.Decimal("1.10"),
    decimal.Decimal("-0E+3"),
    decimal.Decimal("sNaN12"),
    uuid.UUID(int=5),
    pathlib.Path("/tmp/ä/\udcff"),
    complex(-0.0, math.nan),
    fractions.Fraction(1, 3),
    range(1, 10, 3),
    [[[[{"a": [{"b": ({1},)}]}]]]],
]


@pytest.mark.parametrize(
    "value",
    BUILTINS,
    ids=lambda value: type(value).__name__,
)
def test_builtins_come_back_identical_without_annotation_and_inside_containers(value: object) -> None:
    assert_survives(MISSING, value)
    assert_survives(Any, [value, {"k": value}])
    assert_survives(dict[str, Any], {"k": (value,)})
    assert_survives(list[object], [value])


@pytest.mark.parametrize(
    "value", [value for value in BUILTINS if value is not None], ids=lambda value: type(value).__name__
)
def test_builtins_come_back_identical_by_their_own_annotation(value: object) -> None:
    kind = pathlib.Path if isinstance(value, pathlib.Path) else type(value)
    assert_survives(kind, value)
    assert_survives(list[kind] | None, [value])  # type: ignore[valid-type]


def test_nan_is_never_written_as_a_bare_token() -> None:
    values: list[tuple[object, object]] = [(MISSING, math.nan), (float, math.nan), (list[float], [math.nan])]
    for annotation, value in [*values, (dict[str, Any], {"a": math.inf}), (Page, Page(title="", score=-math.inf))]:
        json.loads(coder_for(annotation).dumps(value), parse_constant=lambda token: pytest.fail(token))


def test_an_int_where_float_is_declared_is_right_and_kept() -> None:
    assert_survives(float, 3)
    assert_survives(list[float], [1, 2.5])
    assert_survives(int, True)
    assert coder_for(Point).roundtrip(Point(1, 3))[1] == Point(1, 3.0)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Colour, Colour.RED),
        (Colour, Colour.PAIR),
        (Size, Size.BIG),
        (dict[Colour, int], {Colour.PAIR: 1}),
        (Literal["a", 1, None], 1),
        (Point, Point(1, -0.0, ["a", "\x00"])),
        (list[Point | Page], [Point(1), Page(title="t")]),
        (Page, Page(title="$5", links=["$tuple"], score=math.nan)),
        (dict[str, Page], {"$tuple": Page(title="t")}),
        (Pair, Pair("a", 1)),
        (list[Pair], [Pair("a", 1)]),
        (Options, {"depth": 1}),
        (list[Options], [{"depth": 1, "note": "$"}]),
        (collections.OrderedDict[str, int], collections.OrderedDict(b=1, a=2)),
        (collections.defaultdict[str, list[int]], collections.defaultdict(list, a=[1])),
        (collections.Counter[str], collections.Counter("aab")),
        (collections.abc.Sequence[str], ("a", "b")),
        (collections.abc.Iterable[int], [1]),
        (collections.abc.Mapping[str, int], {"a": 1}),
        (tuple[int, str], (1, "a")),
        (tuple[()], ()),
        (Annotated[int, Field(gt=0)], 5),
        (Annotated[list[int], {"unhashable": []}], [1]),
        (typing.NewType("UserId", int), 5),
        (Page | None, None),
        (Node, Node(children=[Node(data={"a": [1, None]})])),
        (int | str, "1"),
        (list[int] | set[int], {1}),
        (dt.date, dt.datetime(2024, 1, 1)),
    ],
    ids=str,
)
def test_annotated_values_come_back_as_their_type(annotation: object, value: object) -> None:
    assert_survives(annotation, value)


def test_a_model_with_everything_json_loses_comes_back_identical() -> None:
    value = Everything(
        at=dt.datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=1),
        raw=b"\xff\xfe",
        price=decimal.Decimal("1.10"),
        spans=(1, 2),
        seen={"a", "b"},
        grid={(0, 1): "x"},
        score=-math.inf,
        colour=Colour.PAIR,
        link=pydantic.HttpUrl("https://example.org/a"),
        page=Page(title="t"),
    )
    text, back = coder_for(Everything).roundtrip(value)
    assert back == value
    assert back.at.fold == 1
    assert back.at.tzinfo is PARIS
    assert type(back.spans) is tuple
    assert coder_for(Everything).loads(text) == value


def test_a_datetime_that_pydantic_parsed_keeps_its_offset() -> None:
    value = pydantic.TypeAdapter(dt.datetime).validate_python("2024-01-01T00:00:00+02:00")
    back = coder_for(MISSING).roundtrip(value)[1]
    assert back == value
    assert back.utcoffset() == dt.timedelta(hours=2)


def test_aliases_computed_and_extra_fields_do_not_get_in_the_way() -> None:
    class Aliased(BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        inner: int = Field(alias="outer", serialization_alias="third")

        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return self.inner * 2

    value = Aliased(outer=1, more=[1, (2,)])  # type: ignore[call-arg]
    back = coder_for(Aliased).roundtrip(value)[1]
    assert back == value
    assert back.more == [1, (2,)]


def test_private_attributes_are_not_stored_and_do_not_prevent_storing() -> None:
    class Response(BaseModel):
        text: str
        _request: Any = None

    value = Response(text="a")
    value._request = object()
    assert coder_for(Response).roundtrip(value)[1].text == "a"


def refused(annotation: object, value: object, what: str = "result") -> Unserialisable:
    with pytest.raises(Unserialisable) as caught:
        coder_for(annotation).roundtrip(value, what=what)
    with pytest.raises(Unserialisable):
        coder_for(annotation).dumps(value, what=what)
    assert str(caught.value).startswith(caught.value.path)
    return caught.value


@pytest.mark.parametrize(
    ("annotation", "value", "path", "found"),
    [
        (str, 5, "result", "int"),
        (int, "5", "result", "str"),
        (bool, 1, "result", "int"),
        (int, 1.0, "result", "float"),
        (None, 0, "result", "int"),
        (list[str], ["a", 1], "result[1]", "int"),
        (dict[str, list[int]], {"a": [1, "x"]}, "result.a[1]", "str"),
        (dict[str, int], {1: 1}, "result[0]", "int"),
        (tuple[int, str], (1,), "result", "tuple"),
        (Literal["a"], "b", "result", "str"),
        (Options, {"depth": "x"}, "result.depth", "str"),
        (Page, {"title": "t"}, "result", "dict"),
        (Page, LongPage(title="t", body="b"), "result", "LongPage"),
        (list[Page], [LongPage(title="t")], "result[0]", "LongPage"),
        (Point, Point("x"), "result.x", "str"),  # type: ignore[arg-type]
        (Point, Point(True), "result.x", "bool"),
        (Colour, "red", "result", "str"),
        (Literal[Colour.RED], Colour.RED, "result", "Colour"),
        (int, Size.BIG, "result", "Size"),
        (Node, Node(data={"deep": [Plain()]}), "result.data.deep[0]", "Plain"),
        (Node, Node(data=Page(title="t")), "result.data", "Page"),
        (MISSING, {"items": [1, 2, 3, {"client": Plain()}]}, "result.items[3].client", "Plain"),
        (MISSING, Page(title="t"), "result", "Page"),
        (Any, [Point(1)], "result[0]", "Point"),
        (Any, Colour.RED, "result", "Colour"),
        (Any, Size.BIG, "result", "Size"),
        (Any, {"a b": Pair("a", 1)}, "result['a b']", "Pair"),
        (Any, collections.OrderedDict(), "result", "OrderedDict"),
        (Any, {Plain: 1}, "result[key 0]", "type"),
        (Any, memoryview(b"a"), "result", "memoryview"),
        (Any, {frozenset({Colour.RED})}, "result{…}{…}", "Colour"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_would_change_is_refused_with_its_path(annotation: object, value: object, path: str, found: str) -> None:
    error = refused(annotation, value)
    assert (error.path, error.type_name) == (path, found)


@pytest.mark.parametrize(
    "value",
    [
        lambda: None,
        io.StringIO(),
        socket.socket,
        iter(()),
        os,
        threading.Lock(),
        Plain(),
        ...,
        NotImplemented,
        print,
        ValueError("x"),
        slice(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_that_do_things_are_refused_naming_the_class(value: object) -> None:
    for annotation in (MISSING, Any, dict[str, Any]):
        held = {"a": value}
        error = refused(annotation, held)
        assert error.path == "result.a"
        assert type(value).__qualname__ in str(error)


def test_secrets_are_refused_and_not_stored_as_stars() -> None:
    class Login(BaseModel):
        password: pydantic.SecretStr

    for annotation, value in ((Login, Login(password="x")), (Any, pydantic.SecretStr("x"))):  # type: ignore[arg-type]
        error = refused(annotation, value)
        assert "secret" in str(error)
        assert "*" not in str(error)


def test_an_annotation_that_cannot_be_stored_says_so_before_any_value() -> None:
    class Attrs:
        __attrs_attrs__ = ()

    for kind in (Plain, Attrs, io.StringIO):
        coder = coder_for(kind)
        assert coder.problem is not None
        assert kind.__qualname__ in coder.problem
        refused(kind, kind())
    assert "attrs" in str(coder_for(Attrs).problem)
    assert coder_for(Page).problem is None


def test_a_field_excluded_from_output_is_refused_rather_than_lost() -> None:
    class Hidden(BaseModel):
        shown: int
        hidden: int = Field(default=0, exclude=True)

    assert refused(Hidden, Hidden(shown=1, hidden=2)).path == "result.hidden"


def test_a_validator_that_changes_the_value_again_is_refused() -> None:
    class Counting(BaseModel):
        count: Annotated[int, pydantic.AfterValidator(lambda count: count + 1)]

    assert refused(Counting, Counting(count=1)).path == "result.count"


def test_a_validator_that_crashes_is_reported_as_unserialisable_or_undecodable() -> None:
    def crash(value: object) -> object:
        raise KeyError("inside")

    class Crashing(BaseModel):
        count: Annotated[int, pydantic.BeforeValidator(crash)]

    assert "KeyError" in str(refused(Crashing, Crashing.model_construct(count=1)))
    with pytest.raises(Undecodable, match="KeyError"):
        coder_for(Crashing).loads('{"count":1}')


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def laughs() -> list[Any]:
    value: list[Any] = []
    for _ in range(100):
        value = [value, value]
    return value


def test_deep_cyclic_and_exploding_values_are_refused_quickly() -> None:
    cycle: list[Any] = []
    cycle.append([cycle, cycle])
    knot: dict[str, Any] = {}
    knot["self"] = (knot,)
    began = time.perf_counter()
    for value in (nested(10_000), cycle, knot, laughs(), (laughs(),)):
        for annotation in (MISSING, list[Any], dict[str, Any]):
            held = {"a": value} if annotation == dict[str, Any] else [value]
            refused(annotation, held)
        refused(Node, Node.model_construct(children=[], data=value))
    assert time.perf_counter() - began < 60


def test_a_value_that_is_shared_but_small_is_stored() -> None:
    shared = {"a": 1}
    assert_survives(MISSING, [shared] * 20_000)
    assert_survives(MISSING, nested(150))


def test_deep_and_damaged_texts_are_undecodable() -> None:
    texts = [
        "[" * 10_000 + "]" * 10_000,
        '{"a":' * 10_000,
        "[" * 300 + "]" * 300,
        "",
        "nul",
        "NaN",
        "[Infinity]",
        "1 2",
        "\ud800",
    ]
    texts += [
        '{"$nope":1}',
        '{"$tuple":1}',
        '{"$type":"os.system"}',
        '{"$set":[[1]]}',
        '{"$fraction":[1,0]}',
        '{"$bytes":"é"}',
    ]
    texts += [
        '{"$datetime":["2024-01-01",0,"../../etc/passwd"]}',
        '{"$datetime":["2024-01-01",0,"No/Such"]}',
        '{"$opaque":"X"}',
    ]
    texts += ['{"$int":"x"}', '{"$deque":[-1,[]]}', '{"$timedelta":[1e99,0,0]}', '{"$range":[1,2,0]}', "9" * 5000]
    for text in texts:
        for annotation in (MISSING, list[str], Page, dict[str, Any]):
            with pytest.raises(Undecodable):
                coder_for(annotation).loads(text, what="result")


def test_undecodable_names_what_was_expected_and_why() -> None:
    with pytest.raises(Undecodable, match=r"result\[1\] does not fit list\[str\].*found int"):
        coder_for(list[str]).loads('["a",1]', what="result")
    with pytest.raises(Undecodable, match=r"result does not fit Page.*title: Field required"):
        coder_for(Page).loads("{}", what="result")


def test_a_new_field_gets_its_default_and_a_removed_one_is_ignored() -> None:
    assert coder_for(Page).loads('{"title":"t","gone":{"$tuple":[1]}}') == Page(title="t")
    assert coder_for(Point).loads('{"x":1}') == Point(1)
    assert coder_for(Options).loads('{"depth":1,"gone":2}')["depth"] == 1

    class Strict(BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        title: str

    with pytest.raises(Undecodable, match="gone"):
        coder_for(Strict).loads('{"title":"t","gone":1}')


def test_coders_are_cached_also_for_unhashable_annotations() -> None:
    odd = Annotated[int, {"a": []}]
    assert coder_for(odd) is coder_for(odd)
    assert coder_for(list[str]) is coder_for(list[str])
    assert coder_for(Literal[1]) is not coder_for(Literal[True])


def test_what_the_agent_gets_is_not_the_object_that_the_step_returned() -> None:
    for annotation, value in ((MISSING, [1]), (list[int], [1]), (Page, Page(title="t")), (dict[str, Any], {"a": []})):
        assert coder_for(annotation).roundtrip(value)[1] is not value


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()))
    | st.binary()
    | st.sampled_from(["$tuple", "$dict", "$", "\ud800"])
)
HASHABLE = st.recursive(
    ATOMS
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.datetimes()
    | st.uuids()
    | st.fractions(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    HASHABLE | st.datetimes(timezones=st.timezones()) | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.just("$tuple"), inner, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.builds(deque, st.lists(inner, max_size=3))
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_any_nesting_of_builtins_survives_type_exact(value: object) -> None:
    check_exact(value)


@pytest.mark.prove
@settings(max_examples=5000, deadline=None)
@given(VALUES)
def test_thousands_of_nestings_survive_type_exact(value: object) -> None:
    check_exact(value)


def check_exact(value: object) -> None:
    coder = coder_for(MISSING)
    text, back = coder.roundtrip(value)
    assert shape(back) == shape(value)
    assert coder.dumps(back) == text
    with suppress(Unserialisable):  # pydantic turns a Fraction in `Any` into text
        assert shape(coder_for(Node).roundtrip(Node(data=value))[1].data) == shape(value)


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        ATOMS,
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["$tuple", "$dict", "$set", "$time", "$datetime", "$int", "$deque", "$path", "$range", "a", "title"]
                ),
                inner,
                max_size=2,
            )
        ),
    )
)
def test_foreign_json_gives_a_value_or_undecodable(tree: object) -> None:
    text = json.dumps(tree, default=str)
    for annotation in (MISSING, list[str], Page, Everything):
        try:
            coder_for(annotation).loads(text)
        except Undecodable:
            continue


@settings(max_examples=200, deadline=None)
@given(VALUES, st.data())
def test_a_mutated_text_gives_a_value_or_undecodable(value: object, data: st.DataObject) -> None:
    text = coder_for(MISSING).dumps(value)
    position = data.draw(st.integers(0, len(text)))
    mutated = text[:position] + data.draw(st.text(max_size=3)) + text[position + data.draw(st.integers(0, 3)) :]
    for annotation in (MISSING, Everything):
        try:
            coder_for(annotation).loads(mutated)
        except Undecodable:
            continue


def search(query: str, limit: int = 10, *, client: object = None) -> list[str]:
    return []


def test_a_call_is_told_apart_by_its_data_and_not_by_its_clients() -> None:
    first = encode_call(search, ("a",), {"client": Plain()})
    assert first == encode_call(search, (), {"client": Plain(), "query": "a"})
    assert first[1] != encode_call(search, ("b",), {"client": Plain()})[1]
    assert json.loads(first[0]) == {"query": "a", "client": {"$opaque": "Plain"}, "limit": 10}
    values = [Page(title="a"), Page(title="b"), Point(1), Point(2), Colour.RED, Colour.PAIR, Pair("a", 1), Size.BIG, 3]
    digests = {encode_call(search, (value,), {})[1] for value in values}
    assert len(digests) == 9


def test_the_digest_of_a_call_ignores_the_order_of_dicts_and_sets() -> None:
    one: Any = {"a": {1: "x", (2, 3): "y"}, "b": 2}
    two: Any = {"b": 2, "a": {(2, 3): "y", 1: "x"}}
    assert encode_call(search, (one,), {})[1] == encode_call(search, (two,), {})[1]
    assert encode_call(search, (one,), {})[0] != encode_call(search, (two,), {})[0]


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        raise RuntimeError("hash")


def test_encoding_a_call_never_raises() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)

    class Broken(dict[str, int]):
        def __iter__(self) -> Any:
            raise RuntimeError("iter")

        keys = items = values = __iter__

    odd: list[Any] = [
        Hostile(),
        cycle,
        laughs(),
        nested(5000),
        Broken(a=1),
        lambda: 1,
        Plain,
        threading.Lock(),
        {Plain(): 1},
    ]
    odd += [
        pydantic.SecretStr("x"),
        "\ud800",
        math.nan,
        10**5000,
        Page.model_construct(),
        socket.socket,
        range(3),
        ValueError("x"),
    ]
    for value in odd:
        text, digest = encode_call(search, (value,), {})
        assert json.loads(text)
        assert len(digest) == 16
        assert "0x" not in text or value == 10**5000
        assert encode_call(search, (value,), {}) == (text, digest)
    assert encode_call(search, (1, 2, 3, 4), {"no": 1})[0] == '{"*":{"$tuple":[1,2,3,4]},"**":{"no":1}}'
    assert encode_call(print, ("a",), {})[1]
    assert encode_call(Hostile.__repr__, (Hostile(),), {})[0] == '{"self":{"$opaque":"Hostile"}}'


def test_variadic_calls_are_written_by_parameter() -> None:
    def variadic(first: int, /, *rest: int, **more: int) -> None: ...

    text, _ = encode_call(variadic, (1, 2, 3), {"x": 4})
    assert json.loads(text) == {"first": 1, "rest": {"$tuple": [2, 3]}, "more": {"x": 4}}


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from holdfast.codec import *\n"
        "class Client: pass\n"
        "def f(*args, **kwargs): ...\n"
        "words = {'tides', 'moon', 'sea', ('a', 1), b'x', frozenset({'p', 'q', 'r'})}\n"
        "mixed = (words, dict.fromkeys({'a', 'b', 'c'}, 1), Client(), {Client: {'z', 'y'}})\n"
        "print(encode_call(f, mixed, {'k': words})[1],"
        " coder_for(MISSING).dumps(words), encode_input(f, (words,), {'k': 1}))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


async def agent(page: Page, when: dt.datetime, depth: int = 1, *names: str, note: Any = None, **more: Pair) -> str:
    return ""


def test_agent_input_comes_back_typed_by_the_signature() -> None:
    page, when = Page(title="t"), dt.datetime(2024, 1, 1, tzinfo=PARIS)
    for args, kwargs in (
        ((page, when), {}),
        ((page, when, 2, "a", "b"), {"note": (1,), "x": Pair("a", 1), "$y": Pair("b", 2)}),
        ((), {"when": when, "page": page, "note": {"$tuple": 1}}),
    ):
        given = bind_input(agent, args, kwargs)
        back_args, back_kwargs = decode_input(agent, given.text, given.defaults)
        assert bind_input(agent, back_args, back_kwargs).digest == given.digest
        assert back_args[:2] == (page, when)
        assert all(type(back_kwargs[name]) is Pair for name in back_kwargs if name in ("x", "$y"))


def test_defaults_are_stored_with_the_input() -> None:
    text, digest = encode_input(search, ("a",), {})
    assert text == '{"query":"a","limit":10,"client":null}'
    assert decode_input(search, text) == (("a", 10), {"client": None})
    assert decode_input(search, '{"query":"a"}') == (("a",), {})
    assert decode_input(search, '{"limit":3,"query":"a"}') == (("a", 3), {})
    assert decode_input(search, '{"query":"a","client":null}') == (("a",), {"client": None})
    given = bind_input(search, ("a",), {})
    assert (given.text, given.given, given.defaults) == (text, digest, ("limit", "client"))
    assert Input.read(text, given.defaults) == given
    explicit = bind_input(search, ("a",), {"client": None, "limit": 10})
    assert explicit.digest == given.digest == Input.read(text, ()).digest
    assert explicit.given != given.given


def test_a_default_that_cannot_be_stored_is_left_to_the_code() -> None:
    sentinel = Plain()

    def odd(a: int, b: Any = sentinel, c: int = None, d: Plain = sentinel, e: int = 5) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    given = bind_input(odd, (1,), {})
    assert (given.text, given.defaults) == ('{"a":1,"e":5}', ("e",))
    assert defaults_of(odd) == {"e": "5"}
    assert decode_input(odd, given.text) == ((1,), {"e": 5})


def test_a_mutable_default_is_stored_as_it_is_at_the_start() -> None:
    seen: list[int] = []

    def gather(into: list[int] = seen) -> None: ...

    assert bind_input(gather, (), {}).text == '{"into":[]}'
    assert encode_call(gather, (), {})[0] == '{"into":[]}'
    seen.append(1)
    assert bind_input(gather, (), {}).text == '{"into":[1]}'
    assert encode_call(gather, (), {})[0] == '{"into":[1]}'


def test_a_default_is_not_missed_when_the_agent_does_not_take_it_any_more() -> None:
    given = bind_input(search, ("a",), {})

    def simpler(query: str) -> None: ...

    assert decode_input(simpler, given.text, given.defaults) == (("a",), {})
    with pytest.raises(Undecodable, match="limit"):
        decode_input(simpler, bind_input(search, ("a", 3), {}).text, ("client",))


def test_calls_are_written_with_defaults_and_recognised_by_what_was_given() -> None:
    def two(a: int, b: int = 2, *, c: str = "x") -> None: ...

    def more(a: int, b: int = 99, *, c: str = "x", d: bool = False) -> None: ...

    def odd(a: int = 0, /, *rest: int, c: str = "x", **others: int) -> None: ...

    assert encode_call(two, (1,), {})[0] == '{"a":1,"b":2,"c":"x"}'
    assert encode_call(two, (1, 5), {})[0] == '{"a":1,"b":5,"c":"x"}'
    assert encode_call(two, (1,), {"c": "y"})[0] == '{"a":1,"c":"y","b":2}'
    assert encode_call(two, (), {"a": 1, "b": 3, "c": "y"})[0] == '{"a":1,"b":3,"c":"y"}'
    assert encode_call(two, (1,), {})[1] == encode_call(more, (1,), {})[1]
    assert encode_call(two, (1,), {})[1] != encode_call(two, (1, 2), {})[1]
    assert json.loads(encode_call(odd, (), {})[0]) == {"a": 0, "c": "x"}
    assert json.loads(encode_call(odd, (1, 2, 3), {"z": 4})[0]) == {
        "a": 1,
        "rest": {"$tuple": [2, 3]},
        "others": {"z": 4},
        "c": "x",
    }
    for encode in (encode_call, encode_input):
        assert [encode(two, (1,), {}) for _ in range(3)] == [encode(two, (1,), {})] * 3


def test_wrong_agent_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="query"):
        encode_input(search, (), {})
    with pytest.raises(UsageError, match="nope"):
        encode_input(search, ("a",), {"nope": 1})
    with pytest.raises(Unserialisable, match="query cannot be stored: expected str, found int"):
        encode_input(search, (5,), {})
    with pytest.raises(Unserialisable, match="client cannot be stored"):
        encode_input(search, ("a",), {"client": Plain()})


def test_input_inserted_by_another_client_is_undecodable_and_nothing_else() -> None:
    for text in (
        "",
        "[]",
        "{}",
        '{"query":5}',
        '{"query":"a","gone":1}',
        "null",
        '{"query":{"$nope":1}}',
        "[" * 9000,
        '{"query":NaN}',
    ):
        with pytest.raises(Undecodable):
            decode_input(search, text)
    for text in ('{"names":1,"page":{"title":""},"when":{"$datetime":"2024-01-01"}}', '{"more":[]}'):
        with pytest.raises(Undecodable):
            decode_input(agent, text)


def test_the_result_annotation_is_resolved_or_missing() -> None:
    def unannotated(): ...  # type: ignore[no-untyped-def]

    def unresolvable() -> NoSuchThing: ...  # type: ignore[name-defined]  # noqa: F821

    def half(first: NoSuchThing) -> Page: ...  # type: ignore[name-defined,empty-body]  # noqa: F821

    assert result_annotation(search) == list[str]
    assert result_annotation(agent) is str
    assert result_annotation(unannotated) is MISSING
    assert result_annotation(unresolvable) is MISSING
    assert result_annotation(half) is Page


def test_nothing_in_the_package_can_load_code_from_data() -> None:
    banned = {"pickle", "marshal", "dill", "shelve", "cloudpickle", "jsonpickle"}
    for path in pathlib.Path(next(iter(holdfast.__path__))).rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            names: set[str] = set()
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").partition(".")[0]}
            assert not names & banned, path
            if path.parent.name == "codec":
                assert not (isinstance(node, ast.Name) and node.id in {"eval", "exec", "__import__", "importlib"}), path


def test_pydantic_is_loaded_with_the_first_annotation_that_needs_it() -> None:
    code = (
        "import sys, dataclasses, holdfast\n"
        "from holdfast.codec import *\n"
        "@dataclasses.dataclass\n"
        "class Point: x: int\n"
        "def plain(a: list[str], b: int | None = None) -> dict[str, object]: ...\n"
        "def model(a: Point) -> Point: ...\n"
        "coder_for(result_annotation(plain)).roundtrip({'a': (1,)})\n"
        "decode_input(plain, encode_input(plain, (['x'],), {})[0])\n"
        "encode_call(model, (Point(1),), {})\n"
        "decode_error(encode_error(ValueError(Point(1))))\n"
        "print(sorted({'pydantic', 'pydantic_core'} & set(sys.modules)))\n"
        "coder_for(Point).roundtrip(Point(1))\n"
        "print('pydantic' in sys.modules)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n") == ["[]", "True", ""]


def test_recursive_annotations_are_understood_in_a_moment() -> None:
    began = time.perf_counter()
    assert coder_for(Fork).roundtrip({"left": {"left": None, "right": None}, "right": None})[0]
    assert coder_for(Tree).roundtrip([1, {"a": [2]}])[1] == [1, {"a": [2]}]
    assert time.perf_counter() - began < 60


def test_typing_extensions_typed_dicts_work_like_the_standard_ones() -> None:
    class Other(typing_extensions.TypedDict, total=False):
        a: typing_extensions.Required[int]
        b: Page

    assert coder_for(Other).roundtrip({"a": 1, "b": Page(title="t")})[1] == {"a": 1, "b": Page(title="t")}
    refused(Other, {"b": Page(title="t")})
