"""Classes of data are what the standard dataclasses are, only cheaper to make."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from holdfast.base.data import brisk, data, mutable


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    name: str
    parts: tuple[int, ...] = ()
    hidden: Any = dataclasses.field(default=None, repr=False, compare=False)


@data
class Ours:
    name: str
    parts: tuple[int, ...] = ()
    hidden: Any = dataclasses.field(default=None, repr=False, compare=False)


@brisk
class Brisk:
    name: str
    parts: tuple[int, ...] = ()
    hidden: Any = dataclasses.field(default=None, repr=False, compare=False)


@data
class Empty:
    pass


@data
class Checked:
    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("no name")

    def __repr__(self) -> str:
        return "its own"


@pytest.mark.parametrize("kind", [Ours, Brisk])
def test_it_is_equal_hashed_shown_and_copied_as_a_standard_one(kind: Any) -> None:
    one = kind("a", (1, 2), hidden=[])
    standard = Standard("a", (1, 2), hidden=[])
    assert repr(one) == repr(standard).replace("Standard", kind.__name__)
    assert one == kind("a", (1, 2), hidden="something else") != kind("a", (1, 3))
    assert one != standard
    assert len({one, kind("a", (1, 2)), kind("b")}) == 2
    assert dataclasses.replace(one, name="b") == kind("b", (1, 2))
    assert dataclasses.asdict(one) == dataclasses.asdict(standard)
    assert kind.__match_args__ == Standard.__match_args__
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert not hasattr(one, "__dict__")


def test_it_cannot_be_changed() -> None:
    one = Ours("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="name"):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="parts"):
        del one.parts
    with pytest.raises(AttributeError):
        one.other = 1  # type: ignore[attr-defined]
    Brisk("a").name = "b"  # type: ignore[misc] # only the type checker says so


def test_what_a_class_says_of_itself_counts() -> None:
    assert repr(Checked("a")) == "its own"
    assert Checked("a") == Checked("a")
    with pytest.raises(ValueError, match="no name"):
        Checked("")
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"


@dataclasses.dataclass(slots=True)
class StandardParts:
    """With everything that a field may be."""

    name: str
    parts: list[int] = dataclasses.field(default_factory=list)
    mark: str = dataclasses.field(default="m", init=False)
    marks: list[str] = dataclasses.field(default_factory=list, init=False)
    later: int = dataclasses.field(init=False, repr=False, compare=False)
    size: int = dataclasses.field(default=1, kw_only=True)
    must: bool = dataclasses.field(kw_only=True)


@mutable
class Parts:
    """With everything that a field may be."""

    name: str
    parts: list[int] = dataclasses.field(default_factory=list)
    mark: str = dataclasses.field(default="m", init=False)
    marks: list[str] = dataclasses.field(default_factory=list, init=False)
    later: int = dataclasses.field(init=False, repr=False, compare=False)
    size: int = dataclasses.field(default=1, kw_only=True)
    must: bool = dataclasses.field(kw_only=True)


def test_its_fields_and_its_signature_are_those_of_a_standard_one() -> None:
    for kind, standard in ((Ours, Standard), (Parts, StandardParts)):
        ours, theirs = (str(inspect.signature(each)).replace("<factory>", "…") for each in (kind, standard))
        assert ours.replace(repr(dataclasses.MISSING), "…") == theirs
        assert kind.__match_args__ == standard.__match_args__
        assert kind.__annotations__ == standard.__annotations__
        assert dataclasses.is_dataclass(kind)
        shown = [[repr(each) for each in dataclasses.fields(one)] for one in (kind, standard)]
        assert shown[0] == shown[1]


def test_a_mutable_one_is_built_and_compared_as_a_standard_one() -> None:
    one, standard = Parts("a", must=True), StandardParts("a", must=True)
    assert repr(one) == repr(standard).replace("StandardParts", "Parts")
    assert one == Parts("a", [], size=1, must=True) != Parts("a", [1], must=True)
    assert one.parts is not Parts("a", must=True).parts
    one.later = standard.later = 3
    one.parts.append(1)
    assert one == Parts("a", [1], must=True)
    assert (one.mark, one.marks, one.later) == ("m", [], 3)
    with pytest.raises(TypeError, match="hash"):
        hash(one)
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required keyword-only argument: 'must'"):
        Parts("a")  # type: ignore[call-arg]


def test_a_default_that_all_objects_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @data
        class Shared:
            parts: list[int] = []  # noqa: RUF012


def test_it_is_not_derived_from() -> None:
    with pytest.raises(TypeError, match="derives"):

        @data
        class More(Ours):
            more: int = 0
