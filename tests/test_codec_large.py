"""What is large goes other ways through the codec, and comes out the same: text, value and refusal."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import math
import random
import struct
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal

import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from holdfast.codec import MISSING, coder_for, tags
from holdfast.codec.comparison import _are_same, check_same, is_same
from holdfast.codec.fastjson import decode, encode, encode_sorted
from holdfast.codec.foreign import pack_named
from holdfast.codec.members import collector_tells, iterated, members_of
from holdfast.codec.models import ModelCoder
from holdfast.codec.order import in_order
from holdfast.codec.proofs import proof_of
from holdfast.codec.swift import _reader, _writer, are_plain, decode_swiftly, encode_swiftly
from holdfast.codec.tags import pack
from holdfast.codec.text import from_text, plain_tree
from holdfast.errors import Undecodable, Unserialisable


class Text(str):
    """Equal to a str, and not one."""


class Sort(enum.Enum):
    A = "a"
    B = "b"


class Level(enum.IntEnum):
    LOW = 1


class Mixed(enum.Enum):
    A = "1"
    B = 1


class Part(BaseModel):
    kind: Literal["part"] = "part"
    text: str


class Other(BaseModel):
    kind: Literal["other"] = "other"
    size: float = 0.5


class Longer(Part):
    more: str = ""


class Message(BaseModel):
    role: Literal["user", "assistant"]
    content: str | None = None
    n: int = 0
    score: float = 0.0
    seen: bool = False
    sort: Sort = Sort.A
    level: Level = Level.LOW
    either: int | str | None = None
    number: int | float = 0
    data: Any = None
    labels: dict[str, int] = {}
    parts: list[Annotated[Part | Other, Field(discriminator="kind")]] = []
    below: list[Message] = []


class Unclear(BaseModel):
    mixed: Mixed = Mixed.A
    one: Part | Other | None = None


@dataclasses.dataclass
class Simple:
    text: str
    numbers: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Slotted:
    text: str
    inner: Simple | None = None


class Row(typing_extensions.TypedDict):
    a: str
    b: typing.NotRequired[int]
    c: float


@dataclasses.dataclass
class Table:
    rows: list[Row]
    name: str = ""


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    text: str


class Bound(BaseModel):
    text: Annotated[str, Field(max_length=3)]
    n: Annotated[int, Field(gt=0)] = 1
    items: Annotated[list[int], Field(max_length=2)] = []


class Aliased(BaseModel):
    text: str = Field(alias="other")
    other: str = ""


class Left(BaseModel):
    text: str = Field(exclude=True)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    text: str


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    text: str
    sort: Sort = Sort.A


class Private(BaseModel):
    text: str
    _hidden: int = 1


class Made(BaseModel):
    text: str

    def model_post_init(self, context: Any) -> None:
        self.text += "!"


class Checked(BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def upper(cls, text: str) -> str:
        return text.upper()


class Written(BaseModel):
    text: str

    @pydantic.field_serializer("text")
    def short(self, text: str) -> str:
        return text[:3]


@dataclasses.dataclass
class After:
    text: str

    def __post_init__(self) -> None:
        self.text += "!"


@dataclasses.dataclass
class NotGiven:
    text: str = dataclasses.field(init=False, default="x")


OPEN = Open.model_validate({"text": "x", "b": 2})
ODD: list[Any] = [
    *("", "x", "$", "$set", "é", "\x7f", "\ud800", "user", "part", " x ", Text("x"), "a" * 700),
    *(0, 1, -1, 2**63, 10**700, True, None, 0.5, 1.0, -0.0, 1e-7, 1e16, 1e300, math.nan, math.inf),
    *([], {}, [1, "x"], ["$"], {"a": 1}, {"$set": [1]}, {1: 2}, {Text("a"): 1}, (1, 2), {1}, [[[]]], b"x", object()),
    *(Sort.A, Level.LOW, Mixed.A, Mixed.B, Part(text="x"), Other(), Longer(text="x"), Simple("x")),
]
KINDS: list[type] = [
    Message,
    Part,
    Longer,
    Simple,
    Slotted,
    Table,
    Stripped,
    Bound,
    Aliased,
    Left,
    Open,
    Strict,
    Private,
]
KINDS += [Made, Checked, Written, After, NotGiven, Unclear]


def outcome(write: Callable[..., Any], value: Any) -> Any:
    """What it gives, or the place that it refuses."""
    try:
        return write(value, what="it")
    except Unserialisable as error:
        return error.path


def unproven(annotation: Any) -> ModelCoder[Any]:
    coder = ModelCoder[Any](annotation)
    coder._proof = None
    return coder


def an_object(pick: random.Random, kind: Any, *, odd: float, depth: int = 0) -> Any:
    """One that is as declared, or nearly; made without its class, which would refuse it."""
    names = (
        kind.__pydantic_fields__ if hasattr(kind, "__pydantic_fields__") else [f.name for f in dataclasses.fields(kind)]
    )
    made = kind.__new__(kind)
    values = {name: a_field(pick, kind, name, odd=odd, depth=depth) for name in names}
    if pick.random() < odd / 3:
        values.pop(pick.choice(list(values)))
    if hasattr(kind, "__pydantic_fields__"):
        for name in ("fields_set", "extra", "private"):
            object.__setattr__(made, f"__pydantic_{name}__", {"_hidden": 1} if name == "private" else None)
        made.__dict__.update(values)
    else:
        for name, value in values.items():
            setattr(made, name, value)
    if pick.random() < odd / 3 and hasattr(made, "__dict__"):
        made.__dict__["unknown"] = 1
    return made


def a_field(pick: random.Random, kind: Any, name: str, *, odd: float, depth: int) -> Any:
    if pick.random() < odd:
        return pick.choice(ODD)
    below = depth < 2
    made: dict[str, Callable[[], Any]] = {
        "role": lambda: pick.choice(("user", "assistant")),
        "kind": lambda: "part" if issubclass(kind, Part) else "other",
        "content": lambda: pick.choice((None, "x", "é" * 20, "$5", "$set", "\x7f")),
        "n": lambda: pick.choice((0, 5, 10**20)),
        "score": lambda: pick.choice((0.0, 0.25, 1e-7, -3.5)),
        "seen": lambda: pick.random() < 0.5,
        "sort": lambda: pick.choice(list(Sort)),
        "level": lambda: Level.LOW,
        "mixed": lambda: pick.choice(list(Mixed)),
        "either": lambda: pick.choice((None, 1, "1", "x")),
        "number": lambda: pick.choice((1, 1.0, 2.5)),
        "data": lambda: pick.choice((None, 1, 1.0, True, "x", [1, {"a": [None]}], {"$a": 1, "b": 2}, {"$set": []})),
        "labels": lambda: {"a": 1, "$b": 2},
        "parts": lambda: [pick.choice((Part(text="x"), Other())) for _ in range(pick.randrange(20))],
        "one": lambda: pick.choice((None, Part(text="x"))),
        "below": lambda: [an_object(pick, Message, odd=odd, depth=depth + 1) for _ in range(pick.randrange(3) * below)],
        "numbers": lambda: [1, 2, 3],
        "inner": lambda: pick.choice((None, Simple("x"))),
        "rows": lambda: [pick.choice(({"a": "x", "b": 1, "c": 0.5}, {"a": "x", "c": 0.5})) for _ in range(5)],
        "size": lambda: 0.5,
        "items": lambda: [1],
    }
    return made.get(name, lambda: pick.choice(("x", "yes", "é", "$5")))()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_read_back_is_written_as_what_is(kind: Any) -> None:
    pick = random.Random(kind.__name__)
    proven = 0
    for annotation in (kind, list[kind], dict[str, kind]):
        fast, slow = coder_for(annotation), unproven(annotation)
        for n in range(50):
            odd = pick.choice((0, 0, 0.02, 0.2))
            several = [an_object(pick, kind, odd=odd) for _ in range(pick.choice((1, 3, 20)))]
            value = several[0] if annotation is kind else several if n % 2 else dict(zip("abc", several, strict=False))
            expected = outcome(slow.roundtrip, value)
            if isinstance(expected, str):
                assert outcome(fast.roundtrip, value) == outcome(fast.dumps, value) == expected
                continue
            text, back = fast.roundtrip(value, what="it")
            assert text == expected[0]
            assert fast.dumps(value) == text
            check_same(expected[1], back, "it")
            check_same(expected[1], fast.loads(text), "it")
            proof = typing.cast(ModelCoder[Any], fast)._proof
            proven += proof is not None and proof(value)
    assert (proven > 0) == (kind in KINDS[:6])


@pytest.mark.parametrize("kind", KINDS[6:])
def test_a_class_that_may_change_what_it_reads_is_read_back(kind: Any) -> None:
    assert proof_of(pydantic.TypeAdapter(kind).core_schema) is None


def test_a_value_that_contains_itself_is_refused() -> None:
    class Loop(BaseModel):
        inner: list[Loop] = []
        data: Any = None

    loop = Loop()
    loop.inner.append(loop)
    other = Loop(data=[])
    other.data.append(other.data)
    for value in (loop, other):
        with pytest.raises(Unserialisable):
            coder_for(Loop).dumps(value)


def test_a_value_that_explodes_is_refused() -> None:
    class Held(BaseModel):
        items: list[list[list[list[list[list[int]]]]]] = []
        data: Any = None

    many: Any = [0] * 1000
    for _ in range(5):
        many = [many] * 1000
    with pytest.raises(Unserialisable):
        coder_for(Held).dumps(Held.model_construct(data=many, items=[]))


# The format.

ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(ODD[:25])
TREES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("b a $ é $set".split()), inner),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(TREES, st.integers(1, 3))
def test_small_and_large_values_are_written_alike(tree: Any, times: int) -> None:
    for value in (tree, [tree] * 70 * times, {f"key {n}": tree for n in range(70)}):
        coder = coder_for(MISSING)
        expected = outcome(lambda value, what: encode(pack(value, 0, pack_named)), value)
        text = outcome(coder.dumps, value)
        if text.startswith("it"):
            continue  # refused
        assert text == expected
        assert encode(pack(coder.loads(text), 0, pack_named)) == text


@settings(max_examples=100, deadline=None)
@given(TREES.map(lambda tree: json.loads(json.dumps(pack(tree, 0, pack_named)))))
def test_trees_are_put_in_order_as_json_does(tree: Any) -> None:
    for value in (tree, [tree] * 20, [tree, [tree], {"z": tree, "a": [tree, {"y": 1, "b": tree}]}]):
        known = plain_tree(value)
        if known is not None:
            ordered = in_order(value, known.depth)
            assert encode(ordered) == encode_sorted(value)
            assert encode_swiftly(ordered) in (None, encode_sorted(value).encode())
            assert in_order(ordered, known.depth) is ordered


def test_pydantic_core_is_used() -> None:
    assert _writer() is not None
    assert _reader() is not None


def containers_with_odd_keys() -> list[Any]:
    shrunk: dict[Any, Any] = {1: "gone", "a": "left"}
    del shrunk[1]
    ordinary = [[], {}, ["a"], {"a": "b"}, {"b": {}, "c": []}, vars(Part(text="x"))]
    mixed = [*ordinary, [None, 1], {"a": 1} | {"b": 2.5}]
    return [
        *([each] for each in mixed),
        *(
            [*around, each, *around]
            for each in ({}, shrunk, {"a": Text("b")}, {"a": b""})
            for around in (ordinary, mixed)
        ),
        *(
            [*around, {key: "a", "z": "b"}, *around]
            for key in (1, None, True, 1.5, Text("a"), ("a",), b"a")
            for around in (ordinary, mixed)
        ),
        [{Text("a"): "b"}],
        [{"a": "b", Text("b"): "c"}],
    ]


@pytest.mark.parametrize("containers", containers_with_odd_keys(), ids=repr)
def test_the_collector_and_iterators_find_the_same_members(containers: list[Any]) -> None:
    assert collector_tells()
    found, expected = members_of(containers), iterated(containers)
    is_plain = found is not None and tags.ATOMS | {list, dict} >= found[1]
    was_plain = expected is not None and tags.ATOMS | {list, dict} >= expected[1]
    assert is_plain == was_plain
    if found is not None and expected is not None:
        assert found[1] == expected[1] == set(map(type, found[0]))
        assert sorted(id(each) for each in expected[0] if type(each) is not str) == sorted(
            id(each) for each in found[0] if type(each) is not str
        )


def test_floats_are_written_and_read_alike() -> None:
    pick = random.Random(5)
    floats = [struct.unpack("d", pick.randbytes(8))[0] for _ in range(20_000)]
    floats += [pick.random() * 10 ** pick.randrange(-6, 18) for _ in range(20_000)]
    floats += [float(pick.randrange(-(10**17), 10**17)) for _ in range(2000)]
    finite = [each for each in floats if math.isfinite(each)]
    assert repr(decode_swiftly(encode(finite))) == repr(finite)
    plain = [each for each in floats if are_plain([each])]
    assert len(plain) > 15_000
    assert are_plain(plain)
    assert encode_swiftly(plain) == encode(plain).encode()
    for odd in (1e16, -1e17, 9.9e-5, 5e-324, math.nan, math.inf, -math.inf):
        assert not are_plain([odd])
        assert not are_plain([0.5, odd])
        assert not are_plain([odd, 0.5])


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1e400",
            "-0",
            "01",
            "1.",
            ".5",
            '"\\ud800"',
            '"\\ud83d\\ude00"',
            '"\x7f"',
            '"\x01"',
            "NaN",
            "-Infinity",
            "\ufeff1",
        ),
        *(
            '{"a":1,"b":2,"a":3}',
            "1" * 4400,
            " [1] ",
            "[1,]",
            "[1]x",
            '"\ud800"',
            "[" * 201 + "]" * 201,
            '"é"',
            "[1\x0b]",
        ),
        *("[" * 202 + "]" * 202, '{"a":' * 201 + "1" + "}" * 201, '"$"', '["$set"]', '{"$set":[1]}', '{ "$set" :[1]}'),
        *(
            '{"$a":1}',
            '{"$set":[1],"b":"$"}',
            '[{"a":"$set"}]',
            "nul",
            '{"a"}',
            "{1:2}",
            '"\\x"',
            '"\\u00g0"',
            "+1",
            "1e",
        ),
    ],
)
def test_a_large_text_is_read_as_a_small_one(text: str) -> None:
    def read(whole: str) -> str:
        try:
            return repr(from_text(whole))
        except ValueError:
            return "no"

    small, large = read(f"[{text}]"), read(f"[{text}{' ' * 3000}]")
    assert small == large


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='[]{}",:$0123456789.eE+-\\ ntu"abfrls', max_size=40))
def test_no_text_is_read_by_one_and_not_the_other(text: str) -> None:
    try:
        expected = repr(decode(text))
    except (ValueError, RecursionError):
        expected = "no"
    found = decode_swiftly(text)
    assert found is None or repr(found) == expected


# Columns.


def test_many_values_are_compared_as_one_is() -> None:
    pick = random.Random(9)
    for _ in range(200):
        kind = pick.choice((Part, Simple, Slotted, Message))
        ones = [an_object(pick, kind, odd=0) for _ in range(20)]
        twos = copy.deepcopy(ones)
        if pick.random() < 0.7:
            at = pick.randrange(20)
            twos[at] = an_object(pick, kind, odd=0.3)
        assert _are_same(ones, twos) == all(map(is_same, ones, twos))
    assert not is_same([{"a": 1}] * 30, [{"a": 1}] * 29 + [{"a": True}])
    assert not is_same([{"a": 1, "b": 2}] * 30, [{"a": 1, "b": 2}] * 29 + [{"b": 2, "a": 1}])
    assert not is_same([[1], [2, 3]] * 30, [[1, 2], [3]] * 30)
    assert not is_same([{"a": 1}] * 30, [{Text("a"): 1}] * 30)
    assert is_same([{"a": [1, "x"]}, [], 1, "x"] * 30, [{"a": [1, "x"]}, [], 1, "x"] * 30)


@pytest.mark.parametrize(
    "odd",
    [None, "x", 5, 10**700, math.nan, 1e-7, {"$a": 1}, {}, {1: 2}, Part(text="y"), Simple("x"), Sort.A, (1,), object],
)
def test_many_objects_are_packed_as_one_is(odd: Any) -> None:
    for many in (
        [Part(text="é")] * 20,
        [Simple("x", [1])] * 20,
        [{"a": 1, "b": "x"}] * 20,
        [1] * 20,
        [OPEN] * 20,
        [Simple("x"), {"a": Simple("y")}, Part(text="z"), [Part(text="z")]] * 10,
    ):
        for value in (many, [*many, odd], [odd, *many], [{"a": odd}, *many], [*many, Simple(odd)]):
            assert pack(value, 0, pack_named) == [pack(each, 1, pack_named) for each in value]
            assert encode(pack(value, 0, pack_named)) == encode([pack(each, 1, pack_named) for each in value])


OBJECTS = (
    st.builds(Simple, TREES, TREES) | st.builds(OPEN.__class__.model_construct) | st.sampled_from([(1, [2]), Sort.A])
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(TREES | OBJECTS, max_size=4) | st.dictionaries(st.text(max_size=2), TREES | OBJECTS), max_size=6)
)
def test_all_of_a_level_is_packed_as_one_by_one(values: list[Any]) -> None:
    many = values * 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tags, "_MANY", 1_000_000)
        expected = encode(pack(many, 0, pack_named))
    assert encode(pack(many, 0, pack_named)) == expected


@pytest.mark.parametrize(
    ("annotation", "fits", "odd"),
    [
        (list[dict[str, int]], {"a": 1}, [{"a": "x"}, {1: 1}, [], {"a": None}]),
        (list[list[str]], ["x"], [[1], "x", [Text("x")], (1,)]),
        (list[Row], {"a": "x", "c": 0.5}, [{"a": "x"}, {"a": 1, "c": 0.5}, {"a": "x", "b": "y", "c": 1.0}, None]),
        (list[Literal["a", "b"]], "a", ["c", Text("a"), 1]),
        (list[list[dict[str, list[float]]]], [{"a": [0.5]}], [[{"a": ["x"]}], [{"a": 1}], [[]]]),
        (dict[str, dict[str, str]], {"a": "x"}, [{"a": 1}, [], {1: "x"}]),
    ],
)
def test_what_does_not_fit_is_named_wherever_it_stands(annotation: Any, fits: Any, odd: list[Any]) -> None:
    coder = coder_for(annotation)
    for each in odd:
        for place in (0, 50):
            items = [fits] * place + [each] + [fits] * 50
            value = items if typing.get_origin(annotation) is list else {f"k{n}": v for n, v in enumerate(items)}
            where = f"it[{place}]" if type(value) is list else f"it.k{place}"
            with pytest.raises(Unserialisable) as caught:
                coder.dumps(value, what="it")
            assert caught.value.path.startswith(where)
            with suppress(Unserialisable), pytest.raises(Undecodable):
                coder.loads(coder_for(MISSING).dumps(value))
