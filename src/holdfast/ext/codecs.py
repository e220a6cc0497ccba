"""Codecs: how the result of a call is stored, if it is of a framework's own kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast.base.data import data
from holdfast.codec import Coder, coder_for, result_annotation
from holdfast.errors import Undecodable, Unserialisable

T = TypeVar("T")


@data
class Codec(Generic[T]):
    """How an adapter stores what its framework returns.

    `dump` makes a plain value of it (what JSON has), `load` is the way back; a record that does not load blocks the
    run. `outside` makes it of what the tool itself returns: of that speak `verify`, `holdfast resolve --happened` and
    `InDoubt.resolve`.

    Example: `ext.Codec(dump=lambda part: part.text, load=TextPart, outside=lambda text: TextPart(str(text)))`
    """

    dump: Callable[[T], Any]
    load: Callable[[Any], T]
    outside: Callable[[Any], T] | None = None


def returned(fn: Callable[..., Any]) -> Any:
    """What a function says it returns, for `returns=`.

    Example: `ext.Operation("send", "effect", returns=ext.returned(send))`
    """
    return result_annotation(fn)


class CodecCoder(Coder[Any]):
    """The coder of a codec."""

    def __init__(self, codec: Codec[Any]) -> None:
        super().__init__(Any)
        self._codec = codec
        self._plain: Coder[Any] = coder_for(Any)

    def dumps(self, value: Any, *, what: str = "value") -> str:
        try:
            plain = self._codec.dump(value)
        except Exception as error:  # foreign code, which may raise anything
            raise Unserialisable(f"{what} cannot be stored: {type(error).__name__}: {error}") from error
        return self._plain.dumps(plain, what=what)

    def loads(self, text: str, *, what: str = "value") -> Any:
        plain = self._plain.loads(text, what=what)
        try:
            return self._codec.load(plain)
        except Exception as error:  # likewise
            raise Undecodable(f"{what} cannot be read: {type(error).__name__}: {error}") from error

    def roundtrip(self, value: Any, *, what: str = "value") -> tuple[str, Any]:
        text = self.dumps(value, what=what)
        try:
            return text, self.loads(text, what=what)
        except Undecodable as error:
            raise Unserialisable(f"{what} is stored and does not load again: {error}") from error

    def read_outside(self, text: str, *, what: str) -> Any:
        """The result of a text that a person wrote: what the tool itself would have returned."""
        return self.from_outside(self._plain.loads(text, what=what), what=what)

    def from_outside(self, result: Any, *, what: str = "value") -> Any:
        """The framework's result, of the tool's own."""
        if self._codec.outside is None:
            return result
        try:
            return self._codec.outside(result)
        except Exception as error:  # likewise
            raise Undecodable(f"{what} does not fit: {type(error).__name__}: {error}") from error
