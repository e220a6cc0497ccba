"""Classes of data are what the standard dataclasses are, only cheaper to make."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from holdfast.data import brisk, data


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
