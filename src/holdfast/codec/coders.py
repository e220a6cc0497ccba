"""Coders, which write and read the values of one annotation. Those that need pydantic are in `models`."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Generic, TypeVar

from holdfast.base.secrets import SECRETS
from holdfast.codec.fastjson import quote
from holdfast.codec.foreign import refuse
from holdfast.codec.refusal import Refused, describe, type_name
from holdfast.codec.shapes import Shape
from holdfast.codec.swift import copy_swiftly
from holdfast.codec.tags import ATOMS
from holdfast.codec.text import LARGE, Tree, from_text, to_text_and_tree
from holdfast.errors import Undecodable, Unserialisable

T = TypeVar("T")


class _Missing(Enum):
    MISSING = "no annotation"


MISSING: Final = _Missing.MISSING


class Coder(Generic[T]):
    """Writes and reads the values of one annotation; get it from `coder_for`.

    `problem` says why values of this annotation cannot be stored at all, so that a decorator can refuse early.
    This class is the coder for what has no annotation: exact builtins, written without loss.
    """

    problem: str | None = None
    #: The tags that values of this annotation may have; None: any.
    tags: frozenset[str] | None = None

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation

    def dumps(self, value: T, *, what: str = "value") -> str:
        """The text of a value; raises `Unserialisable` with the path of the part that cannot be stored."""
        return self._text_and_tree(value, what)[0]

    def loads(self, text: str, *, what: str = "value") -> T:
        """The value of a text; raises `Undecodable` if it is damaged or does not fit the annotation."""
        value: T = _read(text, what)
        return value

    def roundtrip(self, value: T, *, what: str = "value") -> tuple[str, T]:
        """The text of a value and what it reads back as, which is what the caller of a step gets."""
        text, tree = self._text_and_tree(value, what)
        if type(value) in ATOMS:
            return text, value
        copied = copy_swiftly(value) if tree is not None and tree.value is value else None
        # What has the shape of an annotation has it when it is read: nothing is lost on the way.
        return text, _read(text, what) if copied is None else copied

    def _text_and_tree(self, value: T, what: str) -> tuple[str, Tree | None]:
        try:
            found = to_text_and_tree(value, refuse)
        except Refused as refused:
            raise refused.error(what) from None
        if SECRETS.is_any:
            unrevealed(found[0], what)
        return found


def unrevealed(text: str, what: str) -> str:
    """The text, unless what a Secret holds is in it."""
    if SECRETS.is_in(text):
        raise Unserialisable(
            f"{what} cannot be stored: it has the value of a Secret in it, and secrets are not stored; "
            "fetch it where it is used.",
            path=what,
        )
    return text


def _read(text: str, what: str) -> Any:
    try:
        return from_text(text)
    except ValueError as error:
        raise Undecodable(f"{what} cannot be read: the stored text is damaged or foreign ({error}).") from None


class ShapeCoder(Coder[T]):
    """For annotations made of builtins: the format loses nothing of them, so that only the shape is checked."""

    def __init__(self, annotation: object, shape: Shape) -> None:
        super().__init__(annotation)
        self.tags = shape.tags
        self._shape = shape
        self._kinds = shape.kinds or frozenset()

    def _text_and_tree(self, value: T, what: str) -> tuple[str, Tree | None]:
        try:
            if type(value) not in self._kinds:
                self._shape.check(value)
            if type(value) is str and len(value) <= LARGE:  # type: ignore[arg-type]
                found: tuple[str, Tree | None] = (quote(value), None)  # type: ignore[arg-type]
            else:
                found = to_text_and_tree(value, refuse, known_plain=self._shape.proves_json)
        except Refused as refused:
            raise refused.error(what) from None
        if SECRETS.is_any:
            unrevealed(found[0], what)
        return found

    def loads(self, text: str, *, what: str = "value") -> T:
        try:
            value: T = _read(text, what)
            self._shape.check(value)
            return value
        except Refused as refused:
            expected = describe(self.annotation)
            raise Undecodable(
                f"{refused.where(what)} does not fit {expected}, which the code asks for now: {refused.why}"
            ) from None


class HopelessCoder(Coder[T]):
    """For annotations that no value can be read back as."""

    def __init__(self, annotation: object, problem: str) -> None:
        super().__init__(annotation)
        self.problem = problem

    def _text_and_tree(self, value: T, what: str) -> tuple[str, Tree | None]:
        if value is None:
            return "null", None
        raise Refused(value, f"found {type_name(value)}. {self.problem}").error(what)

    def loads(self, text: str, *, what: str = "value") -> T:
        if text == "null":
            return None  # type: ignore[return-value]
        raise Undecodable(f"{what} cannot be read. {self.problem}")
