"""Coders, which write and read the values of one annotation. Those that need pydantic are in `models`."""

from __future__ import annotations

from enum import Enum
from typing import Final, Generic, TypeVar

from holdfast.base.secrets import SECRETS
from holdfast.codec.fastjson import quote
from holdfast.codec.foreign import refuse
from holdfast.codec.refusal import Refused, describe, type_name
from holdfast.codec.shapes import Shape
from holdfast.codec.tags import ATOMS
from holdfast.codec.text import LARGE, from_text, to_text
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
        try:
            text = to_text(value, refuse)
        except Refused as refused:
            raise refused.error(what) from None
        return unrevealed(text, what) if SECRETS.is_any else text

    def loads(self, text: str, *, what: str = "value") -> T:
        """The value of a text; raises `Undecodable` if it is damaged or does not fit the annotation."""
        try:
            return from_text(text)  # type: ignore[no-any-return]
        except ValueError as error:
            raise _damaged(what, error) from None

    def roundtrip(self, value: T, *, what: str = "value") -> tuple[str, T]:
        """The text of a value and what it reads back as, which is what the caller of a step gets."""
        text = self.dumps(value, what=what)
        if type(value) in ATOMS:
            return text, value
        return text, self.loads(text, what=what)


def unrevealed(text: str, what: str) -> str:
    """The text, unless what a Secret holds is in it."""
    if SECRETS.is_in(text):
        raise Unserialisable(
            f"{what} cannot be stored: it has the value of a Secret in it, and secrets are not stored; "
            "fetch it where it is used.",
            path=what,
        )
    return text


def _damaged(what: str, error: ValueError) -> Undecodable:
    return Undecodable(f"{what} cannot be read: the stored text is damaged or foreign ({error}).")


class ShapeCoder(Coder[T]):
    """For annotations made of builtins: the format loses nothing of them, so that only the shape is checked."""

    def __init__(self, annotation: object, shape: Shape) -> None:
        super().__init__(annotation)
        self.tags = shape.tags
        self._shape = shape
        self._kinds = shape.kinds or frozenset()

    def dumps(self, value: T, *, what: str = "value") -> str:
        try:
            if type(value) not in self._kinds:
                self._shape.check(value)
            if type(value) is str and len(value) <= LARGE:  # type: ignore[arg-type]
                text = quote(value)  # type: ignore[arg-type]
            else:
                text = to_text(value, refuse, known_plain=self._shape.proves_json)
        except Refused as refused:
            raise refused.error(what) from None
        return unrevealed(text, what) if SECRETS.is_any else text

    def loads(self, text: str, *, what: str = "value") -> T:
        try:
            value: T = from_text(text)
            self._shape.check(value)
            return value
        except ValueError as error:
            raise _damaged(what, error) from None
        except Refused as refused:
            expected = describe(self.annotation)
            raise Undecodable(
                f"{refused.where(what)} does not fit {expected}, which the code asks for now: {refused.why}"
            ) from None

    def roundtrip(self, value: T, *, what: str = "value") -> tuple[str, T]:
        # What has the shape has it when it is read: nothing is lost on the way.
        text = self.dumps(value, what=what)
        return text, value if type(value) in ATOMS else super().loads(text, what=what)


class HopelessCoder(Coder[T]):
    """For annotations that no value can be read back as."""

    def __init__(self, annotation: object, problem: str) -> None:
        super().__init__(annotation)
        self.problem = problem

    def dumps(self, value: T, *, what: str = "value") -> str:
        if value is None:
            return "null"
        raise Refused(value, f"found {type_name(value)}. {self.problem}").error(what)

    def loads(self, text: str, *, what: str = "value") -> T:
        if text == "null":
            return None  # type: ignore[return-value]
        raise Undecodable(f"{what} cannot be read. {self.problem}")
